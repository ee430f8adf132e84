"""Groups, their offsets and their lag, from a coordinator."""

import pytest

from oncelog.broker.metrics import group_metrics as module
from oncelog.broker.metrics.group_metrics import GroupOffsets, committed_offsets, group_metrics, group_offset_metrics
from oncelog.coordinator.group.offset_requests import Committer, OffsetToCommit
from oncelog.coordinator.group.settings import GroupSettings
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.metrics.test_monitor import values
from tests.unit.coordinator.group.group_world import GroupWorld, group_world

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
COUNTS = "kafka_server_group_coordinator_metrics_offset_"


def shown(w: GroupWorld) -> GroupOffsets:
    return w.loop.run_until_complete(committed_offsets(w.coordinator))


def test_lag_reaches_to_the_end_and_is_absent_where_no_end_is_known() -> None:
    with group_world() as w:
        w.commit_all([OffsetToCommit(P0, 5), OffsetToCommit(P1, 7)], committer=Committer("g"))
        ends = {P0: 12}
        rows = values(group_offset_metrics(shown(w), ends.get))
        assert rows == {
            "kafka_consumergroup_current_offset/g/t/0": 5,
            "kafka_consumergroup_current_offset/g/t/1": 7,
            "kafka_consumergroup_lag/g/t/0": 7,
            "oncelog_omitted_consumergroup_offsets": 0,
        }
        ends[P0] = 4  # A replica that is behind the consumer.
        assert values(group_offset_metrics(shown(w), ends.get))["kafka_consumergroup_lag/g/t/0"] == 0


def test_groups_beyond_the_most_offsets_are_counted_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OFFSETS", 3)
    with group_world() as w:
        for group in ("a", "b", "c"):
            w.commit_all([OffsetToCommit(P0, 1), OffsetToCommit(P1, 1)], committer=Committer(group))
        offsets = shown(w)
        assert (len(offsets.shown), offsets.omitted) == (2, 4)
        assert len({row.group_id for row in offsets.shown}) == 1


def test_members_offsets_and_their_ends_are_counted() -> None:
    settings = GroupSettings(
        group_initial_rebalance_delay_ms=0, offsets_retention_ms=50_000, offsets_retention_check_interval_ms=20_000
    )
    with group_world(settings=settings) as w:
        w.member(group="members")
        for group in ("deleted", "expires"):
            w.commit_all([OffsetToCommit(P0, 1), OffsetToCommit(P1, 1)], committer=Committer(group))
        w.delete_groups("deleted")
        before = values(group_metrics(w.coordinator))
        assert before["kafka_consumergroup_members/members"] == 1
        assert before["kafka_coordinator_group_groupmetadatamanager_numgroupsstable"] == 1
        assert before["kafka_coordinator_group_groupmetadatamanager_numoffsets"] == 2
        assert before[f"{COUNTS}commit_count"] == 4
        assert before[f"{COUNTS}deletion_count"] == 2
        assert before[f"{COUNTS}expiration_count"] == 0
        w.sleep(100)
        after = values(group_metrics(w.coordinator))
        assert after[f"{COUNTS}expiration_count"] == 2
        assert after["kafka_coordinator_group_groupmetadatamanager_numoffsets"] == 0


def test_load_time_is_absent_before_the_first_load() -> None:
    name = "kafka_server_group_coordinator_metrics_partition_load_time_"
    with group_world() as w:
        times = w.coordinator.load_times
        assert times.count == 1
        times.note(0.5)
        assert values(group_metrics(w.coordinator))[f"{name}max"] == 500
        times.count = 0
        assert not any(each.startswith(name) for each in values(group_metrics(w.coordinator)))
