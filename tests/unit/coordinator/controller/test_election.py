"""Elections: what each rule decides, and what holds after every decision."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.coordinator.controller.election import initial_state, is_unclean, next_state
from oncelog.coordinator.metadata_store.znodes import LeaderRecoveryState, PartitionState

STATE = PartitionState(leader=1, leader_epoch=5, isr=(1, 2, 3), controller_epoch=1)


def decide(
    up: set[int], state: PartitionState = STATE, *, restarted: bool = False, unclean: bool = False
) -> PartitionState | None:
    return next_state(state, (1, 2, 3), up, 2, leader_restarted=restarted, unclean_allowed=unclean)


def test_new_partition_is_led_by_its_first_live_replica() -> None:
    assert initial_state((3, 1, 2), {1, 2}, 7) == PartitionState(
        leader=1, leader_epoch=0, isr=(1, 2), controller_epoch=7
    )
    assert initial_state((3,), {1, 2}, 7) is None


def test_partition_state_stays_while_the_isr_is_up() -> None:
    assert decide({1, 2, 3, 4}) is None


def test_dead_follower_leaves_the_isr_and_the_leader_stays() -> None:
    assert decide({1, 3}) == replace(STATE, leader_epoch=6, isr=(1, 3), controller_epoch=2)


def test_first_live_replica_in_sync_is_elected() -> None:
    assert decide({2, 3}) == replace(STATE, leader=2, leader_epoch=6, isr=(2, 3), controller_epoch=2)
    behind = replace(STATE, isr=(1, 3))
    assert decide({2, 3}, behind) == replace(STATE, leader=3, leader_epoch=6, isr=(3,), controller_epoch=2)


def test_restarted_leader_is_elected_anew() -> None:
    assert decide({1, 2, 3}, restarted=True) == replace(STATE, leader_epoch=6, controller_epoch=2)


def test_partition_without_live_in_sync_replica_has_no_leader_and_keeps_its_isr() -> None:
    behind = replace(STATE, isr=(1, 2))
    gone = decide({3}, behind)
    assert gone == replace(behind, leader=NO_LEADER, leader_epoch=6, controller_epoch=2)
    assert decide({3}, gone) is None
    back = decide({2, 3}, gone)
    assert back == replace(behind, leader=2, leader_epoch=7, isr=(2,), controller_epoch=2)


def test_election_of_a_replica_that_may_lack_records_is_unclean() -> None:
    behind = replace(STATE, isr=(1,))
    unclean = decide({3}, behind, unclean=True)
    assert unclean is not None
    assert is_unclean(behind, unclean)
    assert is_unclean(behind, replace(behind, leader_epoch=6, leader_recovery_state=LeaderRecoveryState.RECOVERING))
    from_elr = replace(behind, leader=3, leader_epoch=6, isr=(3,))
    assert is_unclean(behind, from_elr)
    assert not is_unclean(replace(behind, elr=(3,)), from_elr)
    assert not is_unclean(STATE, replace(STATE, leader=2, leader_epoch=6, isr=(2, 3)))
    assert not is_unclean(unclean, replace(unclean, leader_epoch=7))
    assert not is_unclean(behind, replace(behind, leader=NO_LEADER, leader_epoch=6))


def test_election_of_a_damaged_member_while_recovering_is_unclean_again() -> None:
    before = replace(STATE, isr=(1,), leader_recovery_state=LeaderRecoveryState.RECOVERING)
    again = replace(before, leader_epoch=6)
    assert is_unclean(before, again, broken={1})
    assert not is_unclean(before, again)
    assert not is_unclean(before, replace(again, leader_recovery_state=LeaderRecoveryState.RECOVERED), broken={1})


def test_unclean_election_makes_the_leader_the_isr_and_marks_it() -> None:
    behind = replace(STATE, isr=(1,))
    assert decide({3}, behind, unclean=True) == PartitionState(
        leader=3,
        leader_epoch=6,
        isr=(3,),
        controller_epoch=2,
        leader_recovery_state=LeaderRecoveryState.RECOVERING,
    )
    assert decide(set(), behind, unclean=True) == replace(behind, leader=NO_LEADER, leader_epoch=6, controller_epoch=2)


replica_sets = st.sets(st.integers(1, 4))


@given(
    isr=st.permutations([1, 2, 3]).flatmap(lambda order: st.integers(1, 3).map(lambda n: tuple(order[:n]))),
    has_leader=st.booleans(),
    up=replica_sets,
    restarted=st.booleans(),
    unclean=st.booleans(),
)
def test_next_state_is_safe_and_final(
    isr: tuple[int, ...], has_leader: bool, up: set[int], restarted: bool, unclean: bool
) -> None:
    """A leader is up and in sync, epochs only grow, and deciding again changes nothing."""
    state = PartitionState(leader=isr[0] if has_leader else NO_LEADER, leader_epoch=3, isr=isr, controller_epoch=1)
    decided = decide(up, state, restarted=restarted and has_leader, unclean=unclean)
    after = decided or state
    if after.leader != NO_LEADER:
        assert after.leader in up
        assert after.leader in after.isr
        assert set(after.isr) <= up
    assert after.isr
    assert set(after.isr) <= set(isr) or after.leader_recovery_state is LeaderRecoveryState.RECOVERING
    if set(isr) & up:
        assert after.leader in isr
    if decided is not None:
        assert decided.leader_epoch == 4
        assert decided.controller_epoch == 2
        assert decide(up, decided, unclean=unclean) is None


@pytest.mark.parametrize("up", [set(), {3}])
def test_clean_election_never_leaves_the_isr(up: set[int]) -> None:
    decided = decide(up, replace(STATE, isr=(1, 2)))
    assert decided is not None
    assert decided.leader == NO_LEADER
