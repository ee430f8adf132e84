"""Transactions on three real brokers with everything replicated, whose leaders, coordinators and controllers die.

The clients are our own producer and reader. At the end all replicas agree, what was committed is there once and in
order, and nothing that was aborted is visible. Between two deaths the cluster has time to become whole again: that a
record is on two brokers at least is what these tests hold, not that three deaths at once are survived.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from oncelog.broker.replication.partition import Partition
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import ClientError
from oncelog.clients.log_reader import LogReader
from oncelog.clients.producer import Producer, ProducerConfig
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.cluster_stories import create, simulate
from tests.simulation.replication_history import batches
from tests.simulation.simulated_cluster import ClusterBroker, SimulatedCluster
from tests.simulation.virtual_loop import VirtualLoop

REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "3000",
}
BOOTSTRAP = "127.0.0.1:9101,127.0.0.1:9102,127.0.0.1:9103"
NOW_MS = 1_750_000_000_000
JOURNALS = [TopicPartition("journal", index) for index in range(3)]


@dataclass(slots=True)
class Writer:
    """Runs transactions one after the other, and remembers how they ended."""

    name: str
    rng: random.Random
    wall_clock_ms: int = NOW_MS
    committed: list[list[tuple[TopicPartition, bytes]]] = field(default_factory=list)
    aborted: list[list[tuple[TopicPartition, bytes]]] = field(default_factory=list)
    unknown: list[list[tuple[TopicPartition, bytes]]] = field(default_factory=list)
    stopping: bool = False
    _count: int = 0

    async def run(self) -> None:
        while not self.stopping:
            config = ProducerConfig(
                bootstrap=BOOTSTRAP, transactional_id=self.name, linger_ms=0, transaction_timeout_ms=10_000
            )
            try:
                async with Producer(config, rng=self.rng, wall_clock=lambda: self.wall_clock_ms) as producer:
                    await producer.init_transactions()
                    while not self.stopping:
                        await self._one(producer)
            except ClientError:
                await asyncio.sleep(0.1)  # The producer is of no use any more; its successor fences it.

    async def _one(self, producer: Producer) -> None:
        values: list[tuple[TopicPartition, bytes]] = []
        fate = self.unknown
        try:
            producer.begin_transaction()
            for partition in self.rng.sample(JOURNALS, self.rng.randint(1, 3)):
                self._count += 1
                value = b"%s-%d" % (self.name.encode(), self._count)
                values.append((partition, value))
                await producer.send(partition.topic, value, partition=partition.partition)
                if self.rng.random() < 0.3:
                    await asyncio.sleep(self.rng.uniform(0, 0.05))
            if self.rng.random() < 0.8:
                await producer.commit_transaction()
                fate = self.committed
            else:
                await producer.abort_transaction()
                fate = self.aborted
        except ClientError as error:
            if error.is_fatal:
                raise
            await producer.abort_transaction()
            fate = self.aborted
        finally:
            fate.append(values)


async def whole(cluster: SimulatedCluster) -> None:
    """Wait until every broker is there and in sync with the others in everything."""

    def is_whole() -> bool:
        return all(
            len(leading.progress.in_sync.isr) == len(leading.progress.in_sync.replicas) == 3
            for broker in cluster.alive
            for partition in broker.running.replica_manager.partitions()
            if (leading := partition.leading) is not None
        )

    deadline = cluster.loop.time() + 60
    while not is_whole():
        assert cluster.loop.time() < deadline, "the cluster does not become whole"
        await asyncio.sleep(0.05)


def victim(cluster: SimulatedCluster, rng: random.Random) -> ClusterBroker:
    """Return a broker whose death matters: the controller, a leader or a transaction coordinator."""
    coordinators = [
        broker.broker_id
        for broker in cluster.alive
        for partition in broker.running.replica_manager.partitions()
        if partition.leading is not None and partition.topic_partition.topic == "__transaction_state"
    ]
    return cluster[rng.choice([*cluster.controllers, *coordinators, *(b.broker_id for b in cluster.alive)])]


async def read_all(*, read_committed: bool) -> dict[TopicPartition, list[bytes]]:
    cluster = Cluster(parse_bootstrap(BOOTSTRAP), rng=random.Random(1))
    found: dict[TopicPartition, list[bytes]] = {partition: [] for partition in JOURNALS}
    try:
        reader = LogReader(cluster, dict.fromkeys(JOURNALS, 0), read_committed=read_committed, wait_ms=50)
        for _ in range(20):
            for fetched in await reader.poll():
                found[fetched.topic_partition] += [record.value or b"" for record in fetched.records]
    finally:
        await cluster.close()
    return found


def check_replicas(cluster: SimulatedCluster) -> None:
    """All logs are equal, byte for byte, and replicated to their ends."""
    replicas: dict[TopicPartition, list[Partition]] = {}
    for broker in cluster.alive:
        for partition in broker.running.replica_manager.partitions():
            replicas.setdefault(partition.topic_partition, []).append(partition)
    for name, partitions in replicas.items():
        logs = [partition.log for partition in partitions]
        contents = [batches(log, 0) for log in logs if log is not None]
        assert len(contents) == 3, name
        assert contents.count(contents[0]) == 3, f"the replicas of {name} differ"
        assert {log.high_watermark for log in logs if log is not None} == {logs[0].log_end_offset if logs[0] else -1}


async def story(cluster: SimulatedCluster, rng: random.Random, deaths: int) -> Counter[str]:
    await create(cluster, "journal", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    writers = [Writer(f"w{number}", random.Random(rng.random())) for number in range(2)]
    tasks = [asyncio.get_running_loop().create_task(writer.run()) for writer in writers]
    for _ in range(deaths):
        await asyncio.sleep(rng.uniform(0.5, 1.5))
        await whole(cluster)
        dead = victim(cluster, rng)
        dead.kill()
        await asyncio.sleep(rng.uniform(0.1, 3))
        await dead.start()
    await whole(cluster)
    await asyncio.sleep(1)
    for writer in writers:
        writer.stopping = True
    await asyncio.wait_for(asyncio.gather(*tasks), 120)
    await asyncio.sleep(15)  # Transactions without an end time out.
    await whole(cluster)
    check_replicas(cluster)
    visible, everything = await read_all(read_committed=True), await read_all(read_committed=False)
    for partition in JOURNALS:
        assert len(set(everything[partition])) == len(everything[partition]), f"{partition} has something twice"
    for writer in writers:
        for transaction in writer.committed:
            assert all(value in visible[partition] for partition, value in transaction), f"lost: {transaction}"
        for transaction in writer.aborted:
            assert not any(value in visible[partition] for partition, value in transaction), f"torn: {transaction}"
        for transaction in writer.unknown:
            assert len({value in visible[partition] for partition, value in transaction}) <= 1, f"torn: {transaction}"
    return Counter(
        committed=sum(len(writer.committed) for writer in writers),
        aborted=sum(len(writer.aborted) for writer in writers),
        unknown=sum(len(writer.unknown) for writer in writers),
    )


def run(seed: int, deaths: int = 3) -> Counter[str]:
    rng = random.Random(seed)
    loop = VirtualLoop(rng)

    async def play() -> Counter[str]:
        cluster = SimulatedCluster(loop, random.Random(seed + 1), settings=REPLICATED)
        await cluster.start()
        return await story(cluster, rng, deaths)

    try:
        return loop.run_until_complete(play())
    finally:
        loop.set_exception_handler(lambda loop, context: None)
        for process in loop.processes:
            process.kill()
        loop.close()


@pytest.mark.parametrize("seed", range(2))
def test_deaths_lose_nothing_and_tear_nothing(seed: int) -> None:
    """B60, B83: committed is on every in-sync replica, and a new coordinator ends what the old one began."""
    events = run(seed)
    assert events["committed"] > 20, events


CROWD = 100


async def crowd(cluster: SimulatedCluster) -> None:
    await create(cluster, "__transaction_state", (1, 2))
    await create(cluster, "journal", (1,))
    config = ProducerConfig(bootstrap="127.0.0.1:9101", linger_ms=0, transaction_timeout_ms=10_000)
    producers = [
        Producer(replace(config, transactional_id=f"p{number}"), rng=random.Random(number), wall_clock=lambda: NOW_MS)
        for number in range(CROWD)
    ]
    for number, producer in enumerate(producers):
        await producer.start()
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send("journal", b"%d" % number, partition=0)
    await asyncio.gather(*(producer.flush() for producer in producers))
    cluster[2].kill()
    await asyncio.wait_for(asyncio.gather(*(producer.commit_transaction() for producer in producers)), 60)
    await asyncio.gather(*(producer.close() for producer in producers))
    journal = cluster[1].running.replica_manager.partition(JOURNALS[0])
    assert journal is not None
    assert journal.log is not None
    assert not journal.log.failed
    assert len(batches(journal.log, 0)) == 2 * CROWD, "a record or a marker each"
    assert journal.log.log_end_offset == 2 * CROWD
    assert len((await read_all(read_committed=True))[JOURNALS[0]]) == CROWD


def test_transactions_that_waited_for_the_same_follower_are_completed_when_it_dies() -> None:
    """The coordinator is alone then: each Prepare that is released appends markers and Complete, replicated at once."""
    simulate(crowd, brokers=2, settings={"transaction.state.log.min.isr": "1", "min.insync.replicas": "1"})
