"""A metadata store that responds slowly: an order that awaits it does not keep the others from their broker."""

import asyncio

from oncelog.coordinator.controller.topic_plan import NewTopic
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import create, simulate
from tests.simulation.simulated_cluster import SimulatedCluster

T0 = TopicPartition("t", 0)
SLOW_SECONDS = 0.3
"""One way. To ask for the newest state and to read it takes longer than an order may wait."""
SETTINGS = {"zookeeper.session.timeout.ms": "18000", "min.insync.replicas": "1"}


def test_new_topic_does_not_keep_the_orders_of_another_one_from_its_broker() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (2, 3))
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(5)
        cluster.ensemble.delay = lambda: SLOW_SECONDS
        await asyncio.sleep(5)
        topic = NewTopic(name="new", assignments=[(0, (3,))])
        await cluster[1].running.controller_apis.create_topics([topic], timeout_seconds=20)
        await asyncio.sleep(10)
        assert cluster[3].running.replica_manager.partition(TopicPartition("new", 0)) is not None
        cluster[2].kill()
        await asyncio.sleep(10)
        assert await writer.try_to_write(b"kept")

    simulate(story, settings=SETTINGS)
