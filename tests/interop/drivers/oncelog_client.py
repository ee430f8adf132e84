"""Our own clients: producer, consumer and administration, in either version of the transaction protocol."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any, Literal, TypeVar

from oncelog.clients.admin.admin import Admin
from oncelog.clients.admin.topics import NewTopic, TopicDescription
from oncelog.clients.consumer import Consumer, ConsumerConfig, ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata
from oncelog.clients.errors import ClientError
from oncelog.clients.producer import Producer, ProducerConfig
from oncelog.protocol.topic_partition import TopicPartition
from tests.interop.broker_under_test import REPLICATION_FACTOR
from tests.interop.drivers.driver import TIMEOUT_SECONDS, Batch, Consumed
from tests.interop.late_frames.client import DELIVERY_TIMEOUT_MS, LINGER_MS, REQUEST_TIMEOUT_MS
from tests.interop.late_frames.workload import Outcome, Phase, Transaction

T = TypeVar("T")
Protocol = Literal["auto", "1", "2"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


def _run(work: Coroutine[Any, Any, T], seconds: float = TIMEOUT_SECONDS) -> T:
    return asyncio.run(asyncio.wait_for(work, seconds))


def _consumed(record: ConsumerRecord) -> Consumed:
    assert record.value is not None
    key = None if record.key is None else record.key.decode()
    return Consumed(record.partition, record.offset, key, record.value.decode())


async def _partitions(address: str, topic: str) -> list[TopicPartition]:
    async with Admin(address, rng=Random()) as admin:
        described = (await admin.describe_topics([topic]))[topic]
    assert isinstance(described, TopicDescription), described
    return [TopicPartition(topic, partition.partition) for partition in described.partitions]


class OncelogClient:
    """``protocol`` "1" or "2" is required of the broker; "auto" takes what it offers."""

    transactional = True
    compressions: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, protocol: Protocol) -> None:
        self.name = f"oncelog-{protocol}"
        self._protocol: Protocol = protocol

    def lacking(self) -> str | None:
        return None

    def create_topic(self, address: str, topic: str, partitions: int) -> None:
        async def work() -> None:
            async with Admin(address, rng=Random()) as admin:
                outcomes = await admin.create_topics(
                    [NewTopic(name=topic, partitions=partitions, replication_factor=REPLICATION_FACTOR)]
                )
                assert outcomes == {topic: None}, outcomes

        _run(work())

    def produce(self, address: str, topic: str, values: Sequence[str], *, compression: str = "none") -> None:
        codec: Codec = compression  # type: ignore[assignment]  # Scenarios take it from ``compressions``.

        async def work() -> None:
            config = ProducerConfig(bootstrap=address, compression=codec)
            async with Producer(config, rng=Random(), wall_clock=wall_clock) as producer:
                sent = [await producer.send(topic, value.encode(), key=value.encode()) for value in values]
                for future in sent:
                    await future

        _run(work())

    # Consuming

    def _consumer(self, address: str, *, group: str | None = None, read_committed: bool = True) -> Consumer:
        config = ConsumerConfig(
            bootstrap=address,
            group_id=group,
            isolation_level="read_committed" if read_committed else "read_uncommitted",
            auto_offset_reset="earliest",
            session_timeout_ms=10_000,
            heartbeat_interval_ms=200,
        )
        return Consumer(config, rng=Random(), wall_clock=wall_clock)

    def consume(self, address: str, topic: str, count: int, *, read_committed: bool = False) -> list[Consumed]:
        async def work() -> list[Consumed]:
            records: list[Consumed] = []
            async with self._consumer(address, read_committed=read_committed) as consumer:
                consumer.assign(await _partitions(address, topic))
                while len(records) < count:
                    records += map(_consumed, await consumer.poll(1.0))
            return records

        return _run(work())

    def consume_with_two_members(self, address: str, topic: str, group: str, count: int) -> list[list[Consumed]]:
        async def work() -> list[list[Consumed]]:
            results: list[list[Consumed]] = [[], []]
            async with self._consumer(address, group=group) as first, self._consumer(address, group=group) as second:
                members = (first, second)
                for member in members:
                    member.subscribe([topic])
                while not all(member.assignment for member in members):
                    await asyncio.gather(*(member.poll(0.1) for member in members))
                for member in members:
                    member.seek_to_beginning()  # Forget what came while the other one was joining.
                while sum(map(len, results)) < count:
                    polled = await asyncio.gather(*(member.poll(0.1) for member in members))
                    for member, mine, records in zip(members, results, polled, strict=True):
                        mine += map(_consumed, records)
                        await member.commit()
            return results

        return _run(work())

    # Transactions

    def _producer(self, address: str, transactional_id: str) -> Producer:
        config = ProducerConfig(
            bootstrap=address, transactional_id=transactional_id, transaction_protocol=self._protocol
        )
        return Producer(config, rng=Random(), wall_clock=wall_clock)

    def transact(self, address: str, topic: str, transactional_id: str, batches: Sequence[Batch]) -> None:
        async def work() -> None:
            async with self._producer(address, transactional_id) as producer:
                await producer.init_transactions()
                for batch in batches:
                    producer.begin_transaction()
                    for value in batch.values:
                        await producer.send(topic, value.encode(), key=value.encode())
                    await producer.flush()
                    await (producer.commit_transaction() if batch.commit else producer.abort_transaction())

        _run(work())

    def consume_transform_produce(
        self, address: str, source: str, target: str, group: str, transactional_id: str, count: int
    ) -> None:
        async def work() -> None:
            consumer = self._consumer(address, group=group)
            async with consumer, self._producer(address, transactional_id) as producer:
                await producer.init_transactions()
                consumer.subscribe([source])
                done = 0
                while done < count:
                    records = await consumer.poll(1.0)
                    if not records:
                        continue
                    producer.begin_transaction()
                    for record in records:
                        assert record.value is not None
                        await producer.send(target, record.value.upper(), key=record.key)
                    read = {record.topic_partition for record in records}
                    positions = {tp: OffsetAndMetadata(await consumer.position(tp)) for tp in read}
                    await producer.send_offsets_to_transaction(positions, consumer.group_metadata())
                    await producer.commit_transaction()
                    done += len(records)

        _run(work())

    def run_phases(
        self, address: str, topic: str, transactional_id_prefix: str, transactions: Sequence[Transaction]
    ) -> list[str]:
        async def work() -> list[str]:
            async with asyncio.TaskGroup() as tasks:
                running = []
                for number in sorted({transaction.producer for transaction in transactions}):
                    mine = [transaction for transaction in transactions if transaction.producer == number]
                    phased = PhasedProducer(address, topic, f"{transactional_id_prefix}-{number}", self._protocol)
                    running.append((number, tasks.create_task(phased.run(mine))))
            return [f"{number}\t{outcome.value}" for number, task in running for outcome in task.result()]

        return _run(work(), 2 * TIMEOUT_SECONDS)


class PhasedProducer:
    """One producer of a workload whose phases are acknowledged one by one; begins anew after a fatal error."""

    def __init__(self, address: str, topic: str, transactional_id: str, protocol: Protocol) -> None:
        self._topic = topic
        self._transactional_id = transactional_id
        self._config = ProducerConfig(
            bootstrap=address,
            transactional_id=transactional_id,
            transaction_protocol=protocol,
            linger_ms=LINGER_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            retry_backoff_ms=2,
            retry_backoff_max_ms=10,
        )

    async def run(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        while len(outcomes) < len(transactions):
            async with Producer(self._config, rng=Random(1), wall_clock=wall_clock) as producer:
                await producer.init_transactions()
                for transaction in transactions[len(outcomes) :]:
                    outcome = await self._transaction(producer, transaction)
                    outcomes.append(outcome)
                    if outcome in (Outcome.COMMIT_FAILED, Outcome.ABORT_FAILED):
                        break
        return outcomes

    async def _transaction(self, producer: Producer, transaction: Transaction) -> Outcome:
        try:
            producer.begin_transaction()
            for phase in transaction.phases:
                await self._send(producer, phase)
            if transaction.commits_offset:
                offsets = {TopicPartition(self._topic, 0): OffsetAndMetadata(transaction.offset)}
                await producer.send_offsets_to_transaction(
                    offsets, ConsumerGroupMetadata(group_id=self._transactional_id)
                )
        except ClientError:
            return await self._aborted(producer, Outcome.ABORT_FAILED)
        if not transaction.commit:
            return await self._aborted(producer, Outcome.ABORT_FAILED)
        try:
            await producer.commit_transaction()
            return Outcome.COMMITTED
        except ClientError:
            return await self._aborted(producer, Outcome.COMMIT_FAILED)

    async def _send(self, producer: Producer, phase: Phase) -> None:
        sent = [
            await producer.send(self._topic, value.encode(), key=value.encode(), partition=phase.partition)
            for value in phase.values
        ]
        await producer.flush()
        for future in sent:
            await future

    async def _aborted(self, producer: Producer, unless_done: Outcome) -> Outcome:
        try:
            await producer.abort_transaction()
            return Outcome.ABORTED
        except ClientError:
            return unless_done
