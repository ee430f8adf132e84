"""Disks that are full for a while, on one broker of a cluster or on all: writes go on, and everything comes back."""

import asyncio
import errno
import random

import pytest

from oncelog.coordinator.controller.config_changes import ResourceType
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import assert_agreement, create, simulate, state_of
from tests.simulation.requests import PRODUCE_VERSION, batch, produce
from tests.simulation.simulated_broker import PORT, SimulatedBroker
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.test_cluster_administration import until
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.wire_client import WireClient

T0 = TopicPartition("t", 0)
MOVED_SECONDS = 1.0
"""Seconds after which other brokers lead what a broker with a full disk led."""
ROOM_SECONDS = 5.0
"""Seconds after which a broker that has room again has noticed it."""


@pytest.mark.parametrize(("victim", "leave"), [(1, 0), (1, 40), (2, 40), (3, 0)])
def test_full_disk_of_one_broker_stops_no_writes(victim: int, leave: int) -> None:
    """Of the controller and leader (1), or of a follower; with room for nothing, or for a part of a batch."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 2, 3))
        writer = AcknowledgedWriter(cluster, T0, pause=0.2)
        await writer.write(5)
        cluster[victim].disk.fill(leave)
        writing = asyncio.ensure_future(writer.run())  # noqa: TID251
        await until(lambda: victim not in state_of(cluster, "t").isr, MOVED_SECONDS)
        assert state_of(cluster, "t").leader != victim
        await asyncio.sleep(35.0)  # Longer than a follower may lag.
        assert writer.longest_stall() < MOVED_SECONDS
        assert not cluster[victim].running.failure.done(), "the broker goes on for readers"
        cluster[victim].disk.make_room()
        await until(lambda: set(state_of(cluster, "t").isr) == {1, 2, 3}, ROOM_SECONDS)
        writer.stop()
        await writing
        await asyncio.sleep(1.0)
        assert {cluster[broker].content(T0) for broker in (1, 2, 3)} == {cluster[1].content(T0)}
        writer.assert_nothing_is_lost(cluster[1].content(T0))
        assert_agreement(cluster)

    simulate(story, settings={"min.insync.replicas": "2"})


def test_disks_of_all_brokers_that_are_full_take_writes_again_when_there_is_room() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 2, 3))
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(5)
        for broker in cluster.brokers.values():
            broker.disk.fill(10)
        assert not await writer.try_to_write(b"refused")
        await asyncio.sleep(120.0)
        assert not await writer.try_to_write(b"refused")
        for broker in cluster.brokers.values():
            assert not broker.running.failure.done()
            broker.disk.make_room()
        await asyncio.sleep(ROOM_SECONDS)
        await writer.write(5)
        await until(lambda: set(state_of(cluster, "t").isr) == {1, 2, 3}, 5.0)
        writer.assert_nothing_is_lost(cluster[1].content(T0))

    simulate(story, settings={"min.insync.replicas": "2"})


def test_partition_without_other_replicas_stays_where_it_is_and_takes_writes_again() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (2,))
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(5)
        cluster[2].disk.fill()
        assert not await writer.try_to_write(b"refused")
        await asyncio.sleep(10.0)
        assert state_of(cluster, "t").leader == 2
        cluster[2].disk.make_room()
        await writer.write(5)
        writer.assert_nothing_is_lost(cluster[2].content(T0))

    simulate(story)


def test_full_disk_is_noticed_although_a_log_of_its_broker_cannot_be_opened() -> None:
    """B84: that replica responds with an error of its own."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (3, 1, 2))
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(5)
        cluster[3].disk.fail("open", f"{0:020d}.log", error=errno.EMFILE, times=1_000_000)
        await create(cluster, "other", (1, 2, 3))
        cluster[3].disk.fill()
        assert not await writer.try_to_write(b"refused")
        await until(lambda: 3 not in state_of(cluster, "t").isr, MOVED_SECONDS)
        await writer.write(5)

    simulate(story, settings={"min.insync.replicas": "2"})


def test_new_controller_learns_whose_disk_is_full() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (2, 1, 3), (3, 2, 1))
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(5)
        cluster[2].disk.fill()
        assert not await writer.try_to_write(b"refused")
        await until(lambda: 2 not in state_of(cluster, "t").isr, MOVED_SECONDS)
        assert cluster.controllers == [1]
        cluster[1].kill()
        await until(lambda: state_of(cluster, "t").leader == 3, 10.0)
        await asyncio.sleep(5.0)
        assert {state_of(cluster, "t", index).leader for index in (0, 1)} == {3}
        assert all(2 not in state_of(cluster, "t", index).isr for index in (0, 1))
        await writer.write(5)
        await cluster[1].start()
        cluster[2].disk.make_room()
        await until(lambda: set(state_of(cluster, "t").isr) == {1, 2, 3}, 10.0)
        writer.assert_nothing_is_lost(cluster[3].content(T0))

    simulate(story)


def test_replicas_that_a_full_disk_could_not_take_are_made_when_there_is_room() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        cluster[3].disk.fill()
        cluster[3].disk.fail("make_dirs", "t-0", error=28, times=1_000)
        await create(cluster, "t", (1, 2, 3), (3, 1, 2))
        await AcknowledgedWriter(cluster, T0).write(3)
        cluster[3].disk.make_room()
        await until(lambda: set(state_of(cluster, "t").isr) == {1, 2, 3}, 10.0)
        await until(lambda: set(state_of(cluster, "t", 1).isr) == {1, 2, 3}, 10.0)
        assert_agreement(cluster)

    simulate(story)


def test_broker_that_is_alone_refuses_writes_and_takes_them_again_when_there_is_room() -> None:
    """Its metadata store is on the same disk."""
    loop = VirtualLoop(random.Random(1))

    async def play() -> None:
        broker = SimulatedBroker(loop, random.Random(2))
        await broker.start()
        client = await WireClient.connect(PORT)
        assert await _create(client, "t") == ErrorCode.NONE
        assert await _produce(client) == ErrorCode.NONE
        broker.disk.fill(20)
        for _ in range(3):
            assert await _produce(client) == ErrorCode.KAFKA_STORAGE_ERROR
            assert await _create(client, "u") != ErrorCode.NONE
            await asyncio.sleep(100.0)
        assert broker.broker is not None
        assert not broker.broker.failure.done()
        broker.disk.make_room()
        assert await _produce(client) == ErrorCode.NONE
        await asyncio.sleep(10.0)
        assert await _create(client, "u") == ErrorCode.NONE
        client.close()
        await broker.stop()
        await broker.start()
        client = await WireClient.connect(PORT)
        assert await _produce(client) == ErrorCode.NONE
        client.close()
        await broker.stop()

    try:
        loop.run_until_complete(play())
    finally:
        loop.close()


def test_broker_that_is_stopped_with_a_full_disk_fails_no_log_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    """What has no room then is derived from the batches at the next start."""
    loop = VirtualLoop(random.Random(1))

    async def play() -> None:
        broker = SimulatedBroker(loop, random.Random(2))
        await broker.start()
        client = await WireClient.connect(PORT)
        assert await _create(client, "t") == ErrorCode.NONE
        for _ in range(5):
            assert await _produce(client) == ErrorCode.NONE
        broker.disk.fill()
        client.close()
        await broker.stop()
        errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert [error for error in errors if "failed" in error or "cannot go on" in error] == []
        assert len([error for error in errors if "not closed cleanly" in error]) == 1
        broker.disk.make_room()
        await broker.start()
        client = await WireClient.connect(PORT)
        assert await _produce(client) == ErrorCode.NONE
        assert broker.broker is not None
        log = broker.broker.log_manager.get(T0)
        assert log is not None
        assert log.log_end_offset == 6
        client.close()
        await broker.stop()

    try:
        loop.run_until_complete(play())
    finally:
        loop.close()


def test_administrators_of_a_broker_that_is_alone_hear_of_its_full_disk_until_there_is_room() -> None:
    """Its metadata store is on the same disk. NOT_CONTROLLER would have clients look for another controller."""
    loop = VirtualLoop(random.Random(1))

    async def play() -> None:
        broker = SimulatedBroker(loop, random.Random(2))
        await broker.start()
        client = await WireClient.connect(PORT)
        assert await _create(client, "t") == ErrorCode.NONE
        broker.disk.fill(20)
        for _ in range(3):  # At once, while the controller begins anew, and long after.
            for code, message in await _administer(client):
                assert code == ErrorCode.KAFKA_STORAGE_ERROR, message
                assert message is not None
                assert "/data" in message
                assert "free space" in message.lower()
            await asyncio.sleep(20.0)
        broker.disk.make_room()
        await asyncio.sleep(ROOM_SECONDS)
        assert {code for code, _ in await _administer(client)} == {ErrorCode.NONE}
        client.close()
        await broker.stop()

    try:
        loop.run_until_complete(play())
    finally:
        loop.close()


async def _administer(client: WireClient) -> list[tuple[int, str | None]]:
    """Make each change that administrators ask for, as (error, message) of each."""
    created = await client.call(
        CreateTopicsRequest(
            topics=[CreatableTopic(name="u", num_partitions=1, replication_factor=1)], timeout_ms=1_000
        ),
        7,
    )
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=1_000
    )
    added = await client.call(more, 3)
    retention = AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    resource = AlterConfigsResource(resource_type=ResourceType.TOPIC, resource_name="t", configs=[retention])
    altered = await client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    deleted = await client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1_000), 6)
    results = [created.topics[0], added.results[0], altered.responses[0], deleted.responses[0]]
    return [(result.error_code, result.error_message) for result in results]


async def _create(client: WireClient, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    response = await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 7)
    return int(response.topics[0].error_code)


async def _produce(client: WireClient) -> int:
    response = await client.call(produce(T0, batch([b"v"])), PRODUCE_VERSION)
    return int(response.responses[0].partition_responses[0].error_code)
