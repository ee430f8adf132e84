"""The search for expired offsets is made in slices, between which groups change and go away."""

from oncelog.coordinator.group.offset_requests import Committer, OffsetToCommit, expire
from oncelog.protocol.records.record_walk import WorkBudget
from tests.unit.coordinator.group.group_world import P0, GroupWorld, group_world

_LONG_AGO_MS = 0
_GROUPS = ("first", "second", "third")


def _committed(world: GroupWorld) -> list[str]:
    return [group_id for group_id in _GROUPS if world.shard.offsets.committed(group_id)]


def test_expire_yields_between_groups_when_the_budget_is_used_up() -> None:
    with group_world() as w:
        for group_id in _GROUPS:
            w.commit_all([OffsetToCommit(P0, 1)], committer=Committer(group_id))
        budget = WorkBudget(1)
        search = expire(w.shard, _LONG_AGO_MS, budget)
        w.do(lambda: next(search))
        assert _committed(w) == ["second", "third"]
        w.delete_groups("second")
        w.do(lambda: list(search))
        assert _committed(w) == []


def test_expire_of_a_resigned_shard_ends() -> None:
    with group_world() as w:
        for group_id in _GROUPS:
            w.commit_all([OffsetToCommit(P0, 1)], committer=Committer(group_id))
        search = expire(w.shard, _LONG_AGO_MS, WorkBudget(0))
        w.do(lambda: next(search))
        shard, log = w.shard, w.log_size()
        w.elect()
        assert not shard.is_open
        assert w.do(lambda: list(search)) == []
        assert w.log_size() == log
