"""What the controller logs of partitions whose only replica may have lost records."""

import pytest

from oncelog.coordinator.controller.lone_replicas import LoneLoss, about_lone_losses
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.controller.cluster import ClusterUnderTest
from tests.unit.coordinator.controller.test_controller import create, manual, state_of
from tests.unit.coordinator.controller.test_eligible_levels import LEVEL_1


def test_losses_of_a_broker_are_one_line_with_the_known_offsets() -> None:
    first, second = about_lone_losses(
        [LoneLoss(TopicPartition("t", index), 2, None if index else 7) for index in range(8)]
        + [LoneLoss(TopicPartition("u", 0), 1, None)]
    )
    assert first.startswith("Broker 1 leads u-0 and may lack acknowledged records, which no other broker has")
    assert second.startswith("Broker 2 leads t-0 (from offset 7 on), t-1, t-2, t-3, t-4 and 3 more and may lack")


async def test_controller_warns_when_the_only_replica_is_back_with_a_damaged_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker that registers anew without a word of its logs counts as damaged."""
    cluster = ClusterUnderTest()
    await cluster.start(1, 2, 3, begins_with=LEVEL_1)
    await create(cluster, manual("lone", (2,)), manual("pair", (2, 3)))
    await cluster.kill(2)
    assert not [line for line in caplog.messages if "only replica" in line]
    await cluster.start(2, begins_with=LEVEL_1)
    assert (await state_of(cluster, "lone", 0)).leader == 2
    assert cluster.controller.unclean_elections.count == 1
    (warning,) = [line for line in caplog.messages if "only replica" in line]
    assert warning.startswith("Broker 2 leads lone-0 and may lack acknowledged records")
    await cluster.stop()
