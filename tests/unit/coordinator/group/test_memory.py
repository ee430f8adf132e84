"""Members take bounded memory and bounded work, whatever clients send."""

import itertools
import time

import pytest

from oncelog.coordinator.group.memory import ALL_GROUPS_SETTING, GROUP_SETTING, MEMBER_SETTING
from oncelog.coordinator.group.settings import GroupSettings
from oncelog.coordinator.group.state import GroupState, SyncRequest
from oncelog.protocol.errors import ErrorCode
from tests.unit.coordinator.group.group_driver import Driver
from tests.unit.coordinator.group.group_world import GROUP, GroupWorld, group_world

KIB = 1024
LIMITS = GroupSettings(
    group_initial_rebalance_delay_ms=0, member_max_bytes=10 * KIB, group_max_bytes=30 * KIB, groups_max_bytes=60 * KIB
)


def join(w: GroupWorld, size: int, member_id: str = "", group: str = GROUP, **more: object) -> ErrorCode | None:
    """The error of a JoinGroup with ``size`` bytes of metadata; None while it is parked."""
    call = w.join(member_id, group=group, protocols=[("range", bytes(size))], **more)  # type: ignore[arg-type]
    return call.responses[0].error if call.responses else None


def test_join_with_too_much_metadata_is_refused_and_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with group_world(settings=LIMITS) as w:
        assert join(w, 9 * KIB) is ErrorCode.MESSAGE_TOO_LARGE
        assert f"{MEMBER_SETTING} is {10 * KIB}" in caplog.text
        assert not w.shard.groups
        assert w.coordinator.memory.total == 0
        assert join(w, 7 * KIB) is ErrorCode.NONE


def test_join_beyond_the_size_of_a_group_is_refused_and_the_members_go_on(caplog: pytest.LogCaptureFixture) -> None:
    with group_world(settings=LIMITS) as w:
        assert [join(w, 7 * KIB) for _ in range(4)] == [ErrorCode.NONE, None, None, ErrorCode.GROUP_MAX_SIZE_REACHED]
        assert f"{GROUP_SETTING} is {30 * KIB}" in caplog.text
        assert w.group.state is GroupState.PREPARING_REBALANCE
        assert join(w, 7 * KIB, w.group.roster.leader or "") is ErrorCode.NONE


def test_join_beyond_the_size_of_all_groups_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with group_world(settings=LIMITS) as w:
        errors = [join(w, 7 * KIB, group=f"g{n}") for n in range(8)]
        assert errors[:5] == [ErrorCode.NONE] * 5
        assert errors[5:] == [ErrorCode.GROUP_MAX_SIZE_REACHED] * 3
        assert f"{ALL_GROUPS_SETTING} is {60 * KIB}" in caplog.text
        w.sleep(400)
        assert w.coordinator.memory.total == 0, "sessions end, also those of clients that are gone"
        assert join(w, 7 * KIB) is ErrorCode.NONE


def test_member_of_ordinary_size_joins_when_large_ones_took_all_that_there_is_for_them() -> None:
    settings = GroupSettings(
        group_initial_rebalance_delay_ms=0,
        member_max_bytes=40 * KIB,
        group_max_bytes=40 * KIB,
        groups_max_bytes=200 * KIB,
    )
    with group_world(settings=settings) as w:
        errors = [join(w, 30 * KIB, group=f"g{n}") for n in range(8)]
        assert errors.count(ErrorCode.NONE) == 4
        assert errors[4:] == [ErrorCode.GROUP_MAX_SIZE_REACHED] * 4
        assert join(w, 100, group="honest") is ErrorCode.NONE


def test_join_that_makes_a_full_group_no_larger_is_not_refused() -> None:
    with group_world(settings=LIMITS) as w:
        join(w, 7 * KIB)
        w.coordinator.memory.total += 60 * KIB
        leader = w.group.roster.leader or ""
        assert join(w, 7 * KIB, leader) is ErrorCode.NONE
        assert join(w, 6 * KIB, leader) is ErrorCode.NONE
        assert join(w, 7 * KIB, leader) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_member_ids_that_never_come_back_are_bounded() -> None:
    with group_world(settings=LIMITS) as w:
        errors = [join(w, 0, version=4) for _ in range(100)]
        assert errors.count(ErrorCode.MEMBER_ID_REQUIRED) < 30
        assert set(errors) == {ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED}
        w.sleep(11)
        assert not w.shard.groups
        assert join(w, 0, version=4) is ErrorCode.MEMBER_ID_REQUIRED


def test_sync_with_assignments_beyond_the_size_of_a_group_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with group_world(settings=LIMITS) as w:
        join(w, 0)
        leader = w.group.roster.leader or ""

        def sync(size: int) -> ErrorCode:
            assignments = {leader: bytes(size)}
            request = SyncRequest(
                member_id=leader,
                group_instance_id=None,
                generation=1,
                protocol_type=None,
                protocol_name=None,
                assignments=assignments,
            )
            return w.begin(lambda reply: w.coordinator.sync_group(GROUP, request, reply)).response.error

        assert sync(30 * KIB) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert f"{GROUP_SETTING} is {30 * KIB}" in caplog.text
        assert sync(20 * KIB) is ErrorCode.NONE
        assert w.coordinator.memory.total > 20 * KIB


def test_memory_of_a_group_that_leaves_this_coordinator_is_free() -> None:
    with group_world(settings=LIMITS) as w:
        member = w.member(topics=bytes(KIB))
        before = w.coordinator.memory.total
        assert before > KIB
        w.elect()
        w.load()
        assert member in w.group.roster
        assert w.coordinator.memory.total == before
        w.do(lambda: w.coordinator.on_resigned(0))
        assert w.coordinator.memory.total == 0


@pytest.mark.parametrize("version", [3, 4], ids=["parked", "pending"])
def test_join_of_a_large_group_does_not_look_through_its_members(version: int) -> None:
    driver = Driver()
    driver.join()
    began = time.thread_time()
    for _ in range(20_000):
        driver.join(version=version)
        driver.group.next_deadline()
    assert time.thread_time() - began < 2.0


def test_members_of_a_large_group_get_responses_in_several_turns() -> None:
    with group_world() as w:
        calls = [w.join() for _ in range(1_201)]

        def responded() -> int:
            return sum(bool(call.responses) for call in calls[1:])

        w.join(calls[0].response.member_id)
        seen = [responded()]
        while seen[-1] < len(calls) - 1:
            w.sleep(0)
            seen.append(responded())
            assert len(seen) < 20
        assert seen[0] < 1_000
        assert max(later - sooner for sooner, later in itertools.pairwise(seen)) <= 500
