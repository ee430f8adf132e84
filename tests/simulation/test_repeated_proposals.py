"""A leader whose change of the ISR is refused, and to which no newer state comes: it proposes the change again.

The controller that refuses may have been replaced, or may not be able to read the topic; or another tool has written a
state that is the same, but newer.
"""

import asyncio

from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.topic_plan import NewTopic
from oncelog.coordinator.metadata_store import paths
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import NOTICED_SECONDS, create, simulate, state_of
from tests.simulation.sim_zookeeper import Direction
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster
from tests.simulation.test_cut_links import cut
from tests.simulation.test_malformed_znodes import garbage, mend, spoil

T0 = TopicPartition("t", 0)
MIN_ISR_2 = {"min.insync.replicas": "2"}
LONG_SESSIONS = {"zookeeper.session.timeout.ms": "18000"}
REPEATED_SECONDS = 20.0
"""Some of the pauses after which a leader proposes again."""


def test_leader_whose_controller_was_replaced_unnoticed_proposes_again() -> None:
    """Both learn of it late, and the former controller does not know the topic that its successor has made."""

    async def story(cluster: SimulatedCluster) -> None:
        for broker_id in (1, 2):
            cluster[broker_id].cut_from_ensemble(Direction.TO_CLIENT)
        cluster.isolate(1, 3, 4, 5)
        while cluster.controllers == [1]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        new = next(broker_id for broker_id in cluster.controllers if broker_id != 1)
        await asyncio.sleep(0.3)
        topic = NewTopic(name="t", assignments=[(0, (2, 1))])
        (created,) = await cluster[new].running.controller_apis.create_topics([topic], timeout_seconds=0.1)
        assert isinstance(created, ApiError), "not all brokers know of it"
        cluster.loop.network.heal()
        await asyncio.sleep(2.5)
        for broker_id in (1, 2):
            cluster[broker_id].cut_from_ensemble(Direction.NONE)
        await asyncio.sleep(REPEATED_SECONDS)
        assert set(state_of(cluster, "t").isr) == {1, 2}

    simulate(story, brokers=5, settings=LONG_SESSIONS)


def test_follower_joins_after_the_znode_of_its_topic_was_mended() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (2, 3, 4))
        cut(cluster, (2, 4), "both")
        await asyncio.sleep(REPEATED_SECONDS / 2)
        assert set(state_of(cluster, "t").isr) == {2, 3}
        good = await spoil(cluster, paths.topic("t"), garbage(b"not json"))
        cluster[1].kill()
        await asyncio.sleep(NOTICED_SECONDS)
        await cluster[1].start()
        await asyncio.sleep(SESSION_SECONDS)
        cluster.loop.network.heal()
        await asyncio.sleep(REPEATED_SECONDS / 2)
        await mend(cluster, paths.topic("t"), good)
        await asyncio.sleep(REPEATED_SECONDS)
        assert set(state_of(cluster, "t").isr) == {2, 3, 4}

    simulate(story, brokers=4, settings=MIN_ISR_2)


def test_follower_leaves_after_another_tool_has_set_the_state_to_what_it_was() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (2, 3, 4))
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(5)
        good = await spoil(cluster, paths.partition_state(T0), garbage(b"not json"))
        await mend(cluster, paths.partition_state(T0), good)
        cut(cluster, (2, 4), "both")
        await asyncio.sleep(REPEATED_SECONDS)
        assert await writer.try_to_write(b"kept")
        assert set(state_of(cluster, "t").isr) == {2, 3}

    simulate(story, brokers=4, settings=MIN_ISR_2)
