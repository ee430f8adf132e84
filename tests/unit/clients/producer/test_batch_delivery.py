"""What each response does to a batch and to those who wait for it."""

import pytest

from oncelog.clients.errors import (
    BrokerRefused,
    ClientError,
    DeliveryTimedOut,
    OutcomeUnknown,
    ProducerFenced,
    TransactionAbortable,
    TransactionAborted,
)
from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.producer_config import ProducerConfig
from oncelog.clients.producer.producer_state import State
from oncelog.clients.producer.transaction_manager import MAYBE_WRITTEN
from oncelog.protocol.errors import RETRIABLE, ErrorCode
from oncelog.protocol.messages.init_producer_id import InitProducerIdResponse
from oncelog.protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from tests.unit.clients.producer.pure_producer import PureProducer, Sent

DELIVERY_SECONDS = 10.0
CONCURRENT_SECONDS = 0.02


def made(transactional: bool = False) -> PureProducer:
    """A producer with a producer id, in a transaction if it is transactional."""
    producer = PureProducer(
        ProducerConfig(
            bootstrap="x",
            transactional_id="id" if transactional else None,
            linger_ms=0,
            batch_bytes=600,
            request_timeout_ms=1000,
            delivery_timeout_ms=int(DELIVERY_SECONDS * 1000),
        )
    )
    manager = producer.manager
    manager.features = manager.features._replace(epoch=1, levels={"transaction.version": 2})
    if transactional:
        manager.initialize()
        request = producer.requests.next_request(has_incomplete=False)
        assert request is not None
        producer.requests.handle_response(request, InitProducerIdResponse(producer_id=7))
        manager.initialize().acknowledge()
        manager.begin()
    return producer


def sent(producer: PureProducer, value: bytes = b"value") -> tuple[Sent, ProducerBatch]:
    """A record on the wire, alone in its batch."""
    record = producer.send(0, value)
    producer.turn()
    (batch,) = producer.drain()
    batch.encode(producer.config.codec)
    return record, batch


def test_written_record_has_partition_and_offset() -> None:
    producer = made()
    record, batch = sent(producer)
    producer.respond(batch, base_offset=41)
    assert record.future.result().offset == 41
    assert not producer.accumulator.incomplete


@pytest.mark.parametrize("error", sorted(RETRIABLE - {ErrorCode.NONE}))
def test_batch_with_retriable_error_is_retried(error: ErrorCode) -> None:
    producer = made()
    record, batch = sent(producer)
    producer.respond(batch, error)
    producer.now = batch.retry_at
    assert producer.drain() == [batch]
    producer.respond(batch, base_offset=41)
    assert record.future.result().offset == 41
    assert producer.producer.epoch == 0


FINAL = sorted(
    set(ErrorCode)
    - RETRIABLE
    - MAYBE_WRITTEN
    - {
        ErrorCode.NONE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    }
)


@pytest.mark.parametrize("error", FINAL, ids=lambda error: error.name)
@pytest.mark.parametrize("transactional", [True, False])
def test_other_errors_fail_the_record_and_free_its_space(error: ErrorCode, transactional: bool) -> None:
    producer = made(transactional)
    record, batch = sent(producer)
    producer.respond(batch, error)
    failure = record.future.exception()
    assert isinstance(failure, BrokerRefused | ProducerFenced | TransactionAbortable)
    assert error.name in str(failure)
    assert producer.accumulator.used_bytes == 0
    if transactional:
        assert producer.manager.state.current in (State.ABORTABLE_ERROR, State.FATAL_ERROR)


def test_duplicate_counts_as_written_at_an_unknown_offset() -> None:
    producer = made()
    record, batch = sent(producer)
    producer.respond(batch, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert record.future.result().offset == -1
    second, batch = sent(producer)
    assert batch.base_sequence == 1
    producer.respond(batch)
    assert second.future.done()


@pytest.mark.parametrize("first", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_error_after_a_lost_response_leaves_the_outcome_unknown(first: ErrorCode) -> None:
    """B61: a leader that lost its office while a batch waited for replicas says no more than one that is gone."""
    producer = made()
    record, batch = sent(producer)
    producer.respond(batch, first)
    producer.now = batch.retry_at
    producer.drain()
    producer.respond(batch, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert isinstance(record.future.exception(), OutcomeUnknown)


def test_backoff_grows_except_while_a_transaction_completes() -> None:
    producer = made()
    _, batch = sent(producer)
    pauses = []
    for _ in range(6):
        producer.respond(batch, ErrorCode.NOT_ENOUGH_REPLICAS)
        pauses.append(batch.retry_at - producer.now)
        producer.now = batch.retry_at
        assert producer.drain() == [batch]
    assert pauses[0] < 0.1 < 0.5 < pauses[-1] < 1.3
    producer.respond(batch, ErrorCode.CONCURRENT_TRANSACTIONS)
    assert batch.retry_at - producer.now == pytest.approx(CONCURRENT_SECONDS)


# Single records


def test_invalid_records_fail_with_errors_of_their_own() -> None:
    """KIP-467."""
    producer = made()
    records = [producer.send(0, b"%d" % index) for index in range(3)]
    producer.turn()
    (batch,) = producer.drain()
    objections = [BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="too old")]
    response = PartitionProduceResponse(
        error_code=ErrorCode.INVALID_TIMESTAMP, error_message="one record is bad", record_errors=objections
    )
    producer.delivery.handle_response(batch, response, producer.now)
    failures = [str(record.future.exception()) for record in records]
    assert failures[1] == "orders-0: INVALID_TIMESTAMP: too old"
    assert failures[0] == failures[2] == "orders-0: INVALID_TIMESTAMP: one record is bad"
    refusals = [error.refusal for record in records if isinstance(error := record.future.exception(), BrokerRefused)]
    assert [refusal.is_for_others for refusal in refusals] == [True, False, True]


# Batches that are too large


def test_batch_that_is_too_large_is_split_and_its_records_keep_their_order() -> None:
    producer = made()
    records = [producer.send(0, b"%d" % index) for index in range(8)]
    producer.turn()
    (batch,) = producer.drain()
    batch.encode(producer.config.codec)
    producer.respond(batch, ErrorCode.MESSAGE_TOO_LARGE)
    offset, sequences = 0, []
    while parts := producer.drain():
        for part in parts:
            sequences.append(part.base_sequence)
            producer.respond(part, base_offset=offset)
            offset += part.record_count
    assert [record.future.result().offset for record in records] == list(range(8))
    assert len(sequences) > 1
    assert sequences == sorted(sequences)
    assert producer.accumulator.used_bytes == 0


def test_record_that_is_too_large_fails_alone() -> None:
    producer = made()
    record, batch = sent(producer)
    producer.respond(batch, ErrorCode.MESSAGE_TOO_LARGE)
    assert str(record.future.exception()).startswith("orders-0: MESSAGE_TOO_LARGE: a record is larger than max.message")


# Time


def test_record_that_could_not_be_sent_in_time_was_not_written() -> None:
    producer = made()
    producer.metadata.brokers.clear()
    record = producer.send(0, b"value")
    assert producer.delivery.next_expiry_at() == DELIVERY_SECONDS
    producer.now = DELIVERY_SECONDS
    producer.turn()
    error = record.future.exception()
    assert isinstance(error, DeliveryTimedOut)
    assert not error.maybe_written
    assert not producer.accumulator.topic_names() - producer.accumulator.topics.keys()


def test_record_without_response_in_time_may_be_written_and_stays_failed() -> None:
    producer = made()
    record, batch = sent(producer)
    producer.now = DELIVERY_SECONDS
    producer.turn()
    error = record.future.exception()
    assert isinstance(error, DeliveryTimedOut)
    assert error.maybe_written
    producer.respond(batch, base_offset=5)
    assert record.future.exception() is error
    assert record.fates == 1


def test_error_at_the_deadline_ends_the_last_attempt() -> None:
    producer = made()
    record, batch = sent(producer)
    producer.now = DELIVERY_SECONDS
    producer.respond(batch, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert "NOT_ENOUGH_REPLICAS" in str(record.future.exception())
    record, batch = sent(producer)
    producer.now += DELIVERY_SECONDS
    producer.respond(batch, ErrorCode.REQUEST_TIMED_OUT)
    assert isinstance(record.future.exception(), DeliveryTimedOut)


def test_record_that_expires_between_attempts_names_the_last_refusal() -> None:
    producer = made()
    record, batch = sent(producer)
    producer.respond(batch, ErrorCode.KAFKA_STORAGE_ERROR)
    producer.now = DELIVERY_SECONDS
    producer.turn()
    error = record.future.exception()
    assert isinstance(error, DeliveryTimedOut)
    assert "not acknowledged" in str(error)
    assert "KAFKA_STORAGE_ERROR" in str(error)


def test_parts_of_a_batch_keep_its_age() -> None:
    producer = made()
    early = [producer.send(0, b"%d" % index) for index in range(4)]
    producer.turn()
    (batch,) = producer.drain()
    batch.encode(producer.config.codec)
    producer.now = DELIVERY_SECONDS / 2
    late = producer.send(0, b"late")
    producer.respond(batch, ErrorCode.MESSAGE_TOO_LARGE)
    producer.now = DELIVERY_SECONDS
    producer.turn()
    assert all(record.future.done() for record in early)
    assert not late.future.done()


# The state of the producer


def test_abort_fails_unsent_records_and_waits_for_the_others() -> None:
    producer = made(transactional=True)
    first, batch = sent(producer)
    second = producer.send(0, b"second")
    producer.manager.abort()
    producer.delivery.settle()
    assert isinstance(second.future.exception(), TransactionAborted)
    assert not first.future.done()
    producer.respond(batch, base_offset=3)
    assert first.future.result().offset == 3


def test_error_of_the_transaction_fails_unsent_records() -> None:
    producer = made(transactional=True)
    _, batch = sent(producer)
    second = producer.send(0, b"second")
    producer.respond(batch, ErrorCode.INVALID_TXN_STATE)
    producer.delivery.settle()
    assert isinstance(second.future.exception(), TransactionAbortable)


def test_fatal_error_fails_all_batches() -> None:
    producer = made()
    first, batch = sent(producer)
    producer.manager.fail_fatally(ProducerFenced("by another"))
    producer.delivery.settle()
    assert isinstance(first.future.exception(), ProducerFenced)
    producer.respond(batch, base_offset=3)
    assert first.fates == 1


def test_refused_producer_id_fails_waiting_records_and_not_later_ones() -> None:
    producer = made()
    first = producer.send(0, b"first")
    request = producer.requests.next_request(has_incomplete=True)
    assert request is not None
    refused = InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    producer.requests.handle_response(request, refused)
    producer.delivery.settle()
    assert isinstance(first.future.exception(), ClientError)
    second, batch = sent(producer)
    producer.respond(batch)
    assert second.future.exception() is None


@pytest.mark.parametrize(
    ("error", "last_error"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NETWORK_EXCEPTION, None),
        (ErrorCode.REQUEST_TIMED_OUT, None),
    ],
)
def test_expired_batch_names_the_error_of_its_last_attempt(error: ErrorCode, last_error: ErrorCode | None) -> None:
    producer = made()
    record, batch = sent(producer)
    producer.respond(batch, error)
    producer.delivery.expire(producer.now + DELIVERY_SECONDS)
    failure = record.future.exception()
    assert isinstance(failure, DeliveryTimedOut)
    assert failure.last_error is last_error
    assert len(producer.delivery.obstacles(producer.now)) == 0


def test_attempt_without_response_clears_the_refusal() -> None:
    producer = made()
    _, batch = sent(producer)
    producer.respond(batch, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert len(producer.delivery.obstacles(producer.now)) == 1
    producer.now = batch.retry_at
    assert producer.drain() == [batch]
    producer.respond(batch, ErrorCode.NETWORK_EXCEPTION)
    assert producer.delivery.obstacles(producer.now) == []
