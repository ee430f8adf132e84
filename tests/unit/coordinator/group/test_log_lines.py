"""What the log says of a group's rebalances: from the last line of a group its state is read."""

import logging

import pytest

from oncelog.protocol.errors import ErrorCode
from tests.unit.coordinator.group.group_world import GROUP, GroupWorld, group_world


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "oncelog.coordinator.group.log_lines")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged since the last call, without the group's name."""
    found = [record.getMessage().removeprefix(f"Group {GROUP}, ") for record in caplog.records]
    caplog.clear()
    return found


def two_members(w: GroupWorld) -> tuple[str, str]:
    """Return the leader and a follower of generation 2, which is stable."""
    leader = w.member()
    second = w.join()
    w.join(leader)
    follower = second.response.member_id
    w.sync(leader, {leader: b"1", follower: b"2"}, generation=2)
    assert w.sync(follower, generation=2).response.error is ErrorCode.NONE
    return leader, follower


def test_log_names_the_end_of_a_rebalance(caplog: pytest.LogCaptureFixture) -> None:
    with group_world() as w:
        leader, _ = two_members(w)
        assert lines(caplog) == [
            "generation 1: Empty -> CompletingRebalance: client joins; reason given: none",
            f"generation 1: CompletingRebalance -> Stable: leader {leader} sent the assignment of 1 members",
            "generation 1: Stable -> PreparingRebalance: client joins; reason given: none",
            "generation 2: PreparingRebalance -> CompletingRebalance: client joins; reason given: none",
            f"generation 2: CompletingRebalance -> Stable: leader {leader} sent the assignment of 2 members",
        ]


def test_log_names_the_members_whose_time_is_over(caplog: pytest.LogCaptureFixture) -> None:
    with group_world() as w:
        leader, follower = two_members(w)
        lines(caplog)
        w.sleep(6)
        assert w.heartbeat(leader, generation=2) is ErrorCode.NONE
        w.sleep(5)
        assert lines(caplog) == [
            f"generation 2: Stable -> PreparingRebalance: removed {follower}, which sent no request in time"
        ]
        w.sleep(6)
        assert lines(caplog) == [
            f"generation 2: PreparingRebalance: removed {leader}, which sent no request in time",
            "generation 3: PreparingRebalance -> Empty: no member is left",
        ]


def test_log_counts_the_members_beyond_the_first(caplog: pytest.LogCaptureFixture) -> None:
    with group_world() as w:
        first = w.member()
        others = [w.join() for _ in range(7)]
        w.join(first)
        members = [first, *(other.response.member_id for other in others)]
        for member in members:
            w.sync(member, dict.fromkeys(members, b"") if member == first else None, generation=2)
        lines(caplog)
        w.sleep(11)
        named, *_ = lines(caplog)
        assert sum(member in named for member in members) == 5
        assert " and 3 more, which sent no request in time" in named
