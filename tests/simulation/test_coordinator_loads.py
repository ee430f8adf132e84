"""A coordinator whose log cannot be read at first: clients wait, operators hear of it, and it is read again."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from oncelog.broker.metrics.monitor import task_metrics, warnings
from oncelog.broker.replication.coordinator_log import CoordinatorLog
from oncelog.clients.cli.unserved_coordinators import unserved_coordinators
from oncelog.clients.connection import Address, connect
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.list_groups import ListGroupsRequest
from oncelog.protocol.messages.list_transactions import ListTransactionsRequest
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.requests import (
    committed_partitions,
    fetched_position,
    find_coordinator,
    init_producer_id,
    offset_fetch,
)
from tests.simulation.simulated_broker import PORT, SimulatedBroker
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.wire_client import WireClient

T0 = TopicPartition("t", 0)
GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
ONE_PARTITION = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
SOON_SECONDS = 2.0
"""Seconds within which a log whose read failed has been read again."""
LONGEST_PAUSE_SECONDS = 61.0


def simulate(story: Callable[[SimulatedBroker], Awaitable[None]]) -> None:
    """Play a story with a broker that has stopped in order; each of its coordinators has written something."""
    loop = VirtualLoop(random.Random(1))

    async def play() -> None:
        broker = SimulatedBroker(loop, random.Random(2), ONE_PARTITION)
        await broker.start()
        client = await WireClient.connect(PORT)
        await client.call(
            CreateTopicsRequest(
                topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=1_000
            ),
            7,
        )
        for transactional in (False, True):
            await client.call(find_coordinator("g", transactional=transactional), 2)
        await asyncio.sleep(1.0)
        for offset in range(1, 6):
            assert await commit(client, offset) is ErrorCode.NONE
            assert await init(client) is ErrorCode.NONE
            if offset == 4:  # What is damaged in the last segment would be cut off at the start.
                _roll(broker)
        client.close()
        await broker.stop()
        await story(broker)
        await broker.stop()

    try:
        loop.run_until_complete(play())
    finally:
        loop.close()


def _roll(broker: SimulatedBroker) -> None:
    assert broker.broker is not None
    for topic in (GROUPS, TRANSACTIONS):
        log = broker.broker.log_manager.get(TopicPartition(topic, 0))
        assert log is not None
        log.roll()


async def commit(client: WireClient, offset: int) -> ErrorCode:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    return committed_partitions(await client.call(OffsetCommitRequest(group_id="g", topics=[topic]), 8))[T0]


async def init(client: WireClient) -> ErrorCode:
    return ErrorCode((await client.call(init_producer_id("id"), 4)).error_code)


async def ask(client: WireClient) -> dict[str, ErrorCode]:
    """What each coordinator says to its clients, by its topic."""
    position = fetched_position(await client.call(offset_fetch("g", T0, require_stable=False), 8))
    if position.error is ErrorCode.NONE:
        assert position.offset == 5
    return {GROUPS: position.error, TRANSACTIONS: await init(client)}


async def list_all(client: WireClient) -> set[int]:
    """The errors of requests about all groups and transactional ids."""
    groups = await client.call(ListGroupsRequest(), 4)
    transactions = await client.call(ListTransactionsRequest(), 0)
    return {groups.error_code, transactions.error_code}


async def seen_by_health() -> tuple[str, ...]:
    connection = await connect(Address("127.0.0.1", PORT))
    metadata = await connection.send(MetadataRequest(topics=None), MetadataResponse)
    unserved = await unserved_coordinators(connection, 1, metadata)
    connection.close()
    return unserved


def elect_again(broker: SimulatedBroker, topic: str) -> None:
    """Have a coordinator load its partition as after an election."""
    assert broker.broker is not None
    partition = broker.broker.replica_manager.partition((topic, 0))
    assert partition is not None
    assert partition.leading is not None
    coordinators = {GROUPS: broker.broker.group_coordinator, TRANSACTIONS: broker.broker.transaction_coordinator}
    coordinators[topic].on_elected(0, CoordinatorLog(partition.leading))


def log_file(topic: str) -> str:
    return f"/data/{topic}-0/{0:020d}.log"


@contextmanager
def a_corrupt_batch_in_the_middle(broker: SimulatedBroker, topic: str) -> Iterator[None]:
    """The second batch has an unknown magic byte."""
    path = log_file(topic)
    data = broker.disk.read(path)
    second = 12 + int.from_bytes(data[8:12], "big")
    file = broker.disk.open(path)
    file.write_at(b"\x07", second + 16)
    yield
    file.write_at(data[second + 16 : second + 17], second + 16)


@pytest.mark.parametrize("topic", [GROUPS, TRANSACTIONS])
def test_single_read_error_delays_a_coordinator(topic: str) -> None:
    async def story(broker: SimulatedBroker) -> None:
        await broker.start()
        assert broker.broker is not None
        client = await WireClient.connect(PORT)
        assert set((await ask(client)).values()) == {ErrorCode.NONE}
        broker.disk.fail("read", log_file(topic), times=1)
        elect_again(broker, topic)
        assert (await ask(client))[topic] is LOADING
        await asyncio.sleep(SOON_SECONDS)
        assert set((await ask(client)).values()) == {ErrorCode.NONE}
        assert broker.broker.supervisor.failures[f"load {topic}-0"] == 1
        assert not broker.broker.supervisor.failing
        assert not broker.broker.failure.done()
        client.close()

    simulate(story)


@pytest.mark.parametrize("topic", [GROUPS, TRANSACTIONS])
def test_corrupt_batch_keeps_a_coordinator_from_loading_until_it_is_mended(topic: str) -> None:
    async def story(broker: SimulatedBroker) -> None:
        with a_corrupt_batch_in_the_middle(broker, topic):
            await broker.start()
            assert broker.broker is not None
            client = await WireClient.connect(PORT)
            await asyncio.sleep(300.0)
            other = {GROUPS: TRANSACTIONS, TRANSACTIONS: GROUPS}[topic]
            assert await ask(client) == {topic: LOADING, other: ErrorCode.NONE}
            assert await list_all(client) == {ErrorCode.NONE}, "what is loaded can be listed"
            assert await seen_by_health() == (f"{topic}-0",)
            (warning,) = warnings(broker.broker)
            assert f"'load {topic}-0' keeps failing" in warning
            metrics = {metric.name: metric.samples for metric in task_metrics(broker.broker.supervisor)}
            failing = {each.labels["task"]: each.value for each in metrics["oncelog_background_task_failing"]}
            assert failing[f"load {topic}-0"] == 1
            assert 5 < broker.broker.supervisor.failures[f"load {topic}-0"] < 15
        await asyncio.sleep(LONGEST_PAUSE_SECONDS)
        assert set((await ask(client)).values()) == {ErrorCode.NONE}
        assert not warnings(broker.broker)
        assert await seen_by_health() == ()
        client.close()

    simulate(story)


def test_coordinator_that_cannot_load_is_forgotten_with_its_leadership() -> None:
    """Nothing is read again, and nothing is shown, for a partition that this broker does not lead any more."""

    async def story(broker: SimulatedBroker) -> None:
        with a_corrupt_batch_in_the_middle(broker, GROUPS):
            await broker.start()
            assert broker.broker is not None
            await asyncio.sleep(10.0)
            assert broker.broker.supervisor.failing
            broker.broker.group_coordinator.on_resigned(0)
            await asyncio.sleep(0.1)
            assert not broker.broker.supervisor.failing
            attempts = broker.broker.supervisor.failures[f"load {GROUPS}-0"]
            await asyncio.sleep(300.0)
            assert broker.broker.supervisor.failures[f"load {GROUPS}-0"] == attempts

    simulate(story)
