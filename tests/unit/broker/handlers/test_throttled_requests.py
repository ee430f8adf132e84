"""Fetches and produces of a client over its quota, and what is left of them."""

import asyncio

import pytest

from oncelog.broker.handlers.fetch import handle_fetch
from oncelog.broker.handlers.produce import handle_produce
from oncelog.coordinator.controller.config_changes import ConfigResource, ResourceType
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchResponse
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.unit.broker.batches import batch
from tests.unit.broker.handlers.test_fetch import NAMES, NEW_SESSION, SESSIONLESS, fetch, led, replies, values
from tests.unit.broker.replica_side import ReplicaSide
from tests.unit.broker.virtual_time import in_virtual_time


def limit(broker: ReplicaSide, **limits: str) -> None:
    broker.quotas.learn(ConfigResource(ResourceType.QUOTA, "clients/<default>"), limits)


def throttles(broker: ReplicaSide) -> list[float]:
    """The times for which the connection is not read, from now on."""
    seconds: list[float] = []
    broker.connection.on_throttle = seconds.append
    return seconds


def fetched(broker: ReplicaSide, *requested: tuple[int, int], session: tuple[int, int]) -> FetchResponse:
    response = broker.respond(handle_fetch, fetch(*requested, session=session), NAMES)
    assert isinstance(response, FetchResponse)
    assert response.error_code == ErrorCode.NONE
    return response


@pytest.mark.parametrize("epoch", [SESSIONLESS, NEW_SESSION])
@in_virtual_time
async def test_throttled_full_fetch_returns_nothing_and_keeps_no_session(epoch: int) -> None:
    broker = led()
    broker.append(batch(b"x" * 500))
    limit(broker, consumer_byte_rate="100")
    seconds = throttles(broker)
    assert len(replies(fetched(broker, (0, 0), session=(0, SESSIONLESS)))) == 1
    fetched(broker, (0, 0), session=(0, SESSIONLESS))
    response = fetched(broker, (0, 0), session=(0, epoch))
    assert (response.responses, response.session_id) == ([], 0)
    assert seconds[-1] * 1_000 == response.throttle_time_ms > 0
    assert len(broker.replica_manager.fetch_sessions) == 0
    assert broker.partition().traffic.bytes_out < 2 * 600, "what was not sent does not count"


@in_virtual_time
async def test_throttled_fetch_of_a_session_leaves_its_records_to_a_later_one() -> None:
    broker = led()
    first = fetched(broker, (0, 0), session=(0, NEW_SESSION))
    broker.append(batch(b"x" * 2_000))
    limit(broker, consumer_byte_rate="100")
    broker.quotas.fetch.record("ANONYMOUS", "client", 900, asyncio.get_running_loop().time())
    epoch, response = 1, FetchResponse()
    while not response.responses:
        response = fetched(broker, session=(first.session_id, epoch))
        assert response.session_id == first.session_id
        assert response.throttle_time_ms > 0
        await asyncio.sleep(response.throttle_time_ms / 1_000)
        epoch += 1
    assert epoch > 2
    assert values(replies(response)[0]) == [b"x" * 2_000]


@in_virtual_time
async def test_followers_have_no_quota() -> None:
    broker = led()
    broker.append(batch(b"x" * 2_000))
    limit(broker, consumer_byte_rate="1", request_percentage="0.001")
    request = fetch((0, 0))
    request.replica_id = 7
    response = broker.respond(handle_fetch, request, NAMES)
    assert response.throttle_time_ms == 0


def produce(*records: bytearray | None, acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=each) for index, each in enumerate(records)]
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[TopicProduceData(name="t", partition_data=data)])


@in_virtual_time
async def test_produce_counts_all_its_records_those_that_are_refused_included() -> None:
    broker = led(1)
    limit(broker, producer_byte_rate="10")
    seconds = throttles(broker)
    broker.respond(handle_produce, produce(batch(b"x" * 400), batch(b"y" * 400), None), 9)
    assert seconds[-1] == pytest.approx((2 * len(batch(b"x" * 400))) / 10 - 10, abs=0.01)
    refused = broker.respond(handle_produce, produce(batch(b"x" * 400), acks=7), 9)
    assert isinstance(refused, ProduceResponse)
    assert refused.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert refused.throttle_time_ms == round(seconds[-1] * 1_000) > 0


@in_virtual_time
async def test_produce_without_acks_is_throttled_without_a_response() -> None:
    broker = led(1)
    limit(broker, producer_byte_rate="10")
    seconds = throttles(broker)
    assert broker.call(handle_produce, produce(batch(b"x" * 400), acks=0), 9) is None
    assert len(seconds) == 1
