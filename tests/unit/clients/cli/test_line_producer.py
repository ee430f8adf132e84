"""What the error of a line means for the advice and the exit code of ``oncelog produce``."""

import pytest

from oncelog.clients.cli.line_producer import LineProducer, may_be_written, means_no_response
from oncelog.clients.cli.lines import LineFormat
from oncelog.clients.cli.produce import advice_for, summary
from oncelog.clients.errors import ClientError, DeliveryTimedOut
from oncelog.clients.producer import Producer
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from oncelog.protocol.schema import Message
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.producer.producing_brokers import NOW_MS, TOPIC, TOPIC_ID, Stage
from tests.unit.clients.scripted_broker import Reaction


def test_line_refused_by_a_broker_has_its_remedy() -> None:
    error = DeliveryTimedOut("late", maybe_written=False, last_error=ErrorCode.NOT_ENOUGH_REPLICAS)
    assert not means_no_response(error)
    assert "min.insync.replicas" in (advice_for(error) or "")


@pytest.mark.parametrize("maybe_written", [True, False])
def test_line_without_a_response_counts_as_no_broker(maybe_written: bool) -> None:
    error = DeliveryTimedOut("late", maybe_written=maybe_written)
    assert means_no_response(error)
    assert advice_for(error) is None


def refuse_third_record(request: Message) -> ProduceResponse:
    """Refuse the batch of partition 0 for its third record (KIP-467)."""
    refused = PartitionProduceResponse(
        index=0,
        error_code=ErrorCode.INVALID_RECORD,
        base_offset=-1,
        error_message="1 record error",
        record_errors=[BatchIndexAndErrorMessage(batch_index=2, batch_index_error_message="no key")],
    )
    topics = [TopicProduceResponse(name=TOPIC, topic_id=TOPIC_ID, partition_responses=[refused])]
    return ProduceResponse(responses=topics)


def lines_of(producer: Producer, failures: list[tuple[int, ClientError]]) -> LineProducer:
    return LineProducer(
        producer=producer,
        topic=TOPIC,
        partition=0,
        format=LineFormat(key=None, key_separator=None, headers=(), empty_is_null=False),
        now_ms=lambda: NOW_MS,
        on_first_failure=lambda line, error: failures.append((line, error)),
    )


@in_virtual_time
async def test_line_that_may_be_written_is_not_counted_as_not_written() -> None:
    stage = Stage(partitions=1)
    stage.broker.script[ProduceRequest] = Reaction.SILENCE
    failures: list[tuple[int, ClientError]] = []
    async with stage.producing(linger_ms=5, delivery_timeout_ms=1005, request_timeout_ms=1000) as producer:
        lines = lines_of(producer, failures)
        await lines.send([b"one"])
        await lines.finish()
        await lines.send([b"two"])
    assert [line for line, error in failures if may_be_written(error)] == [1]
    assert (str(lines.lost), str(lines.unsure)) == ("2", "1")
    assert summary(lines) == (
        "Error: 0 written, 1 not: line 2, 1 unknown: line 1 may be written, only its acknowledgement is missing; "
        "reading stopped after line 2"
    )


@in_virtual_time
async def test_line_that_is_the_reason_for_a_refused_batch_is_reported_and_all_are_counted() -> None:
    stage = Stage(partitions=1)
    stage.broker.script[ProduceRequest] = refuse_third_record
    failures: list[tuple[int, ClientError]] = []
    async with stage.producing(linger_ms=5) as producer:
        lines = lines_of(producer, failures)
        await lines.send([b"one", b"two", b"three", b"four"])
        await lines.finish()
    assert [(line, str(error)) for line, error in failures] == [(3, "orders-0: INVALID_RECORD: no key")]
    assert str(lines.lost) == "1-4"
