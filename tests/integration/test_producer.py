"""The producer against a broker process: what it acknowledges is there, once and in order, and no more.

``INTEROP_BROKER=kafka`` runs the same against Apache Kafka 4, ``kafka-3.9`` against 3.9.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

from oncelog.clients.admin.features import FeatureUpdate, update_features
from oncelog.clients.admin.topics import NewTopic, create_topics
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from oncelog.clients.consumer import Consumer, ConsumerConfig, ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata
from oncelog.clients.errors import ClientError, IllegalState, ProducerFenced, TransactionAborted
from oncelog.clients.producer import FutureRecordMetadata, Producer, ProducerConfig
from oncelog.protocol.topic_partition import TopicPartition
from tests.processes import KAFKA_3_9, KAFKA_4, LIMIT_SECONDS, BrokerProcess, KafkaProcess, OncelogProcess

PARTITIONS = 3
LIBRARIES = {"kafka": KAFKA_4, "kafka-3.9": KAFKA_3_9}
BROKER = os.environ.get("INTEROP_BROKER", "oncelog")
SECONDS = LIMIT_SECONDS
ours_only = pytest.mark.skipif(BROKER != "oncelog", reason="starts and changes the broker as only ours can be")
PROTOCOLS = ["1"] if BROKER == "kafka-3.9" else ["1", "2"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("broker")
    made = KafkaProcess(directory, library=LIBRARIES[BROKER]) if BROKER in LIBRARIES else OncelogProcess(directory)
    with made:
        yield made


def cut_connections(producer: Producer) -> None:
    """End all connections of a producer as a network does, without a word to its requests."""
    for connection in list(producer._runtime.cluster.pool._connections.values()):
        connection._transport.abort()


def bounded(work: Awaitable[None]) -> None:
    async def run() -> None:
        async with asyncio.timeout(SECONDS):
            await work

    asyncio.run(run())


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


def cluster_of(broker: BrokerProcess) -> Cluster:
    return Cluster(parse_bootstrap(broker.address), rng=Random(1))


async def new_topic(broker: BrokerProcess, name: str, partitions: int = PARTITIONS) -> str:
    async with cluster_of(broker) as cluster:
        topic = NewTopic(name=name, partitions=partitions, replication_factor=1)
        assert await create_topics(cluster, [topic]) == {name: None}
    return name


def producer_of(broker: BrokerProcess, **settings: Any) -> Producer:
    return Producer(ProducerConfig(bootstrap=broker.address, **settings), rng=Random(1), wall_clock=wall_clock)


@asynccontextmanager
async def transactional(broker: BrokerProcess, transactional_id: str, **settings: Any) -> AsyncIterator[Producer]:
    async with producer_of(broker, transactional_id=transactional_id, **settings) as producer:
        await producer.init_transactions()
        yield producer


async def stored(broker: BrokerProcess, topic: str, *, committed: bool = True) -> dict[int, list[ConsumerRecord]]:
    """All records of a topic, by partition."""
    config = ConsumerConfig(
        bootstrap=broker.address, isolation_level="read_committed" if committed else "read_uncommitted"
    )
    async with Consumer(config, rng=Random(1), wall_clock=wall_clock) as consumer:
        async with cluster_of(broker) as cluster:
            count = len((await cluster.topics([topic]))[topic].partitions)
        partitions = [TopicPartition(topic, index) for index in range(count)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        consumer.seek_to_beginning()
        found: dict[int, list[ConsumerRecord]] = {index: [] for index in range(count)}
        while any([await consumer.position(each) < ends[each] for each in partitions]):
            for record in await consumer.poll(0.5):
                found[record.partition].append(record)
        return found


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return [int(record.value or b"-1") for record in records]


async def send_numbers(producer: Producer, topic: str, count: int) -> list[FutureRecordMetadata]:
    return [
        await producer.send(topic, b"%d" % number, key=b"%d" % (number % 10), partition=number % PARTITIONS)
        for number in range(count)
    ]


def assert_exactly(found: dict[int, list[ConsumerRecord]], count: int) -> None:
    """Each number once, in its partition, in order."""
    for index, records in found.items():
        assert numbers(records) == list(range(index, count, PARTITIONS))


# Records


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_that_are_sent_are_stored(broker: BrokerProcess, codec: str) -> None:
    async def work() -> None:
        topic = await new_topic(broker, f"stored-{codec}")
        async with producer_of(broker, compression=codec) as producer:
            futures = [
                await producer.send(
                    topic, b"%d" % number, key=b"key-%d" % number, headers=[("h", b"%d" % number), ("null", None)]
                )
                for number in range(500)
            ]
            tombstone = await (await producer.send(topic, None, key=b"gone", timestamp_ms=1_700_000_000_000))
            placed = [await future for future in futures]
        found = await stored(broker, topic)
        for number, metadata in enumerate(placed):
            record = found[metadata.partition][metadata.offset]
            assert (record.key, record.value) == (b"key-%d" % number, b"%d" % number)
            assert list(record.headers) == [("h", b"%d" % number), ("null", None)]
            assert record.timestamp_ms == metadata.timestamp_ms
        record = found[tombstone.partition][tombstone.offset]
        assert (record.value, record.timestamp_ms) == (None, 1_700_000_000_000)
        assert sum(map(len, found.values())) == 501

    bounded(work())


@pytest.mark.parametrize(("acks", "idempotent"), [("all", True), ("all", False), ("1", False), ("0", False)])
def test_many_records_in_order(broker: BrokerProcess, acks: Literal["all", "1", "0"], idempotent: bool) -> None:
    async def work() -> None:
        topic = await new_topic(broker, f"many-{acks}-{idempotent}")
        assert_exactly(
            await stored(broker, topic), 0
        )  # Its leaders lead: without acknowledgements nothing else would show it.
        async with producer_of(broker, acks=acks, enable_idempotence=idempotent, batch_bytes=4096) as producer:
            futures = await send_numbers(producer, topic, 20_000)
            await producer.flush()
            assert all(future.exception() is None for future in futures)
        assert_exactly(await stored(broker, topic), 20_000)

    bounded(work())


def test_topic_is_created_by_sending_to_it(broker: BrokerProcess) -> None:
    async def work() -> None:
        async with producer_of(broker) as producer:
            assert (await (await producer.send("created-by-sending", b"0"))).offset == 0

    bounded(work())


def test_batches_beyond_the_brokers_limit_are_split(broker: BrokerProcess) -> None:
    async def work() -> None:
        async with cluster_of(broker) as cluster:
            limited = NewTopic(name="small", partitions=1, replication_factor=1, configs={"max.message.bytes": "2000"})
            assert await create_topics(cluster, [limited]) == {"small": None}
        async with producer_of(broker, linger_ms=50) as producer:
            futures = [await producer.send("small", b"%d" % number + bytes(0)) for number in range(1000)]
            big = await producer.send("small", bytes(3000))
            await producer.flush()
            assert isinstance(big.exception(), ClientError)
            assert [future.result().offset for future in futures] == list(range(1000))
        assert numbers((await stored(broker, "small"))[0]) == list(range(1000))

    bounded(work())


def test_cut_connections_lose_and_double_nothing(broker: BrokerProcess) -> None:
    async def work() -> None:
        topic = await new_topic(broker, "cut")
        rng = Random(7)
        async with producer_of(broker, linger_ms=0, batch_bytes=1024, retry_backoff_ms=5) as producer:
            futures: list[FutureRecordMetadata] = []
            for number in range(6_000):
                partition = number % PARTITIONS
                futures.append(await producer.send(topic, b"%d" % number, partition=partition))
                if rng.random() < 0.005:
                    cut_connections(producer)
                    await asyncio.sleep(rng.random() * 0.01)
            await producer.flush()
            assert {future.exception() for future in futures} == {None}
        found = await stored(broker, topic)
        assert_exactly(found, 6_000)
        for number, future in enumerate(futures):
            metadata = future.result()
            assert numbers([found[metadata.partition][metadata.offset]]) == [number]

    bounded(work())


@ours_only
def test_broker_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async def work(process: OncelogProcess) -> None:
        topic = await new_topic(process, "killed")
        loop = asyncio.get_running_loop()
        async with producer_of(process, linger_ms=1, retry_backoff_ms=5, connect_timeout_ms=2_000) as producer:
            futures: list[FutureRecordMetadata] = []
            for chunk in range(4):
                for number in range(chunk * 3000, (chunk + 1) * 3000):
                    futures.append(await producer.send(topic, b"%d" % number, partition=number % PARTITIONS))
                process.kill()
                await loop.run_in_executor(None, process.start)
            await producer.flush()
            assert {future.exception() for future in futures} == {None}
        assert_exactly(await stored(process, topic), 12_000)

    with OncelogProcess(tmp_path) as process:
        bounded(work(process))


# Transactions


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_transactions_are_all_or_nothing(broker: BrokerProcess, protocol: str) -> None:
    async def work() -> None:
        topic = await new_topic(broker, f"transactions-{protocol}")
        async with transactional(broker, topic, transaction_protocol=protocol) as producer:
            assert producer.transaction_protocol == int(protocol)
            for number in range(30):
                producer.begin_transaction()
                futures = [
                    await producer.send(topic, b"%d" % number, partition=partition) for partition in range(PARTITIONS)
                ]
                if number % 3 == 2:
                    await producer.flush()
                    await producer.abort_transaction()
                elif number % 3 == 1:
                    await producer.abort_transaction()
                    assert all(isinstance(future.exception(), TransactionAborted) for future in futures)
                else:
                    await producer.commit_transaction()
                    assert all(future.exception() is None for future in futures)
        for records in (await stored(broker, topic)).values():
            assert numbers(records) == list(range(0, 30, 3))

    bounded(work())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_commit_and_abort_with_their_transaction(broker: BrokerProcess, protocol: str) -> None:
    async def work() -> None:
        topic = await new_topic(broker, f"offsets-{protocol}")
        source = TopicPartition(topic, 0)
        group = ConsumerGroupMetadata(group_id=f"readers-{protocol}")
        config = ConsumerConfig(bootstrap=broker.address, group_id=group.group_id)
        async with (
            transactional(broker, topic, transaction_protocol=protocol) as producer,
            Consumer(config, rng=Random(1), wall_clock=wall_clock) as consumer,
        ):
            for offset, commits in ((5, True), (9, False), (7, True), (11, False)):
                producer.begin_transaction()
                if offset != 7:
                    await producer.send(topic, b"%d" % offset, partition=1)
                await producer.send_offsets_to_transaction({source: OffsetAndMetadata(offset, -1, "mine")}, group)
                await (producer.commit_transaction() if commits else producer.abort_transaction())
                committed = (await consumer.committed([source]))[source]
                assert committed is not None
                assert (committed.offset, committed.metadata) == ({9: 5, 11: 7}.get(offset, offset), "mine")
        assert numbers((await stored(broker, topic))[1]) == [5]

    bounded(work())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_successor_fences_and_ends_what_was_open(broker: BrokerProcess, protocol: str) -> None:
    async def work() -> None:
        topic = await new_topic(broker, f"fencing-{protocol}")
        async with transactional(broker, topic, transaction_protocol=protocol) as former:
            former.begin_transaction()
            await (await former.send(topic, b"1", partition=0))
            async with transactional(broker, topic, transaction_protocol=protocol) as latter:
                latter.begin_transaction()
                await latter.send(topic, b"2", partition=0)
                await latter.commit_transaction()
                await former.send(topic, b"3", partition=0)
                with pytest.raises(ClientError) as raised:
                    await former.commit_transaction()
                if raised.value.is_abortable:
                    with pytest.raises(ProducerFenced):
                        await former.abort_transaction()
                with pytest.raises(ProducerFenced):
                    former.begin_transaction()
                latter.begin_transaction()
                await latter.send(topic, b"4", partition=0)
                await latter.commit_transaction()
        assert numbers((await stored(broker, topic))[0]) == [2, 4]

    bounded(work())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_transactions_survive_cut_connections(broker: BrokerProcess, protocol: str) -> None:
    async def work() -> None:
        topic = await new_topic(broker, f"cut-transactions-{protocol}")
        rng = Random(11)
        committed: list[int] = []
        settings = {"transaction_protocol": protocol, "retry_backoff_ms": 5, "linger_ms": 0}
        async with transactional(broker, topic, **settings) as producer:
            for number in range(60):
                producer.begin_transaction()
                for partition in range(PARTITIONS):
                    await producer.send(topic, b"%d" % number, partition=partition)
                if rng.random() < 0.5:
                    await asyncio.sleep(rng.random() * 0.005)
                    cut_connections(producer)
                try:
                    await producer.commit_transaction()
                    committed.append(number)
                except ClientError as error:
                    if not error.is_abortable:
                        raise
                    await producer.abort_transaction()
        assert len(committed) > 30
        for records in (await stored(broker, topic)).values():
            assert numbers(records) == committed

    bounded(work())


@ours_only
def test_transactions_survive_a_broker_that_is_killed(tmp_path: Path) -> None:
    async def work(process: OncelogProcess) -> None:
        topic = await new_topic(process, "killed-transactions")
        loop = asyncio.get_running_loop()
        committed: list[int] = []
        settings = {"retry_backoff_ms": 5, "connect_timeout_ms": 2_000}
        async with transactional(process, topic, **settings) as producer:
            for number in range(40):
                producer.begin_transaction()
                futures = [await producer.send(topic, b"%d" % number, partition=index) for index in range(PARTITIONS)]
                if number % 10 == 3:
                    await futures[0]
                if number % 10 in (3, 7):
                    process.kill()
                    await loop.run_in_executor(None, process.start)
                try:
                    await producer.commit_transaction()
                    committed.append(number)
                except ClientError as error:
                    if not error.is_abortable:
                        raise
                    await producer.abort_transaction()
        assert len(committed) > 30
        for records in (await stored(process, topic)).values():
            assert numbers(records) == committed

    with OncelogProcess(tmp_path) as process:
        bounded(work(process))


@ours_only
def test_producer_follows_upgrades_and_downgrades_between_its_transactions(tmp_path: Path) -> None:
    async def work(process: OncelogProcess) -> None:
        topic = await new_topic(process, "levels")
        followed = []
        async with transactional(process, topic) as producer, cluster_of(process) as cluster:
            for number, level in enumerate((2, 1, 1, 2, 2, 0, 0)):
                if number:
                    update = FeatureUpdate(level=level, allow_downgrade=level < 2)
                    await update_features(cluster, {"transaction.version": update}, validate_only=False)
                    cut_connections(producer)
                producer.begin_transaction()
                for partition in range(PARTITIONS):
                    await producer.send(topic, b"%d" % number, partition=partition)
                await producer.commit_transaction()
                followed.append(producer.transaction_protocol)
        assert followed == [2, 1, 1, 2, 2, 1, 1]
        for records in (await stored(process, topic)).values():
            assert numbers(records) == list(range(7))

    with OncelogProcess(tmp_path) as process:
        bounded(work(process))


def test_producers_side_by_side(broker: BrokerProcess) -> None:
    async def work() -> None:
        topic = await new_topic(broker, "side-by-side", 8)

        async def one(name: int) -> None:
            settings = {"transactional_id": f"{topic}-{name}"} if name % 2 else {}
            async with producer_of(broker, **settings) as producer:
                if name % 2:
                    await producer.init_transactions()
                for number in range(20):
                    if name % 2:
                        producer.begin_transaction()
                    for _ in range(10):
                        await producer.send(topic, b"%d" % number, key=b"%d" % name, partition=name)
                    if name % 2:
                        await producer.commit_transaction()

        async with asyncio.TaskGroup() as group:
            for name in range(8):
                group.create_task(one(name))
        for records in (await stored(broker, topic)).values():
            assert numbers(records) == [number for number in range(20) for _ in range(10)]

    bounded(work())


def test_misuse_of_the_producer_raises_at_once(broker: BrokerProcess) -> None:
    async def work() -> None:
        async with transactional(broker, "misuse") as producer:
            calls: list[Callable[[], Awaitable[object]]] = [
                producer.commit_transaction,
                producer.abort_transaction,
                producer.init_transactions,
                lambda: producer.send("misuse", b"1"),
            ]
            for call in calls:
                with pytest.raises(IllegalState):
                    await call()

    bounded(work())
