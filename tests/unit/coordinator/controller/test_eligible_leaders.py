"""Eligible leader replicas: who may lead a partition, and what its state remembers of those that left the ISR."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.coordinator.controller.eligible_leaders import next_state, with_eligible, without_eligible
from oncelog.coordinator.controller.log_ends import LogEnd
from oncelog.coordinator.controller.recovery_strategy import RecoveryStrategy
from oncelog.coordinator.controller.standing import Standing
from oncelog.coordinator.metadata_store.znodes import LeaderRecoveryState, PartitionState

REPLICAS = (1, 2, 3)
STATE = PartitionState(leader=1, leader_epoch=5, isr=(1, 2, 3), controller_epoch=1, epochs={1: 11, 2: 12, 3: 13})
ALONE = replace(STATE, isr=(1,), elr=(3,), epochs={1: 11, 3: 13})
GONE = replace(ALONE, leader=NO_LEADER, last_leader=1)


def standing(
    *registered: int,
    usable: Collection[int] | None = None,
    broken: Collection[int] = (),
    min_isr: int = 2,
    ends: Mapping[int, LogEnd] | None = None,
) -> Standing:
    """Broker n has the broker epoch 10 + n."""
    return Standing(
        replicas=REPLICAS,
        incarnations={broker: 10 + broker for broker in registered},
        usable=registered if usable is None else usable,
        broken=broken,
        min_isr=min_isr,
        controller_epoch=2,
        log_ends=ends or {},
    )


def decide(
    state: PartitionState,
    seen: Standing,
    *,
    restarted: bool = False,
    strategy: RecoveryStrategy = RecoveryStrategy.NONE,
    waited: bool = False,
) -> PartitionState | None:
    return next_state(state, seen, leader_restarted=restarted, strategy=strategy, waited=waited)


def decided(
    state: PartitionState,
    seen: Standing,
    *,
    strategy: RecoveryStrategy = RecoveryStrategy.NONE,
    waited: bool = False,
) -> PartitionState:
    found = decide(state, seen, strategy=strategy, waited=waited)
    assert found is not None
    return found


def test_state_stays_while_its_members_are_there() -> None:
    assert decide(STATE, standing(1, 2, 3)) is None
    assert decide(ALONE, standing(1, 2, 3)) is None


def test_member_that_leaves_an_isr_that_is_large_enough_is_not_eligible() -> None:
    state = decided(STATE, standing(1, 2))
    assert (state.leader, state.isr, state.elr, state.epochs) == (1, (1, 2), (), {1: 11, 2: 12})


def test_member_that_leaves_an_isr_below_its_minimum_is_eligible() -> None:
    """B57: what is acknowledged later needs an ISR that is large enough, so it goes on having everything."""
    state = decided(replace(STATE, isr=(1, 3)), standing(1, 2, usable=(1, 2)))
    assert (state.leader, state.isr, state.elr, state.epochs) == (1, (1,), (3,), {1: 11, 3: 13})


def test_eligible_replica_leads_when_no_in_sync_replica_can() -> None:
    """B57: the ISR is that one, and the leader before it is eligible in its place."""
    state = decided(ALONE, standing(2, 3))
    assert (state.leader, state.isr, state.elr, state.leader_epoch) == (3, (3,), (1,), 6)
    assert state.epochs == {3: 13, 1: 11}
    assert state.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_broken_member_neither_leads_nor_is_eligible() -> None:
    """B57: it may lack what is acknowledged."""
    state = decided(replace(STATE, leader=NO_LEADER, isr=(1, 2)), standing(1, 2, 3, broken=(1,)))
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (2, (2,), (), (1,))


def test_broken_member_is_known_last_until_the_isr_is_large_enough_again() -> None:
    state = decided(ALONE, standing(1, 2, 3, broken=(3,)))
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (1, (1,), (), (3,))
    assert decide(state, standing(1, 2, 3)) is None
    assert decided(state, standing(2)).last_known_elr == (3,)
    assert with_eligible(replace(state, isr=(1, 2)), state, standing(1, 2, 3)).last_known_elr == ()
    other = decided(replace(state, elr=(2,)), standing(2, 3))
    assert (other.leader, other.elr, other.last_known_elr) == (2, (1,), (3,))
    moved = standing(1, 2)._replace(replicas=(1, 2))
    assert with_eligible(replace(state, leader_epoch=7), state, moved).last_known_elr == ()


def test_lower_minimum_clears_what_was_known_last() -> None:
    state = decided(replace(ALONE, elr=(), last_known_elr=(3,)), standing(1, 2, 3, min_isr=1))
    assert (state.leader, state.isr, state.last_known_elr, state.leader_epoch) == (1, (1,), (), 6)


def test_partition_waits_while_an_absent_member_may_be_whole() -> None:
    """B57: neither a broken member nor a replica that was behind leads meanwhile."""
    waiting = decided(ALONE, standing(1, 2, broken=(1,)))
    assert waiting == replace(ALONE, leader=NO_LEADER, leader_epoch=6, controller_epoch=2, last_leader=1)
    assert decide(waiting, standing(1, 2, broken=(1,))) is None
    back = decided(waiting, standing(1, 2, 3, broken=(1,)))
    assert (back.leader, back.isr, back.elr, back.last_leader) == (3, (3,), (), None)


def test_last_leader_is_elected_when_every_member_is_back_and_broken() -> None:
    state = decided(GONE, standing(1, 2, 3, broken=(1, 3)))
    assert (state.leader, state.isr, state.elr, state.epochs) == (1, (1,), (), {1: 11})
    assert state.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_longest_log_leads_among_those_that_are_back_and_broken() -> None:
    known = replace(GONE, isr=(1,), elr=(), last_known_elr=(3,))
    ends = {1: LogEnd(5, 20), 2: LogEnd(5, 25), 3: LogEnd(5, 30)}
    assert decided(known, standing(1, broken=(1,))).leader == 1
    assert decide(known, standing(1, broken=(1,)), strategy=RecoveryStrategy.BALANCED) is None
    state = decided(known, standing(1, 2, 3, broken=(1,), ends=ends), strategy=RecoveryStrategy.BALANCED)
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (3, (3,), (), (1,))
    assert (state.epochs, state.leader_recovery_state) == ({3: 13}, LeaderRecoveryState.RECOVERING)


def test_leader_that_breaks_before_the_isr_is_large_enough_is_compared_with_the_others_again() -> None:
    """B110: without waiting again for those that were not there."""
    known = replace(GONE, isr=(1,), elr=(), last_known_elr=(3,))
    longest = RecoveryStrategy.LONGEST_LOG
    state = decided(known, standing(1, 2, broken=(1,), ends={1: LogEnd(5, 20)}), strategy=longest, waited=True)
    assert (state.leader, state.isr, state.last_known_elr) == (1, (1,), (2,))
    broken = decided(state, standing(1, 2, broken=(1,)), strategy=RecoveryStrategy.BALANCED)
    assert (broken.leader, broken.leader_epoch) == (NO_LEADER, state.leader_epoch + 1)
    ends = {1: LogEnd(5, 10), 2: LogEnd(5, 15)}
    again = decided(broken, standing(1, 2, broken=(1,), ends=ends), strategy=RecoveryStrategy.BALANCED)
    assert (again.leader, again.last_known_elr) == (2, (1,))
    alone = decided(known, standing(1, 2, 3, broken=(1,), min_isr=1), strategy=longest, waited=True)
    assert alone.last_known_elr == ()


def test_partition_has_no_leader_while_log_ends_are_reported() -> None:
    """The reports are about a state without a leader: nothing changes the logs then."""
    waiting = decided(ALONE, standing(1, 3, broken=(1, 3)), strategy=RecoveryStrategy.BALANCED)
    assert (waiting.leader, waiting.last_leader, waiting.leader_epoch) == (NO_LEADER, 1, 6)


def test_unclean_election_after_the_wait_prefers_the_last_leader() -> None:
    longest = RecoveryStrategy.LONGEST_LOG
    assert decide(GONE, standing(1, 2, broken=(1,)), strategy=longest) is None
    assert decided(GONE, standing(1, 2, broken=(1,)), strategy=longest, waited=True).leader == 1
    state = decided(GONE, standing(2), strategy=longest, waited=True)
    assert (state.leader, state.leader_recovery_state) == (2, LeaderRecoveryState.RECOVERING)


def test_sole_replica_that_is_broken_leads_without_recovery() -> None:
    lone = replace(STATE, isr=(1,), epochs={1: 5})
    seen = standing(1, broken=(1,))._replace(replicas=(1,))
    state = decided(lone, seen)
    assert (state.leader, state.epochs) == (1, {1: 11})
    assert state.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_lower_minimum_clears_the_eligible_replicas_with_a_new_leader_epoch() -> None:
    """B57: from then on the leader acknowledges alone, and the others fall behind."""
    state = decided(ALONE, standing(1, 2, 3, min_isr=1))
    assert (state.leader, state.isr, state.elr, state.leader_epoch) == (1, (1,), (), 6)


def test_minimum_is_capped_by_the_number_of_replicas() -> None:
    two = standing(1, min_isr=3)._replace(replicas=(1, 2))
    state = replace(STATE, isr=(1, 2), epochs={1: 11, 2: 12})
    assert decided(state, two).elr == (2,)
    assert with_eligible(replace(state, isr=(2, 1)), replace(state, elr=(3,)), two).elr == ()


def test_replica_that_is_not_assigned_any_more_is_not_eligible() -> None:
    moved = standing(1, 2)._replace(replicas=(1, 2))
    assert with_eligible(replace(ALONE, leader_epoch=6), ALONE, moved).elr == ()


def test_growing_isr_clears_the_eligible_replicas() -> None:
    state = with_eligible(replace(ALONE, isr=(1, 2)), ALONE, standing(1, 2, 3))
    assert (state.elr, state.epochs) == ((), {1: 11, 2: 12})


def test_members_keep_their_recorded_epoch_while_they_are_away() -> None:
    """B57: else a restart that the controller has not seen would count as known."""
    seen = standing(1, 2, 3)._replace(incarnations={1: 31, 2: 32})
    state = with_eligible(replace(STATE, isr=(1,)), STATE, seen)
    assert state.epochs == {1: 11, 2: 32, 3: 13}
    assert with_eligible(replace(STATE, isr=(1,), leader_epoch=6), STATE, seen).epochs[1] == 31


def test_members_of_a_state_without_epochs_that_are_away_are_judged_as_before() -> None:
    """B57: the level was raised since, and they may well have everything."""
    legacy = replace(STATE, epochs={})
    seen = standing(3)._replace(written_at=50)
    state = decided(legacy, seen)
    assert (state.leader, state.isr, state.elr, state.epochs, state.judged_at) == (3, (3,), (1, 2), {3: 13}, 50)
    gone = decided(state, standing()._replace(written_at=60))
    assert (gone.leader, gone.elr, gone.judged_at) == (NO_LEADER, (1, 2), 50)
    back = decided(gone, standing(1)._replace(written_at=70))
    assert (back.leader, back.epochs, back.judged_at) == (1, {1: 11, 3: 13}, 50)
    whole = decided(back, standing(1, 2)._replace(written_at=80, min_isr=1))
    assert (whole.isr, whole.epochs, whole.judged_at) == ((1,), {1: 11}, None)


def test_waiting_partition_without_epochs_is_judged_by_the_state_before_it_waited() -> None:
    """B57: a member that lost its log registered before that was written, and must not count as whole since then."""
    waiting = decided(replace(STATE, epochs={}), standing()._replace(written_at=50))
    assert (waiting.leader, waiting.epochs, waiting.judged_at) == (NO_LEADER, {}, 50)
    assert without_eligible(waiting).judged_at is None


def test_state_without_eligible_replicas_waits_for_any_member() -> None:
    """A downgrade: the former rule elects any member of the ISR."""
    state = without_eligible(GONE)
    assert state == PartitionState(leader=NO_LEADER, leader_epoch=5, isr=(1, 3), controller_epoch=1)
    assert without_eligible(ALONE) == PartitionState(leader=1, leader_epoch=5, isr=(1,), controller_epoch=1)


sets = st.frozensets(st.integers(1, 4))


@given(
    isr=st.permutations([1, 2, 3]).flatmap(lambda order: st.integers(1, 3).map(lambda n: tuple(order[:n]))),
    elr=sets,
    has_leader=st.booleans(),
    registered=sets,
    unreachable=sets,
    broken=sets,
    restarted=st.booleans(),
    min_isr=st.integers(1, 3),
    last_known=sets,
    ends=st.dictionaries(st.integers(1, 4), st.builds(LogEnd, st.integers(1, 3), st.integers(0, 5))),
    strategy=st.sampled_from([RecoveryStrategy.NONE, RecoveryStrategy.BALANCED]),
    waited=st.booleans(),
)
def test_next_state_elects_only_whole_members_and_is_final(
    isr: tuple[int, ...],
    elr: frozenset[int],
    has_leader: bool,
    registered: frozenset[int],
    unreachable: frozenset[int],
    broken: frozenset[int],
    restarted: bool,
    min_isr: int,
    last_known: frozenset[int],
    ends: dict[int, LogEnd],
    strategy: RecoveryStrategy,
    waited: bool,
) -> None:
    eligible = tuple(sorted((elr - set(isr)) & set(REPLICAS))) if len(isr) < min_isr else ()
    members = {*isr, *eligible}
    known = tuple(sorted(last_known - members)) if len(isr) < min_isr else ()
    before = replace(STATE, leader=isr[0] if has_leader else NO_LEADER, isr=isr, elr=eligible, last_known_elr=known)
    hurt, reliable = broken & registered & members, registered - unreachable
    usable = registered if reliable.isdisjoint(members - hurt) else reliable
    seen = standing(*registered, usable=usable, broken=hurt, min_isr=min_isr, ends=ends)
    after = decide(before, seen, restarted=restarted, strategy=strategy, waited=waited)
    if after is None:
        return
    whole = members - seen.broken
    assert after.leader_epoch == before.leader_epoch + 1
    if after.leader_recovery_state is LeaderRecoveryState.RECOVERED:
        assert after.leader in {NO_LEADER, *whole}
        assert {*after.isr, *after.elr} <= members
        lost_sight_of = members - {*after.isr, *after.elr}
        assert after.leader == NO_LEADER or len(after.isr) >= seen.effective_min_isr or not lost_sight_of & whole
    else:
        assert not whole
    later = seen._replace(broken=seen.broken - {after.leader})
    if after.leader != NO_LEADER:
        assert decide(after, later, strategy=strategy) is None


@pytest.mark.parametrize("strategy", list(RecoveryStrategy))
def test_partition_whose_members_are_all_away_keeps_them(strategy: RecoveryStrategy) -> None:
    state = decided(STATE, standing(), strategy=strategy, waited=True)
    assert (state.leader, state.isr, state.epochs, state.last_leader) == (NO_LEADER, STATE.isr, STATE.epochs, 1)
