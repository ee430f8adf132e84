"""The deletion of a topic of thousands of partitions is divided over turns of the loop."""

from coordinator.controller.topic_plan import NewTopic
from tests.unit.broker.turns import longest_turn
from tests.unit.coordinator.controller.cluster import running_cluster

PARTITIONS = 4_000
MOST_LINES = 45_000
"""Of one turn. At once it would be 64,000, and the sorting of all replicas."""


async def test_replicas_of_a_wide_topic_are_deleted_in_portions() -> None:
    async with running_cluster(1) as cluster:
        topic = NewTopic(name="wide", partition_count=PARTITIONS, replication_factor=1)
        await cluster.controller.create_topics([topic])
        await cluster.settle()
        office = cluster.controller._office
        assert office is not None
        office.reign.state.topics_to_delete["wide"] = None
        _, lines = await longest_turn(lambda: office.deletions.carry_on(["wide"]))
        assert lines < MOST_LINES
