"""A broker whose link came and went is not trusted for a while, unless its partitions refuse writes without it."""

import asyncio

import pytest

from oncelog.coordinator.controller.config_changes import (
    ConfigAlteration,
    ConfigOperation,
    ConfigResource,
    OperationType,
    ResourceType,
)
from oncelog.coordinator.controller.leader_elections import ElectionType
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


def is_trusted(cluster: SimulatedCluster, broker_id: int) -> bool:
    active = cluster[1].running.controller.active
    assert active is not None
    return broker_id not in active.context.state.unreachable


def test_broker_on_probation_is_trusted_when_the_minimum_is_raised() -> None:
    """B115"""

    async def story(cluster: SimulatedCluster) -> None:
        flaps = 2
        await create(cluster, "t", [1, flaps, 3])
        await let_a_link_flap(cluster, flaps)
        assert not is_trusted(cluster, flaps)
        operation = ConfigOperation("min.insync.replicas", OperationType.SET, "3")
        resource = ConfigResource(ResourceType.TOPIC, "t")
        await cluster[1].running.configs.alter([ConfigAlteration(resource=resource, operations=(operation,))])
        await asyncio.sleep(RETURNING)
        assert is_trusted(cluster, flaps)

    simulate(story, settings={"min.insync.replicas": "2"})


def test_broker_on_probation_is_not_trusted_where_it_cannot_help() -> None:
    """B115: it is in sync, and the other replica is gone for good."""

    async def story(cluster: SimulatedCluster) -> None:
        flaps, victim = 2, 3
        await create(cluster, "stuck", [flaps, victim])
        cluster[victim].kill()
        await asyncio.sleep(2 * SESSION_SECONDS)
        await let_a_link_flap(cluster, flaps)
        assert state_of(cluster, "stuck").isr == (flaps,)
        assert not is_trusted(cluster, flaps)

    simulate(story, brokers=4, settings={"min.insync.replicas": "2"})


def test_broker_that_was_trusted_early_is_replaced_as_soon_as_it_is_silent() -> None:
    """B115: else a partition that it leads again would wait for the end of the backoff."""

    async def story(cluster: SimulatedCluster) -> None:
        flaps, victim = 2, 3
        await create(cluster, "t", [flaps, 1, victim])
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(10)
        await let_a_link_flap(cluster, flaps)
        cluster[victim].kill()
        await asyncio.sleep(RETURNING)
        assert is_trusted(cluster, flaps)
        await cluster[victim].start()
        await asyncio.sleep(RETURNING)
        await cluster[1].running.controller_apis.elect_leaders([T0], ElectionType.PREFERRED)
        assert state_of(cluster, "t").leader == flaps
        cluster.isolate(flaps)
        async with asyncio.timeout(NOTICED_SECONDS):
            await writer.write(1)

    simulate(story, settings={"min.insync.replicas": "2"})
