"""What a broker reads from the store in place of a controller that it cannot reach."""

from oncelog.coordinator.controller.cluster_reading import read_orders
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from oncelog.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.unit.coordinator.controller.cluster import running_cluster
from tests.unit.coordinator.controller.test_controller import create, manual


async def test_read_orders_names_every_partition_before_leaderships() -> None:
    async with running_cluster(1, 2) as cluster:
        await create(cluster, manual("here", (2, 1)), manual("elsewhere", (1,)))
        orders = await read_orders(cluster.members[2].session, 2, "PLAINTEXT")
    assert [type(order) for order in orders] == [UpdateMetadataRequest, LeaderAndIsrRequest]
    metadata, leaderships = orders
    assert isinstance(metadata, UpdateMetadataRequest)
    assert isinstance(leaderships, LeaderAndIsrRequest)
    assert {topic.topic_name for topic in metadata.topic_states} == {"here", "elsewhere"}
    assert [topic.topic_name for topic in leaderships.topic_states] == ["here"]
