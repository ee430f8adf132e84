"""The table of group states."""

from itertools import product

import pytest

from oncelog.coordinator.group.membership import validate_offset_commit
from oncelog.coordinator.group.state import TRANSITIONS, GroupState, format_transitions
from oncelog.protocol.errors import ErrorCode
from tests.unit.coordinator.group.group_driver import Driver

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


def in_state(state: GroupState) -> tuple[Driver, str, str]:
    """A group in ``state``, its leader and another member (former ones, where there are none now)."""
    driver = Driver()
    leader, other = driver.stable(2)
    match state:
        case GroupState.PREPARING_REBALANCE:
            driver.join()
        case GroupState.COMPLETING_REBALANCE:
            driver.join(leader)
            driver.join(other)
        case GroupState.EMPTY:
            driver.leave((leader, None), (other, None))
        case GroupState.DEAD:
            driver.carry_out(driver.group.retire())
    assert driver.state is state
    return driver, leader, other


@pytest.mark.parametrize(("before", "after"), product(GroupState, GroupState))
def test_transition_outside_the_table_never_happens(before: GroupState, after: GroupState) -> None:
    driver, _, _ = in_state(before)
    if after in TRANSITIONS[before]:
        driver.group._become(after)
        assert driver.state is after
    else:
        with pytest.raises(AssertionError):
            driver.group._become(after)


def test_table_is_apache_kafkas() -> None:
    assert format_transitions().splitlines() == [
        "Empty                -> PreparingRebalance, Dead",
        "PreparingRebalance   -> Empty, CompletingRebalance, Dead",
        "CompletingRebalance  -> PreparingRebalance, Stable, Dead",
        "Stable               -> PreparingRebalance, Dead",
        "Dead                 -> (final)",
    ]


def test_state_is_reachable_and_dead_alone_is_final() -> None:
    reachable = set().union(*TRANSITIONS.values()) | {EMPTY}
    assert reachable == set(GroupState)
    assert [state for state in GroupState if not TRANSITIONS[state]] == [DEAD]


OK = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS

HEARTBEATS = {EMPTY: UNKNOWN, PREPARING: REBALANCING, COMPLETING: OK, STABLE: OK}
FOLLOWER_SYNCS = {EMPTY: UNKNOWN, PREPARING: REBALANCING, COMPLETING: None, STABLE: OK}
LEADER_SYNCS = {EMPTY: UNKNOWN, PREPARING: REBALANCING, COMPLETING: OK, STABLE: OK}
NEW_JOINS = {EMPTY: OK, PREPARING: None, COMPLETING: None, STABLE: None}
UNCHANGED_FOLLOWER_JOINS = {EMPTY: UNKNOWN, PREPARING: None, COMPLETING: OK, STABLE: OK}
LEADER_JOINS = {EMPTY: UNKNOWN, PREPARING: None, COMPLETING: OK, STABLE: None}
CHANGED_FOLLOWER_JOINS = {EMPTY: UNKNOWN, PREPARING: None, COMPLETING: None, STABLE: None}
LEAVES = {EMPTY: UNKNOWN, PREPARING: OK, COMPLETING: OK, STABLE: OK}
STATE_AFTER_LEAVE = {EMPTY: EMPTY, PREPARING: PREPARING, COMPLETING: PREPARING, STABLE: PREPARING}
MEMBER_COMMITS = {EMPTY: UNKNOWN, PREPARING: OK, COMPLETING: REBALANCING, STABLE: OK}
MEMBER_TXN_COMMITS = {EMPTY: UNKNOWN, PREPARING: OK, COMPLETING: OK, STABLE: OK}
SIMPLE_COMMITS = {EMPTY: OK, PREPARING: UNKNOWN, COMPLETING: UNKNOWN, STABLE: UNKNOWN}
SIMPLE_TXN_COMMITS = {EMPTY: OK, PREPARING: OK, COMPLETING: OK, STABLE: OK}
LIVE = [state for state in GroupState if state is not DEAD]


def respond(results: list[object]) -> object:
    """None while the request is parked."""
    return getattr(results[0], "error", None) if results else None


@pytest.mark.parametrize("state", LIVE)
def test_request_in_each_state_gets_expected_error(state: GroupState) -> None:
    driver, leader, other = in_state(state)
    assert driver.heartbeat(other) is HEARTBEATS[state]
    driver, leader, other = in_state(state)
    assert respond(driver.sync(other).results) is FOLLOWER_SYNCS[state]
    driver, leader, other = in_state(state)
    assert respond(driver.sync(leader).results) is LEADER_SYNCS[state]
    driver, leader, other = in_state(state)
    assert respond(driver.join().results) is NEW_JOINS[state]
    driver, leader, other = in_state(state)
    assert respond(driver.join(other).results) is UNCHANGED_FOLLOWER_JOINS[state]
    driver, leader, other = in_state(state)
    assert respond(driver.join(leader).results) is LEADER_JOINS[state]
    driver, leader, other = in_state(state)
    assert respond(driver.join(other, protocols=("range", "sticky")).results) is CHANGED_FOLLOWER_JOINS[state]
    driver, leader, other = in_state(state)
    assert driver.leave((other, None)) == [LEAVES[state]]
    assert driver.state is STATE_AFTER_LEAVE[state]


@pytest.mark.parametrize("state", LIVE)
def test_committer_in_each_state_gets_expected_error(state: GroupState) -> None:
    driver, _, other = in_state(state)
    group = driver.group
    generation = group.generation
    assert validate_offset_commit(group, other, None, generation, transactional=False) is MEMBER_COMMITS[state]
    assert validate_offset_commit(group, other, None, generation, transactional=True) is MEMBER_TXN_COMMITS[state]
    assert validate_offset_commit(group, "", None, -1, transactional=False) is SIMPLE_COMMITS[state]
    assert validate_offset_commit(group, "", None, -1, transactional=True) is SIMPLE_TXN_COMMITS[state]
