"""What the controller logs of changes of leaders, ISR and ELR: a few lines, however many partitions change."""

from dataclasses import replace

import pytest

from oncelog.coordinator.controller.state_changes import StateChanges
from oncelog.coordinator.metadata_store.znodes import PartitionState
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.controller.cluster import running_cluster
from tests.unit.coordinator.controller.test_controller import create, manual
from tests.unit.coordinator.controller.test_isr_changes import request, wanting

STATE = PartitionState(leader=1, leader_epoch=5, isr=(1, 2, 3), controller_epoch=1)


def lines_about(*states: tuple[PartitionState, PartitionState]) -> list[str]:
    changes = StateChanges()
    for index, (before, after) in enumerate(states):
        changes.add(TopicPartition("t", index), before, after)
    return changes.lines()


def test_change_of_one_partition_names_leader_isr_and_elr() -> None:
    elected = replace(STATE, leader=2, leader_epoch=6, isr=(2,), elr=(3, 1))
    assert lines_about((STATE, elected)) == ["t-0: leader 1 -> 2, ISR 1,2,3 -> 2, ELR none -> 1,3"]
    assert lines_about((STATE, replace(STATE, leader=-1, leader_epoch=6))) == ["t-0: leader 1 -> none"]
    assert lines_about((STATE, replace(STATE, leader_epoch=6))) == ["t-0: leader 1 elected again"]
    assert lines_about((STATE, replace(STATE, isr=(3, 1, 2), epochs={1: 7}))) == []


def test_changes_of_a_thousand_partitions_are_a_line_for_each_kind() -> None:
    failover = [(STATE, replace(STATE, leader=2 + index % 2, leader_epoch=6, isr=(2, 3))) for index in range(1000)]
    assert lines_about(*failover) == [
        "500 partitions: leader 1 -> 2, ISR 1,2,3 -> 2,3 (t-0, t-2, t-4, t-6, t-8 and 495 more)",
        "500 partitions: leader 1 -> 3, ISR 1,2,3 -> 2,3 (t-1, t-3, t-5, t-7, t-9 and 495 more)",
    ]


def test_changes_of_very_many_kinds_are_bounded() -> None:
    lines = lines_about(*[(STATE, replace(STATE, isr=(1, 4 + index))) for index in range(100)])
    assert (len(lines), lines[-1]) == (21, "80 more partitions changed in other ways")


async def test_controller_logs_each_change_of_leaders_and_isr_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "oncelog.coordinator.controller")
    async with running_cluster(1, 2, 3) as cluster:
        await create(cluster, manual("t", (2, 1, 3), (2, 3, 1)))
        caplog.clear()
        await cluster.apis.alter_partition(request(cluster, "t", wanting(0, [2, 1]), leader=2))
        assert caplog.messages == ["t-0: ISR 1,2,3 -> 1,2"]
        caplog.clear()
        await cluster.kill(2)
        changes = [line for line in caplog.messages if "leader 2" in line]
    assert changes == ["t-0: leader 2 -> 1, ISR 1,2 -> 1", "t-1: leader 2 -> 3, ISR 1,2,3 -> 1,3"]
