"""What waits to be polled: in order, at the right place or not at all."""

import pytest

from oncelog.clients.consumer.assigned_partitions import (
    NO_RESET,
    RESET_TO_EARLIEST,
    FetchPosition,
    Leader,
    Phase,
    ResetPolicy,
)
from oncelog.clients.consumer.consumer_errors import OffsetOutOfRange, UnreadableRecords
from oncelog.clients.consumer.fetch_buffer import FetchBuffer
from oncelog.clients.consumer.subscription_state import SubscriptionState
from oncelog.clients.errors import BrokerRefused
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.clients.consumer.fetched import CLICKS, ORDERS, batch, completed


class _FailingBound(int):
    """A bound of decompression that raises an exception at its use until it is disarmed."""

    armed = True
    error: type[Exception] = MemoryError

    def __sub__(self, other: int) -> int:
        if self.armed:
            raise self.error("injected")
        return int(self) - other


def reading(default_reset: ResetPolicy = NO_RESET) -> tuple[SubscriptionState, FetchBuffer]:
    """Two partitions, both at offset 0."""
    subscription = SubscriptionState(default_reset)
    subscription.assign([ORDERS, CLICKS])
    for partition in (ORDERS, CLICKS):
        subscription.partitions[partition].seek(FetchPosition(0, leader=Leader(1, 3)))
    return subscription, FetchBuffer(subscription)


def seen(buffer: FetchBuffer, limit: int = 100) -> list[tuple[str, int]]:
    return [(record.topic, record.offset) for record in buffer.take(limit)]


def test_responses_are_a_chain_that_the_positions_follow() -> None:
    subscription, buffer = reading()
    assert buffer.next_offset(ORDERS) == 0
    assert buffer.add(completed(0, batch(0, epoch=7)))
    assert buffer.next_offset(ORDERS) == 2
    assert buffer.add(completed(2, batch(2)))
    assert buffer.add(completed(0, batch(0), partition=CLICKS))
    assert buffer.next_offset(ORDERS) is None
    assert not buffer.add(completed(4, batch(4)))
    assert seen(buffer, 2) == [("orders", 0), ("orders", 1)]
    assert subscription.partitions[ORDERS].position == FetchPosition(2, 7, Leader(1, 3))
    assert buffer.next_offset(ORDERS) == 4
    assert seen(buffer) == [("clicks", 0), ("clicks", 1), ("orders", 2), ("orders", 3)]
    assert (len(buffer), buffer.size) == (0, 0)


def test_turn_ends_with_the_batch_that_reaches_the_limit() -> None:
    """Not within a batch: only one partition has records that are decoded."""
    _, buffer = reading()
    buffer.add(completed(0, batch(0), batch(2), batch(4)))
    buffer.add(completed(0, batch(0), batch(2), partition=CLICKS))
    assert seen(buffer, 1) == [("orders", 0)]
    assert seen(buffer, 2) == [("orders", 1), ("orders", 2)]
    assert seen(buffer, 1) == [("orders", 3)]
    assert seen(buffer, 3) == [("clicks", 0), ("clicks", 1), ("clicks", 2)]
    assert seen(buffer) == [("clicks", 3), ("orders", 4), ("orders", 5)]
    assert seen(buffer) == []


def test_responses_with_nothing_left_that_can_be_given_out_do_not_count_as_unread() -> None:
    subscription, buffer = reading()
    damaged = bytearray(batch(2))
    damaged[-1] ^= 1
    first, second = completed(0, batch(0)), completed(2, bytes(damaged))
    buffer.add(first)
    buffer.add(second)
    assert (first.response.unread, second.response.unread) == (1, 1)
    subscription.partitions[ORDERS].paused = True
    assert buffer.take(100) == []
    assert (first.response.unread, second.response.unread, buffer.size) == (0, 0, 0)
    subscription.partitions[ORDERS].paused = False
    buffer.recount()
    assert (first.response.unread, second.response.unread, buffer.size) == (1, 1, first.size + second.size)
    assert seen(buffer) == [("orders", 0), ("orders", 1)]
    assert (first.response.unread, second.response.unread) == (0, 1)
    with pytest.raises(UnreadableRecords):
        buffer.take(100)
    assert (second.response.unread, buffer.size) == (0, 0)
    buffer.drop([ORDERS])
    assert (first.response.unread, second.response.unread, buffer.size, len(buffer)) == (0, 0, 0, 0)


def test_records_set_aside_do_not_keep_their_response_in_memory() -> None:
    subscription, buffer = reading()
    frame = bytearray(batch(0) * 2)
    fetches = [completed(0, memoryview(frame)[: len(batch(0))], partition=partition) for partition in (ORDERS, CLICKS)]
    subscription.partitions[ORDERS].paused = True
    for fetch in fetches:
        buffer.add(fetch)
    with pytest.raises(BufferError):
        frame.clear()
    assert seen(buffer) == [("clicks", 0), ("clicks", 1)]
    del fetch
    fetches.clear()
    frame.clear()
    subscription.partitions[ORDERS].paused = False
    assert seen(buffer) == [("orders", 0), ("orders", 1)]


def test_response_that_does_not_follow_is_not_kept() -> None:
    subscription, buffer = reading()
    assert not buffer.add(completed(2, batch(2)))
    assert buffer.add(completed(0, batch(0)))
    assert not buffer.add(completed(0, batch(0)))
    subscription.partitions[CLICKS].reset(RESET_TO_EARLIEST)
    assert not buffer.add(completed(0, batch(0), partition=CLICKS))
    assert seen(buffer) == [("orders", 0), ("orders", 1)]


def test_seek_drops_fetched_records() -> None:
    subscription, buffer = reading()
    buffer.add(completed(0, batch(0)))
    buffer.add(completed(2, batch(2)))
    subscription.partitions[ORDERS].seek(FetchPosition(9, leader=Leader(1, 3)))
    assert buffer.next_offset(ORDERS) == 9
    assert buffer.add(completed(9, batch(9)))
    assert seen(buffer) == [("orders", 9), ("orders", 10)]
    assert buffer.size == 0


def test_fetched_records_of_a_revoked_partition_are_dropped() -> None:
    subscription, buffer = reading()
    buffer.add(completed(0, batch(0)))
    buffer.add(completed(0, batch(0), partition=CLICKS))
    subscription.assign([CLICKS])
    assert seen(buffer, 1) == [("clicks", 0)]
    subscription.assign([])
    buffer.drop_unassigned()
    assert (len(buffer), buffer.size) == (0, 0)


def test_partition_assigned_again_begins_anew() -> None:
    subscription, buffer = reading()
    buffer.add(completed(0, batch(0)))
    subscription.assign([])
    subscription.assign([ORDERS])
    assert seen(buffer) == []
    subscription.partitions[ORDERS].seek(FetchPosition(0))
    assert buffer.next_offset(ORDERS) == 0


def test_fetched_records_of_a_paused_partition_are_kept_and_delay_no_other() -> None:
    subscription, buffer = reading()
    buffer.add(completed(0, batch(0)))
    buffer.add(completed(2, batch(2)))
    buffer.add(completed(0, batch(0), partition=CLICKS))
    subscription.partitions[ORDERS].paused = True
    buffer.recount()
    assert buffer.size == len(batch(0))
    assert seen(buffer) == [("clicks", 0), ("clicks", 1)]
    assert not buffer.has_any
    subscription.partitions[ORDERS].paused = False
    buffer.recount()
    assert buffer.has_any
    assert buffer.next_offset(ORDERS) is None
    assert seen(buffer) == [("orders", number) for number in range(4)]
    assert buffer.size == 0


def test_response_for_a_partition_paused_meanwhile_delays_no_other() -> None:
    subscription, buffer = reading()
    subscription.partitions[ORDERS].paused = True
    assert buffer.add(completed(0, batch(0)))
    assert buffer.size == 0


@pytest.mark.parametrize("offset_epoch", [2, -1])
def test_fetched_records_of_an_earlier_leader_are_dropped_with_or_without_validation(offset_epoch: int) -> None:
    """The new leader confirms the position, which says nothing of what was fetched beyond it."""
    subscription, buffer = reading()
    subscription.partitions[ORDERS].position = FetchPosition(0, offset_epoch, Leader(1, 3))
    first, second = completed(0, batch(0)), completed(2, batch(2))
    assert buffer.add(first)
    assert buffer.add(second)
    subscription.partitions.follow_leaders(lambda _: Leader(2, 4))
    assert seen(buffer) == []
    assert (len(buffer), buffer.size, first.response.unread, second.response.unread) == (0, 0, 0, 0)
    if offset_epoch >= 0:
        subscription.partitions.complete_validation(ORDERS, subscription.partitions[ORDERS].position, 2, 50)
    assert buffer.next_offset(ORDERS) == 0
    assert buffer.add(completed(0, batch(0), current_leader_epoch=4))
    assert seen(buffer) == [("orders", 0), ("orders", 1)]


def test_response_of_an_earlier_leader_that_comes_after_the_validation_is_not_kept() -> None:
    subscription, buffer = reading()
    assert buffer.add(completed(0, batch(0, epoch=3)))
    assert seen(buffer) == [("orders", 0), ("orders", 1)]
    late = completed(2, batch(2))
    out_of_range = completed(2, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    subscription.partitions.follow_leaders(lambda _: Leader(2, 4))
    subscription.partitions.complete_validation(ORDERS, subscription.partitions[ORDERS].position, 3, 50)
    assert not buffer.add(late)
    assert not buffer.add(out_of_range)
    assert seen(buffer) == []
    assert buffer.next_offset(ORDERS) == 2


def test_fetched_records_of_a_paused_partition_are_dropped_with_its_leader() -> None:
    subscription, buffer = reading()
    buffer.add(completed(0, batch(0)))
    subscription.partitions[ORDERS].paused = True
    buffer.recount()
    subscription.partitions.follow_leaders(lambda _: Leader(2, 4))
    assert seen(buffer) == []
    assert len(buffer) == 0


def test_truncation_drops_fetched_records() -> None:
    subscription, buffer = reading(RESET_TO_EARLIEST)
    subscription.partitions[ORDERS].seek(FetchPosition(4, 2, Leader(1, 3)))
    subscription.partitions.complete_validation(ORDERS, subscription.partitions[ORDERS].position, 2, 50)
    buffer.add(completed(4, batch(4)))
    subscription.partitions.follow_leaders(lambda _: Leader(2, 4))
    subscription.partitions.complete_validation(ORDERS, subscription.partitions[ORDERS].position, 1, 2)
    assert seen(buffer) == []
    assert buffer.next_offset(ORDERS) == 2


def test_offset_out_of_range_in_its_turn_resets_by_the_policy() -> None:
    subscription, buffer = reading(RESET_TO_EARLIEST)
    buffer.add(completed(0, batch(0)))
    buffer.add(completed(2, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert buffer.next_offset(ORDERS) is None
    assert seen(buffer) == [("orders", 0), ("orders", 1)]
    assert subscription.partitions[ORDERS].phase is Phase.FETCHING
    assert seen(buffer) == []
    assert subscription.partitions[ORDERS].phase is Phase.AWAITING_RESET


def test_offset_out_of_range_without_a_policy_raises_after_earlier_records() -> None:
    _, buffer = reading()
    buffer.add(completed(0, batch(0), partition=CLICKS))
    buffer.add(completed(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert seen(buffer) == [("clicks", 0), ("clicks", 1)]
    with pytest.raises(OffsetOutOfRange) as raised:
        buffer.take(1)
    assert (raised.value.topic_partition, raised.value.position) == (ORDERS, 0)
    assert seen(buffer) == []
    assert buffer.next_offset(ORDERS) == 0


def test_offset_out_of_range_at_a_lagging_follower_does_not_reset() -> None:
    subscription, buffer = reading(RESET_TO_EARLIEST)
    subscription.partitions.prefer_replica(ORDERS, 2, until=10.0)
    buffer.add(completed(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert seen(buffer) == []
    assert subscription.partitions[ORDERS].phase is Phase.FETCHING
    assert subscription.partitions.read_replica(ORDERS, 0.0) == 1


def test_partition_without_permission_raises_to_the_application() -> None:
    _, buffer = reading(RESET_TO_EARLIEST)
    buffer.add(completed(0, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(BrokerRefused, match="orders-0 at position 0: TOPIC_AUTHORIZATION_FAILED"):
        buffer.take(1)


def test_records_of_others_are_not_lost_with_a_batch_that_cannot_be_read() -> None:
    subscription, buffer = reading()
    damaged = bytearray(batch(0))
    damaged[-1] ^= 1
    buffer.add(completed(0, batch(0), partition=CLICKS))
    buffer.add(completed(0, bytes(damaged)))
    assert seen(buffer) == [("clicks", 0), ("clicks", 1)]
    with pytest.raises(UnreadableRecords):
        buffer.take(5)
    subscription.partitions[ORDERS].seek(FetchPosition(2))
    assert buffer.next_offset(ORDERS) == 2


@pytest.mark.parametrize("partition", [ORDERS, CLICKS])
def test_records_before_a_batch_that_finds_no_memory_are_returned(partition: TopicPartition) -> None:
    """An exception would lose them: their positions have moved."""
    subscription, buffer = reading()
    bound = _FailingBound(1 << 20)
    large = batch(2 if partition == ORDERS else 0, codec=Compression.ZSTD)
    if partition == ORDERS:
        buffer.add(completed(0, batch(0), large, max_batch_bytes=bound))
    else:
        buffer.add(completed(0, batch(0)))
        buffer.add(completed(0, large, partition=partition, max_batch_bytes=bound))
    assert seen(buffer) == [("orders", 0), ("orders", 1)]
    for _ in range(2):
        with pytest.raises(MemoryError):
            buffer.take(100)
    assert subscription.partitions[ORDERS].position.offset == 2
    bound.armed = False
    begin = 2 if partition == ORDERS else 0
    assert seen(buffer) == [(partition.topic, begin), (partition.topic, begin + 1)]


@pytest.mark.parametrize("partition", [ORDERS, CLICKS])
def test_records_before_an_unforeseen_exception_are_fetched_again(partition: TopicPartition) -> None:
    subscription, buffer = reading()
    bound = _FailingBound(1 << 20)
    bound.error = LookupError
    broken = batch(2 if partition == ORDERS else 0, codec=Compression.ZSTD)
    if partition == ORDERS:
        buffer.add(completed(0, batch(0), broken, max_batch_bytes=bound))
    else:
        buffer.add(completed(0, batch(0)))
        buffer.add(completed(0, broken, partition=partition, max_batch_bytes=bound))
    with pytest.raises(LookupError):
        buffer.take(100)
    assert subscription.partitions[ORDERS].position == FetchPosition(0, leader=Leader(1, 3))
    assert buffer.next_offset(ORDERS) == 0
    assert buffer.add(completed(0, batch(0)))
    bound.armed = False
    assert {("orders", 0), ("orders", 1)} <= set(seen(buffer))
