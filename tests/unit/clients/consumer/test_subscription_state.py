"""Phases, positions and the assignment, by themselves."""

import math
import re

import pytest

from oncelog.clients.consumer.consumer_errors import LogTruncated, NoOffsetForPartition
from oncelog.clients.consumer.subscription_state import (
    NO_LEADER,
    NO_RESET,
    RESET_TO_EARLIEST,
    RESET_TO_LATEST,
    FetchPosition,
    Leader,
    Phase,
    ResetPolicy,
    SubscriptionState,
)
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
    state[ORDERS].seek(position)
    return state


# The subscription


def test_there_is_one_kind_of_subscription_at_a_time() -> None:
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


def test_a_pattern_matches_whole_names() -> None:
    state = SubscriptionState(NO_RESET)
    state.subscribe_pattern(re.compile("order"))
    assert not state.match(["orders", "preorder"])
    assert state.match(["order", "orders"])
    assert not state.match(["order"])
    assert state.topics == {"order"}
    assert state.accepts([TopicPartition("order", 0)])
    assert not state.accepts([ORDERS])


def test_an_assignment_keeps_the_positions_of_what_stays() -> None:
    state = SubscriptionState(NO_RESET)
    state.subscribe(["orders", "clicks"])
    state.assign_from_group([ORDERS])
    state[ORDERS].seek(FetchPosition(7))
    state.assign_from_group([ORDERS, CLICKS])
    assert state[ORDERS].position.offset == 7
    assert state[CLICKS].phase is Phase.INITIALIZING
    state.assign_from_group([CLICKS])
    state.assign_from_group([ORDERS, CLICKS])
    assert state[ORDERS].phase is Phase.INITIALIZING
    with pytest.raises(IllegalState):
        _ = state[TopicPartition("orders", 1)]


def test_an_assignment_that_was_made_for_another_subscription_is_not_accepted() -> None:
    state = SubscriptionState(NO_RESET)
    state.subscribe(["orders"])
    assert state.accepts([ORDERS])
    assert not state.accepts([ORDERS, CLICKS])


def test_the_leader_needs_metadata_of_the_whole_groups_topics() -> None:
    state = SubscriptionState(NO_RESET)
    state.subscribe(["orders"])
    state.group_topics = frozenset({"clicks"})
    assert state.metadata_topics == {"orders", "clicks"}
    state.unsubscribe()
    state.assign([CLICKS])
    assert state.metadata_topics == {"clicks"}


# What may be fetched


def test_only_a_good_position_is_fetched_from() -> None:
    state = SubscriptionState(RESET_TO_LATEST)
    state.subscribe(["orders"])
    state.assign_from_group([ORDERS])
    assert not state.is_fetchable(ORDERS)
    state[ORDERS].seek(FetchPosition(3, 1, OLD))
    assert state[ORDERS].phase is Phase.AWAITING_VALIDATION
    assert not state.is_fetchable(ORDERS)
    state.complete_validation(ORDERS, state[ORDERS].position, 1, 9)
    assert state.is_fetchable(ORDERS)
    state[ORDERS].paused = True
    assert not state.is_fetchable(ORDERS)
    state[ORDERS].paused = False
    state.subscribe(["clicks"])
    assert not state.is_fetchable(ORDERS)
    state.subscribe(["orders"])
    state.mark_pending_revocation([ORDERS])
    assert not state.is_fetchable(ORDERS)
    assert state.consumed() == {ORDERS: OffsetAndMetadata(3, 1)}


def test_what_is_not_known_to_be_good_is_not_committed() -> None:
    state = reading(FetchPosition(3), RESET_TO_LATEST)
    state[ORDERS].reset(RESET_TO_LATEST)
    assert state.consumed() == {}
    assert not state.has_all_positions


# Leaders


def test_a_new_leader_has_a_position_validated_whose_epoch_is_known() -> None:
    state = reading(FetchPosition(7, 5, OLD))
    state.complete_validation(ORDERS, state[ORDERS].position, 5, 7)
    state.follow_leaders(lambda _: OLD)
    assert state[ORDERS].phase is Phase.FETCHING
    state.follow_leaders(lambda _: NO_LEADER)
    assert state[ORDERS].phase is Phase.FETCHING
    state.follow_leaders(lambda _: NEW)
    assert state[ORDERS].phase is Phase.AWAITING_VALIDATION
    assert state[ORDERS].position == FetchPosition(7, 5, NEW)


def test_a_position_without_an_epoch_is_trusted() -> None:
    state = reading(FetchPosition(7, -1, OLD))
    state.follow_leaders(lambda _: NEW)
    assert state[ORDERS].phase is Phase.FETCHING
    assert state[ORDERS].position.leader == NEW


def test_who_waits_for_a_reset_does_not_mind_new_leaders() -> None:
    state = reading(FetchPosition(7, 5, OLD), RESET_TO_LATEST)
    state[ORDERS].reset(RESET_TO_EARLIEST)
    state.follow_leaders(lambda _: NEW)
    assert state[ORDERS].phase is Phase.AWAITING_RESET


@pytest.mark.parametrize(("end_epoch", "end_offset"), [(5, 7), (5, 9), (4, 7)])
def test_an_epoch_that_ends_at_or_after_the_position_confirms_it(end_epoch: int, end_offset: int) -> None:
    state = reading(FetchPosition(7, 5, NEW))
    state.complete_validation(ORDERS, state[ORDERS].position, end_epoch, end_offset)
    assert state[ORDERS].phase is Phase.FETCHING
    assert state[ORDERS].position.offset == 7


def test_a_truncated_log_is_an_error_that_says_from_where() -> None:
    state = reading(FetchPosition(7, 5, NEW))
    with pytest.raises(LogTruncated, match="orders-0 at position 7: the log was truncated from offset 4 on") as raised:
        state.complete_validation(ORDERS, state[ORDERS].position, 3, 4)
    assert raised.value.diverging == OffsetAndMetadata(4, 3)
    assert state[ORDERS].phase is Phase.AWAITING_VALIDATION
    with pytest.raises(LogTruncated) as raised:
        state.complete_validation(ORDERS, state[ORDERS].position, -1, -1)
    assert raised.value.diverging is None


def test_with_a_policy_reading_goes_on_where_the_logs_part() -> None:
    state = reading(FetchPosition(7, 5, NEW), RESET_TO_LATEST)
    state.complete_validation(ORDERS, state[ORDERS].position, 3, 4)
    assert state[ORDERS].phase is Phase.FETCHING
    assert state[ORDERS].position == FetchPosition(4, 3, NEW)


def test_with_a_policy_a_place_that_the_leader_does_not_know_is_looked_for() -> None:
    state = reading(FetchPosition(7, 5, NEW), RESET_TO_LATEST)
    state.complete_validation(ORDERS, state[ORDERS].position, -1, -1)
    assert state[ORDERS].phase is Phase.AWAITING_RESET
    assert state[ORDERS].reset_policy == RESET_TO_LATEST


def test_an_answer_about_a_position_that_has_changed_since_is_nothing() -> None:
    state = reading(FetchPosition(7, 5, NEW))
    asked = state[ORDERS].position
    state[ORDERS].seek(FetchPosition(2, 5, NEW))
    state.complete_validation(ORDERS, asked, 3, 4)
    assert state[ORDERS].phase is Phase.AWAITING_VALIDATION
    state[ORDERS].reset(RESET_TO_EARLIEST)
    state.complete_reset(ORDERS, RESET_TO_LATEST, FetchPosition(99))
    assert state[ORDERS].phase is Phase.AWAITING_RESET
    state.complete_reset(ORDERS, RESET_TO_EARLIEST, FetchPosition(1))
    assert state[ORDERS].position.offset == 1
    state.complete_reset(ORDERS, RESET_TO_EARLIEST, FetchPosition(50))
    state.complete_reset(CLICKS, RESET_TO_EARLIEST, FetchPosition(50))
    assert state[ORDERS].position.offset == 1


def test_without_a_policy_a_partition_without_a_commit_is_an_error() -> None:
    state = SubscriptionState(NO_RESET)
    state.assign([ORDERS, CLICKS])
    state[CLICKS].seek(FetchPosition(0))
    with pytest.raises(NoOffsetForPartition, match="orders-0") as raised:
        state.reset_initializing([ORDERS, CLICKS])
    assert raised.value.partitions == {ORDERS}
    assert state[ORDERS].phase is Phase.INITIALIZING


# Time


def test_a_question_that_failed_waits_for_its_time() -> None:
    state = SubscriptionState(RESET_TO_LATEST)
    state.assign([ORDERS])
    state.reset_initializing([ORDERS])
    assert set(state.in_phase(Phase.AWAITING_RESET, 0.0)) == {ORDERS}
    state.retry_later([ORDERS, CLICKS], 5.0)
    assert set(state.in_phase(Phase.AWAITING_RESET, 4.9)) == set()
    assert state.next_retry_at == 5.0
    assert set(state.in_phase(Phase.AWAITING_RESET, 5.0)) == {ORDERS}
    state[ORDERS].seek(FetchPosition(0))
    assert state.next_retry_at == math.inf


def test_a_preferred_replica_is_read_from_for_its_time() -> None:
    state = reading(FetchPosition(7, -1, OLD))
    state.prefer_replica(ORDERS, 3, until=10.0)
    state.prefer_replica(ORDERS, 3, until=99.0)
    assert state.read_replica(ORDERS, 10.0) == 3
    assert state.read_replica(ORDERS, 10.1) == 1
    state.prefer_replica(ORDERS, 3, until=20.0)
    state.follow_leaders(lambda _: NEW)
    assert state.read_replica(ORDERS, 15.0) == 2
