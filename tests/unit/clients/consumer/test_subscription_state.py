"""Phases, positions and the assignment, by themselves."""

import math
import re

import pytest

from oncelog.clients.consumer.assigned_partitions import (
    NO_LEADER,
    NO_RESET,
    RESET_TO_EARLIEST,
    RESET_TO_LATEST,
    FetchPosition,
    Leader,
    Phase,
    ResetPolicy,
)
from oncelog.clients.consumer.consumer_errors import LogTruncated, NoOffsetForPartition
from oncelog.clients.consumer.subscription_state import SubscriptionState
from oncelog.clients.errors import IllegalState
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.protocol.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 0)
CLICKS = TopicPartition("clicks", 0)
OLD, NEW = Leader(1, 5), Leader(2, 6)


def reading(position: FetchPosition, default_reset: ResetPolicy = NO_RESET) -> SubscriptionState:
    """One partition, given by the application, at a position."""
    state = SubscriptionState(default_reset)
    state.assign([ORDERS])
    state.partitions[ORDERS].seek(position)
    return state


# The subscription


def test_subscription_of_a_second_kind_raises() -> None:
    state = SubscriptionState(NO_RESET)
    state.subscribe(["orders"])
    for other in (lambda: state.assign([ORDERS]), lambda: state.subscribe_pattern(re.compile("o.*"))):
        with pytest.raises(IllegalState):
            other()
    state.subscribe(["clicks"])
    assert state.topics == {"clicks"}
    state.unsubscribe()
    state.assign([ORDERS])
    assert not state.shares_with_group
    with pytest.raises(IllegalState):
        state.subscribe(["orders"])


def test_pattern_matches_only_whole_names() -> None:
    state = SubscriptionState(NO_RESET)
    state.subscribe_pattern(re.compile("order"))
    assert not state.match(["orders", "preorder"])
    assert state.match(["order", "orders"])
    assert not state.match(["order"])
    assert state.topics == {"order"}
    assert state.accepts([TopicPartition("order", 0)])
    assert not state.accepts([ORDERS])


def test_assignment_keeps_positions_of_partitions_that_stay() -> None:
    state = SubscriptionState(NO_RESET)
    state.subscribe(["orders", "clicks"])
    state.assign_from_group([ORDERS])
    state.partitions[ORDERS].seek(FetchPosition(7))
    state.assign_from_group([ORDERS, CLICKS])
    assert state.partitions[ORDERS].position.offset == 7
    assert state.partitions[CLICKS].phase is Phase.INITIALIZING
    state.assign_from_group([CLICKS])
    state.assign_from_group([ORDERS, CLICKS])
    assert state.partitions[ORDERS].phase is Phase.INITIALIZING
    with pytest.raises(IllegalState):
        _ = state.partitions[TopicPartition("orders", 1)]


def test_assignment_for_another_subscription_is_not_accepted() -> None:
    state = SubscriptionState(NO_RESET)
    state.subscribe(["orders"])
    assert state.accepts([ORDERS])
    assert not state.accepts([ORDERS, CLICKS])


def test_leader_needs_metadata_of_all_topics_of_the_group() -> None:
    state = SubscriptionState(NO_RESET)
    state.subscribe(["orders"])
    state.group_topics = frozenset({"clicks"})
    assert state.metadata_topics == {"orders", "clicks"}
    state.unsubscribe()
    state.assign([CLICKS])
    assert state.metadata_topics == {"clicks"}


# What may be fetched


def test_partition_without_a_valid_position_is_not_fetchable() -> None:
    state = SubscriptionState(RESET_TO_LATEST)
    state.subscribe(["orders"])
    state.assign_from_group([ORDERS])
    assert not state.is_fetchable(ORDERS)
    state.partitions[ORDERS].seek(FetchPosition(3, 1, OLD))
    assert state.partitions[ORDERS].phase is Phase.AWAITING_VALIDATION
    assert not state.is_fetchable(ORDERS)
    state.partitions.complete_validation(ORDERS, state.partitions[ORDERS].position, 1, 9)
    assert state.is_fetchable(ORDERS)
    state.partitions[ORDERS].paused = True
    assert not state.is_fetchable(ORDERS)
    state.partitions[ORDERS].paused = False
    state.subscribe(["clicks"])
    assert not state.is_fetchable(ORDERS)
    state.subscribe(["orders"])
    state.partitions.mark_pending_revocation([ORDERS])
    assert not state.is_fetchable(ORDERS)
    assert state.partitions.consumed() == {ORDERS: OffsetAndMetadata(3, 1)}


def test_position_not_known_to_be_valid_is_not_committed() -> None:
    state = reading(FetchPosition(3), RESET_TO_LATEST)
    state.partitions[ORDERS].reset(RESET_TO_LATEST)
    assert state.partitions.consumed() == {}
    assert not state.partitions.has_all_positions


# Leaders


def test_position_with_an_epoch_is_validated_under_a_new_leader() -> None:
    state = reading(FetchPosition(7, 5, OLD))
    state.partitions.complete_validation(ORDERS, state.partitions[ORDERS].position, 5, 7)
    state.partitions.follow_leaders(lambda _: OLD)
    assert state.partitions[ORDERS].phase is Phase.FETCHING
    state.partitions.follow_leaders(lambda _: NO_LEADER)
    assert state.partitions[ORDERS].phase is Phase.FETCHING
    state.partitions.follow_leaders(lambda _: NEW)
    assert state.partitions[ORDERS].phase is Phase.AWAITING_VALIDATION
    assert state.partitions[ORDERS].position == FetchPosition(7, 5, NEW)


def test_position_without_an_epoch_is_trusted() -> None:
    state = reading(FetchPosition(7, -1, OLD))
    state.partitions.follow_leaders(lambda _: NEW)
    assert state.partitions[ORDERS].phase is Phase.FETCHING
    assert state.partitions[ORDERS].position.leader == NEW


def test_partition_awaiting_reset_ignores_new_leaders() -> None:
    state = reading(FetchPosition(7, 5, OLD), RESET_TO_LATEST)
    state.partitions[ORDERS].reset(RESET_TO_EARLIEST)
    state.partitions.follow_leaders(lambda _: NEW)
    assert state.partitions[ORDERS].phase is Phase.AWAITING_RESET


@pytest.mark.parametrize(("end_epoch", "end_offset"), [(5, 7), (5, 9), (4, 7)])
def test_epoch_that_ends_at_or_after_the_position_confirms_it(end_epoch: int, end_offset: int) -> None:
    state = reading(FetchPosition(7, 5, NEW))
    state.partitions.complete_validation(ORDERS, state.partitions[ORDERS].position, end_epoch, end_offset)
    assert state.partitions[ORDERS].phase is Phase.FETCHING
    assert state.partitions[ORDERS].position.offset == 7


def test_truncated_log_raises_with_the_diverging_offset() -> None:
    state = reading(FetchPosition(7, 5, NEW))
    with pytest.raises(LogTruncated, match="orders-0 at position 7: the log was truncated from offset 4 on") as raised:
        state.partitions.complete_validation(ORDERS, state.partitions[ORDERS].position, 3, 4)
    assert raised.value.diverging == OffsetAndMetadata(4, 3)
    assert state.partitions[ORDERS].phase is Phase.AWAITING_VALIDATION
    with pytest.raises(LogTruncated) as raised:
        state.partitions.complete_validation(ORDERS, state.partitions[ORDERS].position, -1, -1)
    assert raised.value.diverging is None


def test_truncated_log_with_a_policy_continues_at_the_diverging_offset() -> None:
    state = reading(FetchPosition(7, 5, NEW), RESET_TO_LATEST)
    state.partitions.complete_validation(ORDERS, state.partitions[ORDERS].position, 3, 4)
    assert state.partitions[ORDERS].phase is Phase.FETCHING
    assert state.partitions[ORDERS].position == FetchPosition(4, 3, NEW)


def test_position_unknown_to_the_leader_with_a_policy_is_reset() -> None:
    state = reading(FetchPosition(7, 5, NEW), RESET_TO_LATEST)
    state.partitions.complete_validation(ORDERS, state.partitions[ORDERS].position, -1, -1)
    assert state.partitions[ORDERS].phase is Phase.AWAITING_RESET
    assert state.partitions[ORDERS].reset_policy == RESET_TO_LATEST


def test_response_for_a_position_changed_since_is_ignored() -> None:
    state = reading(FetchPosition(7, 5, NEW))
    requested = state.partitions[ORDERS].position
    state.partitions[ORDERS].seek(FetchPosition(2, 5, NEW))
    state.partitions.complete_validation(ORDERS, requested, 3, 4)
    assert state.partitions[ORDERS].phase is Phase.AWAITING_VALIDATION
    state.partitions[ORDERS].reset(RESET_TO_EARLIEST)
    state.partitions.complete_reset(ORDERS, RESET_TO_LATEST, FetchPosition(99))
    assert state.partitions[ORDERS].phase is Phase.AWAITING_RESET
    state.partitions.complete_reset(ORDERS, RESET_TO_EARLIEST, FetchPosition(1))
    assert state.partitions[ORDERS].position.offset == 1
    state.partitions.complete_reset(ORDERS, RESET_TO_EARLIEST, FetchPosition(50))
    state.partitions.complete_reset(CLICKS, RESET_TO_EARLIEST, FetchPosition(50))
    assert state.partitions[ORDERS].position.offset == 1


def test_partition_without_a_commit_and_a_policy_raises() -> None:
    state = SubscriptionState(NO_RESET)
    state.assign([ORDERS, CLICKS])
    state.partitions[CLICKS].seek(FetchPosition(0))
    with pytest.raises(NoOffsetForPartition, match="orders-0") as raised:
        state.partitions.reset_initializing([ORDERS, CLICKS])
    assert raised.value.partitions == {ORDERS}
    assert state.partitions[ORDERS].phase is Phase.INITIALIZING


# Time


def test_failed_lookup_waits_for_its_retry_time() -> None:
    state = SubscriptionState(RESET_TO_LATEST)
    state.assign([ORDERS])
    state.partitions.reset_initializing([ORDERS])
    assert set(state.partitions.in_phase(Phase.AWAITING_RESET, 0.0)) == {ORDERS}
    state.partitions.retry_later([ORDERS, CLICKS], 5.0)
    assert set(state.partitions.in_phase(Phase.AWAITING_RESET, 4.9)) == set()
    assert state.partitions.next_retry_at == 5.0
    assert set(state.partitions.in_phase(Phase.AWAITING_RESET, 5.0)) == {ORDERS}
    state.partitions[ORDERS].seek(FetchPosition(0))
    assert state.partitions.next_retry_at == math.inf


def test_preferred_replica_is_read_from_until_its_time() -> None:
    state = reading(FetchPosition(7, -1, OLD))
    state.partitions.prefer_replica(ORDERS, 3, until=10.0)
    state.partitions.prefer_replica(ORDERS, 3, until=99.0)
    assert state.partitions.read_replica(ORDERS, 10.0) == 3
    assert state.partitions.read_replica(ORDERS, 10.1) == 1
    state.partitions.prefer_replica(ORDERS, 3, until=20.0)
    state.partitions.follow_leaders(lambda _: NEW)
    assert state.partitions.read_replica(ORDERS, 15.0) == 2
