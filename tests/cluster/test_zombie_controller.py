"""A controller that slept through the end of its session, as a real process: it wakes up and changes nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from oncelog.clients.admin.admin import Admin
from oncelog.clients.admin.topics import NewTopic
from oncelog.clients.connection import Address, connect
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Session, Znode
from oncelog.coordinator.metadata_store.zookeeper import connect_zookeeper
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.topic_partition import TopicPartition
from tests.processes import LIMIT_SECONDS, ClusterProcess

SECONDS = LIMIT_SECONDS
ASLEEP_SECONDS = 3.0
PARTITIONS = 6
SESSION = "zookeeper.session.timeout.ms=2000"
"""So that it ends while the controller sleeps."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcess]:
    with ClusterProcess(tmp_path, settings=[SESSION]) as running:
        yield running


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it is so; every question is some round trips to ZooKeeper."""
    async with asyncio.timeout(SECONDS):
        while not await condition():
            pass


@asynccontextmanager
async def looking_at(cluster: ClusterProcess) -> AsyncIterator[Session]:
    """ZooKeeper, through a session of the test's own."""
    members = await asyncio.to_thread(cluster.verb, "status")
    store = await connect_zookeeper(
        members["zookeeper"]["address"], session_timeout_ms=30_000, connection_timeout_ms=30_000
    )
    try:
        assert store.session is not None
        yield store.session
    finally:
        await store.close()


async def everything(session: Session, path: str = "/") -> dict[str, Znode]:
    """All znodes but ZooKeeper's own."""
    found = {}
    for name in await session.children(path) or ():
        child = f"{path.rstrip('/')}/{name}"
        znode = None if child == "/zookeeper" else await session.get(child)
        if znode is not None:
            found[child] = znode
            found |= await everything(session, child)
    return found


def partition_states(tree: dict[str, Znode]) -> dict[str, znodes.PartitionState]:
    states = [paths.partition_state(TopicPartition("t", partition)) for partition in range(PARTITIONS)]
    return {path: znodes.decode_partition_state(tree[path].data) for path in states}


def epoch_in(tree: dict[str, Znode]) -> int:
    return znodes.decode_controller_epoch(tree[paths.CONTROLLER_EPOCH].data)


async def test_controller_that_slept_through_the_end_of_its_session_changes_no_znode(
    cluster: ClusterProcess,
) -> None:
    """B62. It is even asked to create a topic while it sleeps, so that this is the first thing that it sees."""
    loop = asyncio.get_running_loop()
    async with Admin(cluster.address, rng=Random(1)) as admin, looking_at(cluster) as session:
        await admin.create_topics([NewTopic(name="t", partitions=PARTITIONS, replication_factor=3)])
        zombie = (await admin.describe_cluster()).controller_id
        assert zombie is not None
        host, _, port = cluster.address.split(",")[zombie - 1].rpartition(":")
        connection = await connect(Address(host, int(port)))
        its_epoch = epoch_in(await everything(session))
        began = loop.time()
        await asyncio.to_thread(cluster.verb, "pause", zombie)
        late = CreatableTopic(name="late", num_partitions=1, replication_factor=1)
        response = connection.send(CreateTopicsRequest(topics=[late], timeout_ms=30_000), CreateTopicsResponse)

        async def is_replaced() -> bool:
            now = await everything(session)
            done = paths.broker(zombie) not in now and epoch_in(now) > its_epoch
            return done and all(zombie not in state.isr for state in partition_states(now).values())

        await until(is_replaced)
        await asyncio.sleep(max(0.0, began + ASLEEP_SECONDS - loop.time()))
        before = await everything(session)
        await asyncio.to_thread(cluster.verb, "resume", zombie)

        async def is_back() -> bool:
            now = await everything(session)
            return all(len(state.isr) == 3 for state in partition_states(now).values())

        await until(is_back)
        after = await everything(session)
        (reported,) = (await response).topics
        connection.close()

    assert reported.error_code == ErrorCode.NOT_CONTROLLER
    changed = {path for path in before.keys() | after.keys() if _id(before, path) != _id(after, path)}
    assert changed - partition_states(after).keys() == {paths.broker(zombie), paths.last_registration(zombie)}
    # Those that took it back into their ISR were written by the controller of now.
    assert all(state.controller_epoch == epoch_in(after) for state in partition_states(after).values())
    assert after[paths.CONTROLLER].stat.ephemeral_owner != after[paths.broker(zombie)].stat.ephemeral_owner


def _id(tree: dict[str, Znode], path: str) -> int | None:
    """Of the transaction that last set a znode."""
    return tree[path].stat.mzxid if path in tree else None
