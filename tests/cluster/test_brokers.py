"""Three broker processes on a real ZooKeeper: killed, stopped, started again, while our own clients use them."""

import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from oncelog.broker.local_cluster.zookeeper_server import ZooKeeperServer
from oncelog.clients.admin.admin import Admin
from oncelog.clients.admin.topics import NewTopic, TopicDescription
from oncelog.clients.connection import Address, connect
from oncelog.clients.consumer import Consumer, ConsumerConfig
from oncelog.clients.producer import Producer, ProducerConfig
from oncelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.processes import LIMIT_SECONDS, ClusterProcess, OncelogProcess, free_port

SECONDS = LIMIT_SECONDS


def wall_clock() -> int:
    return 1_700_000_000_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcess]:
    with ClusterProcess(tmp_path, settings=["num.partitions=6", "group.initial.rebalance.delay.ms=0"]) as running:
        yield running


@pytest.fixture
async def admin(cluster: ClusterProcess) -> AsyncIterator[Admin]:
    async with Admin(cluster.address, rng=Random(1)) as made:
        yield made


async def described(cluster: ClusterProcess, topic: str) -> TopicDescription:
    """As it is now: an administrator that has described it before may remember, and a broker may not know of it yet."""
    found: list[TopicDescription] = []

    async def is_known() -> bool:
        async with Admin(cluster.address, rng=Random(4)) as admin:
            description = (await admin.describe_topics([topic]))[topic]
        if isinstance(description, TopicDescription):
            found.append(description)
        return bool(found)

    await until(is_known)
    return found[0]


async def write_transactions(cluster: ClusterProcess, topic: str, stop: asyncio.Event) -> list[bytes]:
    """Commit small transactions over all partitions until stopped; returns what was committed."""
    committed: list[bytes] = []
    config = ProducerConfig(bootstrap=cluster.address, transactional_id="writer", linger_ms=0)
    async with Producer(config, rng=Random(2), wall_clock=wall_clock) as producer:
        await producer.init_transactions()
        number = 0
        while not stop.is_set():
            values = [b"%d-%d" % (number, partition) for partition in range(6)]
            producer.begin_transaction()
            sent = [await producer.send(topic, value, partition=i) for i, value in enumerate(values)]
            await producer.commit_transaction()
            assert all(future.done() for future in sent)
            committed += values
            number += 1
    return committed


async def read_everything(cluster: ClusterProcess, topic: str, count: int) -> list[bytes]:
    config = ConsumerConfig(bootstrap=cluster.address, group_id="reader", auto_offset_reset="earliest")
    found: list[bytes] = []
    async with Consumer(config, rng=Random(3), wall_clock=wall_clock) as consumer:
        consumer.subscribe([topic])
        async with asyncio.timeout(SECONDS):
            while len(found) < count:
                found += [record.value for record in await consumer.poll(1.0) if record.value is not None]
        found += [record.value for record in await consumer.poll(1.0) if record.value is not None]
        await consumer.commit()
    return found


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it is so; every question is a round trip to a broker."""
    async with asyncio.timeout(SECONDS):
        while not await condition():
            pass


async def verb(cluster: ClusterProcess, *words: object) -> None:
    await asyncio.to_thread(cluster.verb, *words)  # type: ignore[arg-type]


async def controller_of(admin: Admin) -> int:
    found = (await admin.describe_cluster()).controller_id
    assert found is not None
    return found


async def test_transactions_go_on_exactly_once_while_brokers_die_and_come_back(
    cluster: ClusterProcess, admin: Admin
) -> None:
    """The controller first, then one of the others, then one that is stopped in an orderly way."""
    await admin.create_topics([NewTopic(name="t", partitions=6, replication_factor=3)])
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(write_transactions(cluster, "t", stop))
        for how in ("kill", "kill", "stop"):
            victim = await controller_of(admin)
            await verb(cluster, how, victim)
            await verb(cluster, "start", victim)
        stop.set()
    committed = writing.result()
    assert len(committed) > 60
    found = await read_everything(cluster, "t", len(committed))
    assert sorted(found) == sorted(committed)

    async def is_whole() -> bool:
        return all(len(p.isr) == 3 for p in (await described(cluster, "t")).partitions)

    await until(is_whole)


async def test_killed_controller_is_replaced_long_before_its_session_ends(
    cluster: ClusterProcess, admin: Admin
) -> None:
    """Its session lasts 18 s, and nobody waits for that."""
    await admin.create_topics([NewTopic(name="t", partitions=6, replication_factor=3)])
    before = await controller_of(admin)
    loop = asyncio.get_running_loop()
    await verb(cluster, "kill", before)
    began = loop.time()

    async def is_replaced() -> bool:
        leaders = {partition.leader for partition in (await described(cluster, "t")).partitions}
        return await controller_of(admin) != before and leaders.isdisjoint({before, None})

    await until(is_replaced)
    assert loop.time() - began < 6.0
    began = loop.time()
    await verb(cluster, "start", before)
    assert loop.time() - began < 12.0  # It ended its old session by itself.


async def reassign(cluster: ClusterProcess, admin: Admin, topic: str, replicas: list[int]) -> None:
    """Move all partitions of a topic, and wait until they have arrived."""
    host, _, port = cluster.address.split(",")[await controller_of(admin) - 1].rpartition(":")
    partitions = [
        ReassignablePartition(partition_index=each.partition, replicas=replicas)
        for each in (await described(cluster, topic)).partitions
    ]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=partitions)])
    connection = await connect(Address(host, int(port)))
    try:
        response = await connection.send(request, AlterPartitionReassignmentsResponse)
    finally:
        connection.close()
    errors = {each.error_code for found in response.responses for each in found.partitions}
    assert (response.error_code, errors) == (0, {0})

    async def has_arrived() -> bool:
        return all(list(each.replicas) == replicas for each in (await described(cluster, topic)).partitions)

    await until(has_arrived)


async def test_topic_created_again_is_replicated_by_broker_that_missed_the_move_of_the_former_one(
    cluster: ClusterProcess, admin: Admin
) -> None:
    """The broker is down while its replicas are moved away, and the controller that moved them is gone by its start."""
    await admin.create_topics([NewTopic(name="t", partitions=3, replication_factor=3)])
    former = await controller_of(admin)
    victim, other = sorted({1, 2, 3} - {former})
    await verb(cluster, "kill", victim)
    await reassign(cluster, admin, "t", [former, other])
    await verb(cluster, "restart", former)
    await verb(cluster, "start", victim)
    data = cluster.directory / "cluster" / f"broker-{victim}"

    async def is_set_aside() -> bool:
        await described(cluster, "t")
        return len(list(data.glob("t-?.*-stray"))) == 3

    await until(is_set_aside)
    await admin.delete_topics(["t"])
    await admin.create_topics([NewTopic(name="t", partitions=3, replication_factor=3)])

    async def is_whole() -> bool:
        return all(len(each.isr) == 3 for each in (await described(cluster, "t")).partitions)

    await until(is_whole)


class Members:
    """Single brokers on a ZooKeeper that the test has for itself."""

    def __init__(self, directory: Path, server: ZooKeeperServer) -> None:
        self.directory = directory
        self.server = server

    def broker(self, broker_id: int | None, *settings: str) -> OncelogProcess:
        own = [] if broker_id is None else [f"broker.id={broker_id}"]
        joined = [f"zookeeper.connect={self.server.address}/c", "zookeeper.session.timeout.ms=4000", *own, *settings]
        return OncelogProcess(self.directory / f"broker-{broker_id}", joined)


@pytest.fixture
def members(tmp_path: Path, zookeeper_jars: None) -> Iterator[Members]:
    server = ZooKeeperServer(tmp_path / "zookeeper", free_port(), tick_ms=200)
    server.start()
    yield Members(tmp_path, server)
    server.stop()


def log_of(process: OncelogProcess) -> str:
    return (process.directory / "stderr.log").read_text()


def test_broker_without_its_session_file_waits_and_logs_how_long(members: Members) -> None:
    broker = members.broker(1)
    broker.start()
    broker.kill()
    (broker.data_directory / "zookeeper-session").unlink()
    with broker:
        said = (
            rf"Broker id 1 is still registered by session 0x\w+, at PLAINTEXT://localhost:{broker.port},.*at most \d s"
        )
        assert re.search(said, log_of(broker))


def test_start_on_a_copied_data_directory_leaves_the_live_broker_its_session(members: Members) -> None:
    with members.broker(1) as first:
        session = (first.data_directory / "zookeeper-session").read_bytes()
        copied = members.directory / "copied"
        shutil.copytree(first.data_directory, copied)
        other = members.broker(1, f"log.dirs={copied}")
        other.launch()
        assert other.process is not None
        assert other.process.wait(SECONDS) == 1
        other.stop()
        assert "it is left to expire" in log_of(other)
        assert "taken by a live broker" in log_of(other)
        assert (first.data_directory / "zookeeper-session").read_bytes() == session
        assert "session with ZooKeeper" not in log_of(first)


def test_broker_id_that_is_in_use_is_refused(members: Members) -> None:
    """At once, although the session of a broker that was killed would have to be waited for."""
    with members.broker(1, "zookeeper.session.timeout.ms=1000") as first:
        other = members.broker(1, "zookeeper.session.timeout.ms=60000", f"log.dirs={members.directory}/other")
        other.launch()
        assert other.process is not None
        assert other.process.wait(SECONDS) == 1
        other.stop()
        place = f"PLAINTEXT://localhost:{first.port}"
        said = f"oncelog: the broker cannot start: broker.id=1 is taken by a live broker, at {place}: choose another"
        assert said in log_of(other)
        assert "still registered" not in log_of(other)
        assert not (members.directory / "other" / "meta.properties").exists()
        assert "Traceback" not in log_of(other)


def test_ids_are_generated_beyond_those_that_are_chosen_and_kept(members: Members) -> None:
    broker = members.broker(None)
    for _ in range(2):
        with broker:
            pass
    said = (broker.directory / "stdout.log").read_text()
    assert re.findall(r"KafkaServer id=(\d+)", said) == ["1001", "1001"]
    assert "broker.id=1001" in (broker.data_directory / "meta.properties").read_text()


def test_directory_of_another_cluster_is_refused(members: Members) -> None:
    """Such as after ZooKeeper has lost its data: the topics in the directory are unknown to the new cluster."""
    broker = members.broker(1)
    with broker:
        pass
    broker.settings = [*broker.settings, f"zookeeper.connect={members.server.address}/another"]
    broker.launch()
    assert broker.process is not None
    assert broker.process.wait(SECONDS) == 1
    broker.stop()
    assert re.search(r"the data directory is not this broker's: \S+ belongs to cluster \S+, not \S+:", log_of(broker))
    assert "zookeeper.connect (--zookeeper)" in log_of(broker)
    assert "log.dirs (--data-dir)" in log_of(broker)


def test_broker_without_zookeeper_reports_it(tmp_path: Path) -> None:
    port = free_port()
    words = ["--port", "0", "--data-dir", str(tmp_path / "d"), "--broker-id", "1", "--zookeeper", f"127.0.0.1:{port}"]
    done = subprocess.run(
        [sys.executable, "-m", "oncelog", "serve", *words, "--set", "zookeeper.connection.timeout.ms=2500"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert (
        f"no session with ZooKeeper at 127.0.0.1:{port} (zookeeper.connect) within 2.5 s (Connection dropped:"
        in done.stderr
    )
    assert (
        f"ZooKeeper at 127.0.0.1:{port} (zookeeper.connect) has not responded for 2 s (Connection dropped:"
        in done.stderr
    )
    assert "see that ZooKeeper runs, and that this is the address of its client port" in done.stderr
    assert "Traceback" not in done.stderr
    assert "kazoo" not in done.stderr
