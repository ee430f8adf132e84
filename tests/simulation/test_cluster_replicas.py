"""Stories of replicas in a cluster, most of them found by its histories: who is in sync, and who may lead."""

import asyncio

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
