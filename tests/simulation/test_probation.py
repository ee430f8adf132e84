"""A broker whose link came and went is not trusted for a while, unless its partitions refuse writes without it."""

import asyncio

import pytest

from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import NOTICED_SECONDS, create, session_of, simulate, state_of
from tests.simulation.sim_zookeeper import Direction
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster

T0 = TopicPartition("t", 0)
APART, RETURNING = 5.0, 1.0
"""Seconds; the broker is isolated longer than another one takes to notice."""
PROBATIONS = (1.0, 2.0, 4.0, 8.0)
SETTLED_SECONDS = 70.0


async def let_a_link_flap(cluster: SimulatedCluster, broker_id: int) -> None:
    """Isolate a broker from the others, not from the ensemble, until it is long before it is trusted again."""
    for probation in (*PROBATIONS, 0.0):
        cluster.isolate(broker_id)
        await asyncio.sleep(APART)
        cluster.loop.network.heal()
        await asyncio.sleep(probation + RETURNING)


@pytest.mark.parametrize("flaps", [2, 3])
@pytest.mark.parametrize("leads", [1, 2, 3])
def test_broker_on_probation_joins_at_once_when_another_one_is_gone(leads: int, flaps: int) -> None:
    """B115"""

    async def story(cluster: SimulatedCluster) -> None:
        assert cluster.controllers == [1]
        others = [broker_id for broker_id in (1, 2, 3) if broker_id != leads]
        await create(cluster, "t", [leads, *others])
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(10)
        await let_a_link_flap(cluster, flaps)
        (victim,) = {2, 3} - {flaps}
        assert cluster.controllers == [1]
        assert flaps not in state_of(cluster, "t").isr
        cluster.isolate(victim)
        cluster[victim].cut_from_ensemble()
        async with asyncio.timeout(NOTICED_SECONDS):
            await writer.write(1)
        assert set(state_of(cluster, "t").isr) == {1, flaps}
        cluster.loop.network.heal()
        cluster[victim].cut_from_ensemble(Direction.NONE)
        await asyncio.sleep(SETTLED_SECONDS)
        assert set(state_of(cluster, "t").isr) == {1, 2, 3}

    simulate(story, settings={"min.insync.replicas": "2"})


def test_broker_whose_link_flaps_while_another_one_is_gone_joins_each_time() -> None:
    """B115"""

    async def story(cluster: SimulatedCluster) -> None:
        flaps, victim = 2, 3
        await create(cluster, "t", [1, flaps, victim])
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(10)
        cluster[victim].kill()
        await asyncio.sleep(NOTICED_SECONDS)
        await let_a_link_flap(cluster, flaps)
        async with asyncio.timeout(NOTICED_SECONDS):
            await writer.write(1)

    simulate(story, brokers=5, settings={"min.insync.replicas": "2"})


def test_broker_on_probation_joins_as_soon_as_the_session_of_another_one_has_expired() -> None:
    """B115"""

    async def story(cluster: SimulatedCluster) -> None:
        flaps, victim = 2, 3
        await create(cluster, "t", [1, flaps, victim])
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(10)
        await let_a_link_flap(cluster, flaps)
        assert flaps not in state_of(cluster, "t").isr
        cluster[victim].cut_from_ensemble()
        cluster.ensemble.expire(session_of(cluster[victim]).session_id)
        await asyncio.sleep(RETURNING)
        async with asyncio.timeout(RETURNING):
            await writer.write(1)

    simulate(story, settings={"min.insync.replicas": "2"})


def test_broker_on_probation_joins_at_once_when_the_disk_of_another_one_is_full() -> None:
    """B115"""

    async def story(cluster: SimulatedCluster) -> None:
        flaps, victim = 2, 3
        await create(cluster, "t", [victim, 1, flaps])
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(10)
        await let_a_link_flap(cluster, flaps)
        assert flaps not in state_of(cluster, "t").isr
        cluster[victim].disk.fill()
        async with asyncio.timeout(RETURNING):
            await writer.write(1)

    simulate(story, settings={"min.insync.replicas": "2"})


def test_broker_on_probation_is_trusted_at_once_if_a_partition_has_no_leader() -> None:
    """B115"""

    async def story(cluster: SimulatedCluster) -> None:
        flaps, victim = 2, 3
        await create(cluster, "t", [victim, flaps])
        await let_a_link_flap(cluster, flaps)
        assert state_of(cluster, "t").isr == (victim,)
        cluster[victim].kill()
        await asyncio.sleep(SESSION_SECONDS + RETURNING)
        active = cluster[1].running.controller.active
        assert active is not None
        assert state_of(cluster, "t").leader == NO_LEADER
        assert flaps not in active.context.state.unreachable

    simulate(story)
