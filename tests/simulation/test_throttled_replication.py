"""Partitions that move at a throttled rate (KIP-73), by the settings that Kafka's tool for reassignments writes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from oncelog.coordinator.controller.api_error import NO_ERROR
from oncelog.coordinator.controller.config_changes import (
    ConfigAlteration,
    ConfigOperation,
    ConfigResource,
    OperationType,
    ResourceType,
)
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.cluster_stories import create, simulate, state_of
from tests.simulation.patient_client import produce_errors
from tests.simulation.requests import PRODUCE_VERSION, batch, produce
from tests.simulation.simulated_cluster import SimulatedCluster

T0: Final = TopicPartition("t", 0)
RATE: Final = 20_000
SIZE: Final = 200_000
LEADERS: Final = "leader.replication.throttled"
FOLLOWERS: Final = "follower.replication.throttled"
SETTINGS: Final = {"replica.fetch.max.bytes": "8000", "min.insync.replicas": "2"}
"""Else all would be copied at once, before anybody counts."""


async def configure(cluster: SimulatedCluster, kind: ResourceType, name: str, **values: str | int) -> None:
    resource = ConfigResource(kind, name)
    operations = tuple(
        ConfigOperation(key.replace("_", "."), OperationType.SET, str(value)) for key, value in values.items()
    )
    alteration = ConfigAlteration(resource=resource, operations=operations)
    (error,) = await cluster[1].running.configs.alter([alteration])
    assert error.code is ErrorCode.NONE, error
    await asyncio.sleep(0.2)


async def write(cluster: SimulatedCluster, size: int) -> float:
    """Records of one batch to its leader, with acks=all; how long that took."""
    client = await cluster[state_of(cluster, "t").leader].client()
    began = cluster.loop.time()
    response = await client.call(produce(T0, batch([b"x" * size])), PRODUCE_VERSION)
    assert produce_errors(response) == {ErrorCode.NONE}
    client.close()
    return cluster.loop.time() - began


async def fill(cluster: SimulatedCluster) -> None:
    await create(cluster, "t", (1, 2))
    for _ in range(SIZE // 2_000):
        await write(cluster, 1_930)


async def move(cluster: SimulatedCluster, *replicas: int) -> None:
    errors = await cluster[1].running.controller_apis.alter_reassignments({T0: replicas})
    assert errors == {T0: NO_ERROR}


async def moved(cluster: SimulatedCluster, broker_id: int) -> float:
    """How long until a broker is in sync; the partition is written to meanwhile, which is not delayed."""
    began = cluster.loop.time()
    while broker_id not in state_of(cluster, "t").isr:
        assert await write(cluster, 10) < 0.1
        await asyncio.sleep(0.1)
        assert cluster.loop.time() - began < 120, "it does not move"
    return cluster.loop.time() - began


def play(story: Callable[[SimulatedCluster], Awaitable[None]]) -> None:
    simulate(story, settings=SETTINGS)


async def throttle(cluster: SimulatedCluster, side: str, replicas: str, rate: int = RATE) -> None:
    await configure(cluster, ResourceType.BROKER, "", **{f"{side}.rate": rate})
    await configure(cluster, ResourceType.TOPIC, "t", **{f"{side}.replicas": replicas})


def test_replication_without_a_throttle_takes_no_time() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await fill(cluster)
        await move(cluster, 1, 2, 3)
        assert await moved(cluster, 3) < 1.5

    play(story)


@pytest.mark.parametrize("replicas", ["0:1,0:2", "*"])
def test_leaders_send_at_about_the_rate(replicas: str) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await fill(cluster)
        await throttle(cluster, LEADERS, replicas)
        await move(cluster, 1, 2, 3)
        assert 0.7 * SIZE / RATE < await moved(cluster, 3) < 1.4 * SIZE / RATE

    play(story)


def test_followers_take_at_about_the_rate() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await fill(cluster)
        await throttle(cluster, FOLLOWERS, "0:3")
        await move(cluster, 1, 2, 3)
        assert 0.7 * SIZE / RATE < await moved(cluster, 3) < 1.4 * SIZE / RATE

    play(story)


@pytest.mark.parametrize(("side", "replicas"), [(LEADERS, "0:2,0:3"), (FOLLOWERS, "0:1,0:2,1:3")])
def test_replicas_that_are_not_named_are_not_throttled(side: str, replicas: str) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await fill(cluster)
        await throttle(cluster, side, replicas)
        await move(cluster, 1, 2, 3)
        assert await moved(cluster, 3) < 1.5

    play(story)


@pytest.mark.parametrize("side", [LEADERS, FOLLOWERS])
def test_rate_that_is_raised_holds_at_once(side: str) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await fill(cluster)
        await throttle(cluster, side, "*", rate=100)
        await move(cluster, 1, 2, 3)
        await asyncio.sleep(14)
        assert 3 not in state_of(cluster, "t").isr
        await configure(cluster, ResourceType.BROKER, "", **{f"{side}.rate": 100 * SIZE})
        assert await moved(cluster, 3) < 2.5

    play(story)


def test_replicas_in_sync_are_not_throttled() -> None:
    """Else they would leave the ISR, and acks=all could not be had."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 2))
        await throttle(cluster, LEADERS, "*", rate=100)
        await throttle(cluster, FOLLOWERS, "*", rate=100)
        for _ in range(20):
            assert await write(cluster, 5_000) < 0.1
        assert state_of(cluster, "t").isr == (1, 2)

    play(story)


def test_topic_that_is_made_anew_is_not_throttled() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 2))
        await throttle(cluster, LEADERS, "*", rate=100)
        await cluster[1].running.controller_apis.delete_topics(["t"], timeout_seconds=5)
        await asyncio.sleep(1.0)
        await fill(cluster)
        await move(cluster, 1, 2, 3)
        assert await moved(cluster, 3) < 1.5

    play(story)
