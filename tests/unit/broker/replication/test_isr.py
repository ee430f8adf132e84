import pytest

from broker.replication.follower_state import FollowerState
from broker.replication.isr import InSyncReplicas


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
def test_the_minimum_is_capped_by_the_number_of_replicas(
    replicas: tuple[int, ...], isr: tuple[int, ...], min_insync: int, under: bool
) -> None:
    assert in_sync(replicas, *isr).is_under_min_isr(min_insync) is under


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
def test_replicated_is_what_every_in_sync_replica_has(
    isr: tuple[int, ...], follower_ends: dict[int, int], expected: int
) -> None:
    """B60: an offset counts only when it is on every ISR member; one that never fetched has nothing."""
    followers = {broker: at(end) for broker, end in follower_ends.items()}
    assert in_sync((1, 2, 3), *isr).replicated_end(1, 100, followers, lambda _: True) == expected
