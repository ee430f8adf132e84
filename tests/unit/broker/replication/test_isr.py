import pytest

from oncelog.broker.replication.follower_state import FollowerState
from oncelog.broker.replication.isr import InSyncReplicas


def in_sync(replicas: tuple[int, ...], *isr: int) -> InSyncReplicas:
    return InSyncReplicas(replicas=replicas, isr=frozenset(isr))


def at(end: int, *, close: bool = False) -> FollowerState:
    follower = FollowerState()
    follower.end = end
    follower.is_close = close
    return follower


@pytest.mark.parametrize(
    ("replicas", "isr", "min_insync", "under"),
    [
        ((1,), (1,), 1, False),
        ((1,), (1,), 2, False),
        ((1, 2, 3), (1,), 2, True),
        ((1, 2, 3), (1, 2), 2, False),
        ((1, 2, 3), (1, 2), 3, True),
        ((1, 2), (1, 2), 3, False),
    ],
)
def test_minimum_isr_is_capped_by_the_number_of_replicas(
    replicas: tuple[int, ...], isr: tuple[int, ...], min_insync: int, under: bool
) -> None:
    assert in_sync(replicas, *isr).is_under_min_isr(min_insync) is under


@pytest.mark.parametrize("min_insync", [1, 2, 3])
def test_isr_is_under_its_minimum_while_others_are_eligible(min_insync: int) -> None:
    """B57: also if the minimum has been lowered and the controller does not know yet."""
    isr = in_sync((1, 2, 3), 1, 2)
    assert isr.commit({1}, {2}).is_under_min_isr(min_insync)
    assert isr.commit({1}).is_under_min_isr(min_insync) is (min_insync > 1)


@pytest.mark.parametrize(
    ("isr", "follower_ends", "expected"),
    [
        ((1,), {}, 100),
        ((1,), {2: 5}, 100),
        ((1, 2), {2: 90}, 90),
        ((1, 2), {2: 110}, 100),
        ((1, 2, 3), {2: 90, 3: 80}, 80),
        ((1, 2, 3), {2: 90}, -1),
    ],
)
def test_replicated_end_is_what_every_in_sync_replica_has(
    isr: tuple[int, ...], follower_ends: dict[int, int], expected: int
) -> None:
    """B60: an offset counts only when it is on every ISR member; one that never fetched has nothing."""
    followers = {broker: at(end) for broker, end in follower_ends.items()}
    assert in_sync((1, 2, 3), *isr).replicated_end(1, 100, followers, lambda _: True) == expected


def replicated_end(isr: InSyncReplicas, followers: dict[int, FollowerState], *alive: int) -> int:
    return isr.replicated_end(1, 100, followers, lambda broker: broker in alive)


@pytest.mark.parametrize(
    ("proposed", "expected"),
    [(None, 90), ((1, 2, 3), 80), ((1,), 90), ((1, 3), 80)],
)
def test_proposed_isr_counts_beside_the_committed_one(proposed: tuple[int, ...] | None, expected: int) -> None:
    """B82: an addition at once, a removal not before it is decided."""
    isr = in_sync((1, 2, 3), 1, 2)
    if proposed is not None:
        isr = isr.propose(frozenset(proposed))
    assert replicated_end(isr, {2: at(90), 3: at(80)}, 2, 3) == expected


@pytest.mark.parametrize(("close", "alive", "expected"), [(True, (3,), 80), (False, (3,), 100), (True, (), 100)])
def test_follower_that_may_join_holds_the_high_watermark_back(
    close: bool, alive: tuple[int, ...], expected: int
) -> None:
    assert replicated_end(in_sync((1, 2, 3), 1), {2: at(50), 3: at(80, close=close)}, *alive) == expected


@pytest.mark.parametrize(
    ("end", "high_watermark", "epoch_start", "close", "joins"),
    [
        (10, 10, 0, True, True),
        (9, 10, 0, True, False),
        (10, 10, 11, True, False),
        (11, 10, 11, True, True),
        (10, 10, 0, False, False),
    ],
)
def test_joining_follower_has_everything_replicated_and_the_epochs_start(
    end: int, high_watermark: int, epoch_start: int, close: bool, joins: bool
) -> None:
    """B52"""
    joining = in_sync((1, 2, 3), 1).joining(
        {2: at(end, close=close), 3: at(100, close=True)},
        high_watermark=high_watermark,
        epoch_start_offset=epoch_start,
        is_alive=lambda broker: broker == 2,
    )
    assert joining == (frozenset({2}) if joins else frozenset())


def test_members_that_fell_behind_leave_and_the_leader_never() -> None:
    isr = in_sync((1, 2, 3, 4), 1, 2, 3)
    assert isr.leaving(1, {2: at(1), 3: at(1, close=True), 4: at(1)}) == {2}


def test_decision_replaces_committed_and_proposed_isr() -> None:
    isr = in_sync((1, 2, 3), 1, 2).propose(frozenset({1, 2, 3}))
    assert isr.commit(frozenset({1, 3})) == in_sync((1, 2, 3), 1, 3)
    assert isr.withdraw() == in_sync((1, 2, 3), 1, 2)


@pytest.mark.parametrize(
    ("isr", "silent", "minimum", "leaving"),
    [
        ((1, 2, 3), {3}, 2, {3}),
        ((1, 2, 3), {3}, 1, {3}),
        ((1, 2, 3), {3}, 3, set()),
        ((1, 2, 3), {2, 3}, 1, set()),
        ((1, 2), {2}, 1, set()),
        ((1, 2), {3}, 1, set()),
        ((1, 2, 3), set[int](), 1, set()),
    ],
)
def test_silent_member_leaves_if_enough_stay(
    isr: tuple[int, ...], silent: set[int], minimum: int, leaving: set[int]
) -> None:
    """B90: a leader that hears nobody may be the one that is cut off."""
    assert in_sync((1, 2, 3), *isr).leaving_silent(silent, minimum) == leaving
