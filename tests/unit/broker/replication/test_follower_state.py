"""When a follower counts as caught up."""

import pytest

from oncelog.broker.replication.follower_state import FollowerState

LAG_MS = 1000


def elected(*, in_sync: bool = True, leader_end: int = 100) -> FollowerState:
    follower = FollowerState()
    follower.elected(leader_end=leader_end, now_ms=0, in_sync=in_sync)
    return follower


def fetched(follower: FollowerState, end: int, leader_end: int, now_ms: int, *, epoch: int = 1) -> bool:
    """Whether it counts as caught up after the fetch."""
    follower.fetched(
        end=end, log_start_offset=0, leader_end=leader_end, now_ms=now_ms, broker_epoch=epoch, lag_ms=LAG_MS
    )
    return follower.is_close


def test_isr_member_is_close_for_the_lag_time_after_an_election() -> None:
    follower = elected()
    assert follower.update_is_close(100, LAG_MS, LAG_MS)
    assert not follower.update_is_close(100, LAG_MS + 1, LAG_MS)


def test_follower_out_of_the_isr_is_not_close_before_it_fetches() -> None:
    follower = elected(in_sync=False)
    assert not follower.is_close
    assert not follower.update_is_close(100, 0, LAG_MS)
    assert fetched(follower, 100, 100, 5)


@pytest.mark.parametrize(
    ("fetches", "now_ms", "expected"),
    [
        ([(100, 100, 50)], 5000, True),  # It has everything, however long ago it said so.
        ([(100, 100, 50)], 50, True),
        ([(90, 100, 50)], 1000, True),  # It was in sync at the election.
        ([(90, 100, 50)], 1001, False),
        ([(100, 110, 50), (110, 120, 600), (120, 130, 1200)], 1600, True),  # Always one fetch behind.
        ([(100, 110, 50), (110, 120, 600), (120, 130, 1200)], 1601, False),
        ([(100, 110, 50), (109, 120, 600), (119, 130, 1200)], 1049, False),  # Always more than one.
    ],
)
def test_follower_that_reaches_the_present_or_previous_end_is_caught_up(
    fetches: list[tuple[int, int, int]], now_ms: int, expected: bool
) -> None:
    follower = elected()
    for fetch in fetches:
        fetched(follower, *fetch)
    leader_end = fetches[-1][1]
    assert follower.update_is_close(leader_end, now_ms, LAG_MS) is expected


def test_reelected_leader_keeps_ends_but_not_whether_followers_are_close() -> None:
    follower = elected()
    fetched(follower, 100, 100, 50)
    follower.elected(leader_end=100, now_ms=60, in_sync=False)
    assert (follower.end, follower.is_close) == (100, False)


@pytest.mark.parametrize(("epoch", "stale"), [(4, True), (5, False), (6, False), (-1, False)])
def test_fetch_of_a_former_incarnation_is_stale(epoch: int, stale: bool) -> None:
    """B56"""
    follower = elected()
    fetched(follower, 100, 100, 1, epoch=5)
    assert follower.is_stale(epoch) is stale
