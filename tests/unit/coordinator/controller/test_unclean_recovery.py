"""Which replica leads when none certainly has everything, and what the partition waits for: every strategy."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.coordinator.controller.log_ends import LogEnd
from oncelog.coordinator.controller.recovery_strategy import RecoveryStrategy
from oncelog.coordinator.controller.standing import Standing
from oncelog.coordinator.controller.unclean_recovery import Recovery, recovery_of
from oncelog.coordinator.metadata_store.znodes import PartitionState

NONE, BALANCED, LONGEST = RecoveryStrategy.NONE, RecoveryStrategy.BALANCED, RecoveryStrategy.LONGEST_LOG
GONE = PartitionState(
    leader=NO_LEADER, leader_epoch=6, isr=(2,), controller_epoch=1, elr=(1,), last_leader=2, last_known_elr=(3,)
)
"""Broker 2 led, 1 is eligible, 3 was known last, and 4 has been behind for long."""
SHORT, LONG, LATER, EMPTIED = LogEnd(5, 10), LogEnd(5, 30), LogEnd(6, 20), LogEnd(-1, 25)


def standing(
    *registered: int,
    broken: Collection[int] = (1, 2),
    ends: Mapping[int, LogEnd] | None = None,
    unreachable: Collection[int] = (),
) -> Standing:
    return Standing(
        replicas=(1, 2, 3, 4),
        incarnations={broker: 10 + broker for broker in registered},
        usable=registered,
        broken=[each for each in broken if each in registered],
        min_isr=2,
        controller_epoch=2,
        unreachable=unreachable,
        log_ends=ends or {},
    )


def leaders(strategy: RecoveryStrategy, seen: Standing, state: PartitionState = GONE) -> tuple[int | None, int | None]:
    """The replica that is elected at once, and after the bounded time."""
    recovery = recovery_of(state, seen, strategy)
    return recovery.leader(waited=False), recovery.leader(waited=True)


@pytest.mark.parametrize(
    ("strategy", "seen", "elected"),
    [
        # No broker is there.
        (NONE, standing(), (None, None)),
        (BALANCED, standing(), (None, None)),
        (LONGEST, standing(), (None, None)),
        # A member of ISR or ELR may be intact, and is away: only the longest log does not wait.
        (NONE, standing(2, 3, ends={2: SHORT, 3: LONG}), (None, None)),
        (BALANCED, standing(2, 3, ends={2: SHORT, 3: LONG}), (None, None)),
        (LONGEST, standing(2, 3, ends={2: SHORT, 3: LONG}), (None, 3)),
        (BALANCED, standing(1, 2, 3, broken=(2,), ends={1: SHORT, 2: SHORT, 3: LONG}), (None, None)),
        # All members of ISR and ELR are back and broken; the one that was known last is away.
        (NONE, standing(1, 2, ends={1: LONG, 2: SHORT}), (2, 2)),
        (BALANCED, standing(1, 2, ends={1: LONG, 2: SHORT}), (None, None)),
        (LONGEST, standing(1, 2, ends={1: LONG, 2: SHORT}), (None, 1)),
        # That one is back, too, and every one reports: no need to wait, but for the one that has been behind.
        (NONE, standing(1, 2, 3, ends={1: SHORT, 2: SHORT, 3: LONG}), (2, 2)),
        (BALANCED, standing(1, 2, 3, ends={1: SHORT, 2: SHORT, 3: LONG}), (3, 3)),
        (LONGEST, standing(1, 2, 3, ends={1: SHORT, 2: SHORT, 3: LONG}), (None, 3)),
        (LONGEST, standing(1, 2, 3, 4, ends={1: SHORT, 2: SHORT, 3: LONG, 4: SHORT}), (3, 3)),
        # A later epoch goes before a higher offset; equal logs: the last leader.
        (BALANCED, standing(1, 2, 3, ends={1: LONG, 2: SHORT, 3: LATER}), (3, 3)),
        (BALANCED, standing(1, 2, 3, ends={1: LONG, 2: LONG, 3: LONG}), (2, 2)),
        # A replica that has been behind is compared if it is there: the others may have lost more.
        (BALANCED, standing(1, 2, 3, 4, ends={1: SHORT, 2: SHORT, 3: SHORT, 4: LONG}), (4, 4)),
        (BALANCED, standing(1, 2, 3, 4, ends={1: LONG, 2: SHORT, 3: SHORT, 4: SHORT}), (1, 1)),
        (BALANCED, standing(1, 2, 3, 4, ends={1: LONG, 2: SHORT, 3: SHORT}), (None, 1)),
        (BALANCED, standing(1, 2, 3, 4, ends={1: LONG, 2: SHORT, 3: SHORT}, unreachable={4}), (1, 1)),
        (BALANCED, standing(2, 3, 4, ends={2: SHORT, 3: SHORT, 4: LONG}), (None, None)),
        (BALANCED, standing(1, 2, 3, 4, ends={1: SHORT, 2: SHORT, 4: LONG}), (None, 2)),
        (LONGEST, standing(1, 2, 3, 4, ends={1: SHORT, 2: SHORT, 3: SHORT, 4: LONG}), (4, 4)),
        # One that is there reports nothing: after the wait it counts as the shortest.
        (BALANCED, standing(1, 2, 3, ends={1: SHORT, 3: SHORT}), (None, 1)),
        (BALANCED, standing(1, 2, 3), (None, 2)),
        (LONGEST, standing(1, 2, 3, 4, ends={4: SHORT}), (None, 4)),
        (LONGEST, standing(4), (None, 4)),
        # An empty log is longer than one that is not known.
        (LONGEST, standing(2, 4, ends={4: LogEnd(-1, 0)}), (None, 4)),
        # One whose records were all deleted: a log that ends before lacks committed offsets, a longer one does not.
        (BALANCED, standing(1, 2, 3, ends={1: EMPTIED, 2: SHORT, 3: LATER}), (1, 1)),
        (BALANCED, standing(1, 2, 3, ends={1: EMPTIED, 2: LONG, 3: LATER}), (2, 2)),
        (BALANCED, standing(1, 2, 3, ends={1: LogEnd(-1, 15), 2: LONG, 3: LATER}), (3, 3)),
        (LONGEST, standing(1, 2, 3, 4, ends={1: SHORT, 2: LogEnd(-1, 20), 3: LATER, 4: EMPTIED}), (4, 4)),
        (BALANCED, standing(1, 2, 3, 4, ends={1: SHORT, 2: SHORT, 4: EMPTIED}), (None, 2)),
        (BALANCED, standing(1, 2, 3, ends={1: EMPTIED, 3: SHORT}), (None, 1)),
        # One that cannot be reached is not there until it has reported.
        (BALANCED, standing(1, 2, 3, ends={1: SHORT, 2: SHORT}, unreachable={3}), (None, None)),
        (BALANCED, standing(1, 2, 3, ends={1: SHORT, 2: SHORT, 3: LONG}, unreachable={3}), (3, 3)),
        (BALANCED, standing(1, 2, 3, ends={1: SHORT, 3: LONG}, unreachable={2}), (None, None)),
        (LONGEST, standing(2, 4, ends={4: SHORT}, unreachable={2}), (None, 4)),
        (LONGEST, standing(2, 4, unreachable={2, 4}), (None, 2)),
    ],
)
def test_leader_follows_from_the_strategy_and_the_log_ends(
    strategy: RecoveryStrategy, seen: Standing, elected: tuple[int | None, int | None]
) -> None:
    """B110"""
    assert leaders(strategy, seen) == elected


@pytest.mark.parametrize("strategy", list(RecoveryStrategy))
@pytest.mark.parametrize("unreachable", [(), (2,)])
def test_sole_replica_has_nothing_to_compare_with(strategy: RecoveryStrategy, unreachable: tuple[int, ...]) -> None:
    alone = standing(2, unreachable=unreachable)._replace(replicas=(2,))
    assert leaders(strategy, alone, replace(GONE, elr=(), last_known_elr=())) == (2, 2)


def test_sole_member_that_does_not_report_is_elected_after_a_bounded_time() -> None:
    """B110: its log may be longer than that of a replica that has been behind, and has reported."""
    alone = replace(GONE, isr=(2,), elr=(), last_known_elr=())
    assert leaders(BALANCED, standing(2, 4, ends={4: LONG}), alone) == (None, 2)
    assert leaders(BALANCED, standing(2, 4, ends={2: SHORT, 4: LONG}), alone) == (4, 4)
    assert leaders(BALANCED, standing(2, 4, ends={2: SHORT, 4: LONG}, unreachable={2}), alone) == (4, 4)


def test_replica_that_has_been_behind_is_not_remembered() -> None:
    """B110: it is not remembered in the last known ELR."""
    seen = standing(1, 2, 3, 4, ends={1: LONG, 2: SHORT, 3: SHORT, 4: SHORT})
    assert set(recovery_of(GONE, seen, BALANCED).remembered) == {1, 2, 3}
    assert set(recovery_of(GONE, seen, LONGEST).remembered) == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("strategy", "seen", "absent", "unreported", "is_timed"),
    [
        (BALANCED, standing(2, 3), (1,), (2, 3), False),
        (BALANCED, standing(1, 2), (3,), (1, 2), False),
        (BALANCED, standing(1, 2, 3, ends={1: LONG}), (), (2, 3), True),
        (BALANCED, standing(1, 2, 3, ends={1: LONG, 2: LONG, 3: LONG}), (), (), False),
        (LONGEST, standing(), (2, 1, 3, 4), (), False),
        (LONGEST, standing(3, ends={3: LONG}), (2, 1, 4), (), True),
        (NONE, standing(2), (1,), (), False),
    ],
)
def test_partition_waits_for_brokers_and_reports_that_can_change_who_leads(
    strategy: RecoveryStrategy,
    seen: Standing,
    absent: tuple[int, ...],
    unreported: tuple[int, ...],
    is_timed: bool,
) -> None:
    recovery = recovery_of(GONE, seen, strategy)
    assert tuple(recovery.absent) == absent
    assert set(recovery.unreported) == set(unreported)
    assert recovery.is_timed is is_timed


sets = st.frozensets(st.integers(1, 4))


@given(
    registered=sets,
    broken=sets,
    unreachable=sets,
    ends=st.dictionaries(st.integers(1, 4), st.builds(LogEnd, st.integers(-1, 3), st.integers(0, 5))),
    strategy=st.sampled_from(RecoveryStrategy),
    waited=st.booleans(),
)
def test_elected_replica_is_there_and_no_compared_log_is_longer(
    registered: frozenset[int],
    broken: frozenset[int],
    unreachable: frozenset[int],
    ends: dict[int, LogEnd],
    strategy: RecoveryStrategy,
    waited: bool,
) -> None:
    """B110"""
    known = {broker: end for broker, end in ends.items() if broker in registered}
    seen = standing(*registered, broken=broken, ends=known, unreachable=unreachable & registered)
    recovery: Recovery = recovery_of(GONE, seen, strategy)
    leader = recovery.leader(waited=waited)
    if leader is None:
        return
    assert leader in registered
    compared = set() if strategy is NONE else {1, 2, 3, 4}
    if strategy is BALANCED and not {1, 2, 3} <= known.keys():
        compared = {1, 2, 3}
    others, elected = [known.get(other, LogEnd(-1, -1)) for other in compared], known.get(leader, LogEnd(-1, -1))
    committed = max([0, *(end.offset for end in others if end.leader_epoch == -1)])
    assert all(end.offset < committed for end in others) or elected.offset >= committed or not others
    assert all(end <= elected for end in others if end.offset >= committed or elected.offset < committed)
    if strategy is not LONGEST:
        assert {1, 2} <= set(seen.broken)
    if strategy is BALANCED:
        assert {1, 2, 3} <= registered
        assert waited or compared & (registered - unreachable) <= known.keys()
