"""Stories of replicas in a cluster, most of them found by its histories: who is in sync, and who may lead."""

import asyncio

from protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import assert_agreement, create, simulate, state_of
from tests.simulation.sim_zookeeper import Direction
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster


def expire(cluster: SimulatedCluster, broker_id: int) -> None:
    store = cluster[broker_id].store
    assert store is not None
    assert store.session is not None
    cluster.ensemble.expire(store.session.session_id)


class TestInSync:
    """Who is."""

    def test_brokers_that_registered_anew_come_back_also_where_nothing_is_written(self) -> None:
        """B56: a leader takes nobody back by the word of a former life, so it must hear of every new one.

        Broker 1 stays in the ISR, as it is its own successor as controller, and finds broker 3 there again.
        """

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (2, 3, 1))
            await asyncio.sleep(1.0)
            for other in (2, 3):
                cluster[other].cut_from_ensemble()
            expire(cluster, 3)
            await asyncio.sleep(0.2)
            assert set(state_of(cluster, "t").isr) == {1, 2}
            expire(cluster, 1)
            await asyncio.sleep(0.01)
            for other in (2, 3):
                cluster[other].cut_from_ensemble(Direction.NONE)
            await asyncio.sleep(SESSION_SECONDS)
            assert cluster.controllers == [1]
            assert set(state_of(cluster, "t").isr) == {1, 2, 3}
            assert_agreement(cluster)

        simulate(story)


class TestElections:
    """Who may lead."""

    def test_a_follower_that_lost_its_tail_does_not_lead_while_another_has_it(self) -> None:
        """B57: its leader dies, and the controller with it, so that nobody takes it out of the ISR before."""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (2, 3, 1))
            writer = AcknowledgedWriter(cluster, TopicPartition("t", 0))
            await writer.write(20)
            await asyncio.sleep(1.0)
            assert set(state_of(cluster, "t").isr) == {1, 2, 3}
            assert cluster[1].process is not None
            cluster[1].process.pause()
            cluster[3].crash("power")
            cluster[2].kill()
            await cluster[3].start()
            await asyncio.sleep(0.5)
            cluster[1].process.resume()
            await asyncio.sleep(SESSION_SECONDS)
            await cluster[2].start()
            await asyncio.sleep(2 * SESSION_SECONDS)
            assert_agreement(cluster)
            assert len(state_of(cluster, "t").isr) == 3
            writer.assert_nothing_is_lost(cluster[3].content(writer.partition))

        simulate(story, settings={"min.insync.replicas": "2"})
