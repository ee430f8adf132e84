"""Batches that reach a broker before it leads their partition are not overtaken by those that are in flight behind."""

import asyncio

import pytest

from oncelog.broker.handlers.produce import handle_produce
from oncelog.broker.replication.early_batches import EarlyBatches
from oncelog.broker.storage.awaited_batches import IN_FLIGHT_MS
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import read_header
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.batches import batch
from tests.unit.broker.handlers.test_produce import by_id, error, produce
from tests.unit.broker.replica_side import ME, OTHER, OnlyTopics, ReplicaSide, topic_id
from tests.unit.broker.virtual_time import in_virtual_time

BY_NAME, BY_ID = 9, 13
PRODUCER = 4711
NEW = TopicPartition("new", 0)
NO_ERROR = ErrorCode.NONE
NOT_YET = ErrorCode.KAFKA_STORAGE_ERROR
BASE_SEQUENCE_POSITION = 53


def sent(
    broker: ReplicaSide, sequence: int, *, version: int = BY_NAME, epoch: int = 0, producer_id: int = PRODUCER
) -> ErrorCode:
    request = produce(("new", 0, batch(producer_id=producer_id, epoch=epoch, sequence=sequence)))
    return error(broker.respond(handle_produce, by_id(request) if version == BY_ID else request, version))


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
@in_virtual_time
async def test_batch_behind_one_that_came_before_the_partition_waits_for_it(version: int) -> None:
    """B113"""
    broker = ReplicaSide()
    assert sent(broker, 1, version=version) in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    sent(broker, 0, version=version)
    sent(broker, 2, version=version)
    broker.lead("new")
    assert [sent(broker, each, version=version) for each in (1, 2, 0, 2, 1, 2)] == [
        NOT_YET, NOT_YET, NO_ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, NO_ERROR, NO_ERROR,
    ]  # fmt: skip


@in_virtual_time
async def test_batch_behind_one_that_came_before_the_leadership_waits_for_it() -> None:
    """B113"""
    broker = ReplicaSide()
    broker.lead("new", leader=OTHER, replicas=(ME, OTHER))
    assert sent(broker, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.lead("new", epoch=1, replicas=(ME, OTHER))
    assert [sent(broker, each) for each in (1, 0, 1)] == [NOT_YET, NO_ERROR, NO_ERROR]


@in_virtual_time
async def test_leadership_of_another_broker_in_between_lets_no_batch_overtake() -> None:
    """B113: nothing of the producer was written there, or the log here would know it."""
    broker = ReplicaSide()
    assert sent(broker, 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for epoch in (0, 2):
        broker.lead("new", epoch=epoch, replicas=(ME, OTHER))
        assert sent(broker, 1) is NOT_YET
        broker.lead("new", epoch=epoch + 1, leader=OTHER, replicas=(ME, OTHER))
        assert sent(broker, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.lead("new", epoch=4, replicas=(ME, OTHER))
    assert [sent(broker, each) for each in (1, 0, 1)] == [NOT_YET, NO_ERROR, NO_ERROR]


@in_virtual_time
async def test_batch_that_the_leader_refused_is_awaited_by_its_next_leadership() -> None:
    """B113"""
    broker = ReplicaSide()
    broker.lead("new", replicas=(ME, OTHER))
    broker.disk.fill()
    assert sent(broker, 0) is ErrorCode.KAFKA_STORAGE_ERROR
    broker.disk.make_room()
    broker.lead("new", epoch=1, leader=OTHER, replicas=(ME, OTHER))
    broker.lead("new", epoch=2, replicas=(ME, OTHER))
    assert [sent(broker, each) for each in (1, 0, 1)] == [NOT_YET, NO_ERROR, NO_ERROR]


@pytest.mark.parametrize("others", [999, 1000])
@in_virtual_time
async def test_refusals_of_many_producers_are_awaited_by_the_next_leadership(others: int) -> None:
    """B113: more than the log remembers one by one."""
    broker = ReplicaSide()
    broker.lead("new", replicas=(ME, OTHER))
    broker.disk.fill()
    assert {sent(broker, 0, producer_id=each) for each in (PRODUCER, *range(others))} == {NOT_YET}
    broker.disk.make_room()
    broker.lead("new", epoch=1, leader=OTHER, replicas=(ME, OTHER))
    broker.lead("new", epoch=2, replicas=(ME, OTHER))
    assert [sent(broker, each) for each in (1, 0, 1)] == [NOT_YET, NO_ERROR, NO_ERROR]
    broker.now_ms += IN_FLIGHT_MS
    assert sent(broker, 7, producer_id=5000) is NO_ERROR


@in_virtual_time
async def test_refused_batch_of_a_producer_is_awaited_although_the_log_knew_it_then() -> None:
    """B113: what it had written was cut off."""
    broker = ReplicaSide()
    broker.lead("new", replicas=(ME, OTHER))
    assert sent(broker, 0) is NO_ERROR
    broker.disk.fill()
    assert sent(broker, 1) is NOT_YET
    broker.disk.make_room()
    broker.lead("new", epoch=1, leader=OTHER, replicas=(ME, OTHER))
    log = broker.partition("new").log
    assert log is not None
    log.truncate_to(0)
    broker.lead("new", epoch=2, replicas=(ME, OTHER))
    assert [sent(broker, each) for each in (2, 0, 1, 2)] == [NOT_YET, NO_ERROR, NO_ERROR, NO_ERROR]


@in_virtual_time
async def test_damaged_batch_holds_no_other_back() -> None:
    broker = ReplicaSide()
    damaged = batch(producer_id=PRODUCER, epoch=0, sequence=7)
    damaged[BASE_SEQUENCE_POSITION : BASE_SEQUENCE_POSITION + 4] = (3).to_bytes(4, "big")
    error(broker.respond(handle_produce, produce(("new", 0, damaged)), BY_NAME))
    broker.lead("new")
    assert sent(broker, 7) is NO_ERROR


@in_virtual_time
async def test_batch_that_the_client_may_not_write_is_not_noted() -> None:
    """In a request that waits for the verification of another batch."""
    broker = ReplicaSide(transaction_partition_verification_enable=True)
    broker.authorizer = OnlyTopics("t", "txn")
    broker.lead("t")
    request = produce(
        ("t", 0, batch(producer_id=1, epoch=0, sequence=0, transactional=True)),
        ("secret", 0, batch(producer_id=PRODUCER, epoch=0, sequence=0)),
        ("__consumer_offsets", 3, batch(producer_id=PRODUCER, epoch=0, sequence=0)),
        acks=-1,
        transactional_id="txn",
    )
    await broker.call(handle_produce, request, 11)
    early = broker.replica_manager.early_batches
    assert early.take(TopicPartition("secret", 0), ZERO_UUID) == []
    assert early.take(TopicPartition("__consumer_offsets", 3), ZERO_UUID) == []


@in_virtual_time
async def test_awaited_batch_that_does_not_come_holds_others_back_for_half_a_minute() -> None:
    broker = ReplicaSide()
    sent(broker, 0)
    broker.lead("new")
    assert sent(broker, 1) is NOT_YET
    broker.now_ms += IN_FLIGHT_MS
    assert sent(broker, 1) is NO_ERROR


@in_virtual_time
async def test_clock_that_is_set_back_holds_no_producer_back() -> None:
    broker = ReplicaSide()
    sent(broker, 0)
    broker.lead("new")
    assert sent(broker, 1) is NOT_YET
    broker.now_ms -= 3_600_000
    assert sent(broker, 1) is NO_ERROR


@in_virtual_time
async def test_producer_begins_anew_after_a_batch_that_it_gave_up() -> None:
    broker = ReplicaSide()
    sent(broker, 0)
    broker.lead("new")
    assert [sent(broker, 1), sent(broker, 3, epoch=1)] == [NOT_YET, NO_ERROR]


@in_virtual_time
async def test_batch_that_came_long_ago_holds_no_other_back() -> None:
    broker = ReplicaSide()
    sent(broker, 0)
    await asyncio.sleep(IN_FLIGHT_MS / 1000)
    broker.lead("new")
    assert sent(broker, 1) is NO_ERROR


@in_virtual_time
async def test_producer_that_the_log_knows_is_judged_by_its_sequences() -> None:
    broker = ReplicaSide()
    broker.lead("new", replicas=(ME, OTHER))
    assert sent(broker, 0) is NO_ERROR
    broker.lead("new", epoch=1, leader=OTHER, replicas=(ME, OTHER))
    assert sent(broker, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.lead("new", epoch=2, replicas=(ME, OTHER))
    assert [sent(broker, each) for each in (2, 1)] == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, NO_ERROR]


class TestEarlyBatches:
    def test_newest_epoch_and_earliest_sequence_are_kept(self) -> None:
        early = EarlyBatches(lambda: 0)
        for epoch, sequence in ((0, 3), (1, 5), (0, 0), (1, 4), (1, 6)):
            header = read_header(batch(producer_id=PRODUCER, epoch=epoch, sequence=sequence))
            early.refuse(NEW, topic_id("new"), header)
        assert early.take(NEW, topic_id("new")) == [(PRODUCER, (1, 4))]
        assert early.take(NEW, topic_id("new")) == []

    def test_partitions_that_were_refused_first_are_dropped_first(self) -> None:
        early = EarlyBatches(lambda: 0)
        for index in (1, 2, 3):
            for producer_id in range(20_000):
                header = read_header(batch(producer_id=producer_id, epoch=0, sequence=0))
                early.refuse(("new", index), ZERO_UUID, header)
        kept = [len(early.take(TopicPartition("new", index), topic_id("new"))) for index in (1, 2, 3)]
        assert kept == [0, 20_000, 20_000]
