"""aiokafka: the asyncio client."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.interop.broker_under_test import REPLICATION_FACTOR
from tests.interop.drivers.driver import TIMEOUT_SECONDS, Batch, Consumed


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, TIMEOUT_SECONDS))


def _consumed(record: Any) -> Consumed:
    return Consumed(record.partition, record.offset, record.key.decode() if record.key else None, record.value.decode())


async def _read(consumer: AIOKafkaConsumer, count: int) -> list[Consumed]:
    records: list[Consumed] = []
    while len(records) < count:
        for batch in (await consumer.getmany(timeout_ms=200)).values():
            records.extend(map(_consumed, batch))
    return records


class AioKafka:
    name = "aiokafka"
    transactional = True
    compressions = ("none", "gzip", "snappy", "lz4", "zstd")

    def create_topic(self, address: str, topic: str, partitions: int) -> None:
        async def work() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=address)
            await admin.start()
            try:
                await admin.create_topics([NewTopic(topic, partitions, REPLICATION_FACTOR)])
            finally:
                await admin.close()

        _run(work())

    def produce(self, address: str, topic: str, values: Sequence[str], *, compression: str = "none") -> None:
        async def work() -> None:
            codec = None if compression == "none" else compression
            async with AIOKafkaProducer(
                bootstrap_servers=address, acks="all", enable_idempotence=True, compression_type=codec
            ) as producer:
                sent = [await producer.send(topic, key=value.encode(), value=value.encode()) for value in values]
                await asyncio.gather(*sent)

        _run(work())

    def consume(self, address: str, topic: str, count: int, *, read_committed: bool = False) -> list[Consumed]:
        async def work() -> list[Consumed]:
            level = "read_committed" if read_committed else "read_uncommitted"
            async with AIOKafkaConsumer(topic, bootstrap_servers=address, isolation_level=level) as unassigned:
                indexes = unassigned.partitions_for_topic(topic) or set()
            consumer = AIOKafkaConsumer(bootstrap_servers=address, isolation_level=level)
            consumer.assign([AioTopicPartition(topic, index) for index in sorted(indexes)])
            async with consumer:
                await consumer.seek_to_beginning()
                return await _read(consumer, count)

        result: list[Consumed] = _run(work())
        return result

    def _member(self, address: str, topic: str, group: str) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10000,
            heartbeat_interval_ms=200,
        )

    def consume_with_two_members(self, address: str, topic: str, group: str, count: int) -> list[list[Consumed]]:
        async def work() -> list[list[Consumed]]:
            results: list[list[Consumed]] = [[], []]
            members = [self._member(address, topic, group), self._member(address, topic, group)]
            await asyncio.gather(*(member.start() for member in members))
            try:
                while not all(member.assignment() for member in members):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)  # The client gives no event for an assignment that needs no polling.
                while sum(map(len, results)) < count:
                    for member, records in zip(members, results, strict=True):
                        for batch in (await member.getmany(timeout_ms=100)).values():
                            records.extend(map(_consumed, batch))
                        await member.commit()
                return results
            finally:
                for member in members:
                    await member.stop()

        result: list[list[Consumed]] = _run(work())
        return result

    def transact(self, address: str, topic: str, transactional_id: str, batches: Sequence[Batch]) -> None:
        async def work() -> None:
            async with AIOKafkaProducer(bootstrap_servers=address, transactional_id=transactional_id) as producer:
                for batch in batches:
                    await producer.begin_transaction()
                    sent = [await producer.send(topic, key=v.encode(), value=v.encode()) for v in batch.values]
                    await asyncio.gather(*sent)
                    await (producer.commit_transaction() if batch.commit else producer.abort_transaction())

        _run(work())

    def consume_transform_produce(
        self, address: str, source: str, target: str, group: str, transactional_id: str, count: int
    ) -> None:
        async def work() -> None:
            consumer = self._member(address, source, group)
            producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=transactional_id)
            async with consumer, producer:
                done = 0
                while done < count:
                    for partition, batch in (await consumer.getmany(timeout_ms=200)).items():
                        async with producer.transaction():
                            for record in batch:
                                await producer.send(target, key=record.key, value=record.value.upper())
                            await producer.send_offsets_to_transaction({partition: batch[-1].offset + 1}, group)
                        done += len(batch)

        _run(work())
