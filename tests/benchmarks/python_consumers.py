"""How fast Python clients consume: ours and aiokafka, list by list and record by record.

Each reads ``count`` records from the beginning of all partitions, with its own defaults for what it fetches and for how
many records a call returns, and returns the seconds from its first call to its last. Both check CRCs and leave out
aborted transactions.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition

from oncelog.clients.consumer import Consumer, ConsumerConfig
from oncelog.protocol.topic_partition import TopicPartition
from tests.benchmarks.python_producers import wall_clock

PARTITIONS: Final = 4


@asynccontextmanager
async def _consumer(address: str, topic: str) -> AsyncIterator[Consumer]:
    config = ConsumerConfig(bootstrap=address, auto_offset_reset="earliest")
    async with Consumer(config, rng=Random(1), wall_clock=wall_clock) as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
        yield consumer


@asynccontextmanager
async def _aiokafka(address: str) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def poll(address: str, topic: str, size: int, count: int) -> float:
    """``poll``, 500 records at most."""
    async with _consumer(address, topic) as consumer:
        seen, bytes_seen = 0, 0
        started = time.perf_counter()
        while seen < count:
            records = await consumer.poll(10)
            seen += len(records)
            for record in records:
                bytes_seen += len(record.value or b"")
        seconds = time.perf_counter() - started
        assert bytes_seen == size * seen
        return seconds


async def iterate(address: str, topic: str, size: int, count: int) -> float:
    """``async for``."""
    async with _consumer(address, topic) as consumer:
        seen, bytes_seen = 0, 0
        started = time.perf_counter()
        async for record in consumer:
            seen += 1
            bytes_seen += len(record.value or b"")
            if seen == count:
                break
        seconds = time.perf_counter() - started
        assert bytes_seen == size * seen
        return seconds


async def poll_aiokafka(address: str, topic: str, size: int, count: int) -> float:
    """``getmany``, as many records as there are."""
    async with _aiokafka(address) as consumer:
        consumer.assign([AioTopicPartition(topic, index) for index in range(PARTITIONS)])
        seen, bytes_seen = 0, 0
        started = time.perf_counter()
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=10_000)).values():
                seen += len(records)
                for record in records:
                    bytes_seen += len(record.value or b"")
        seconds = time.perf_counter() - started
        assert bytes_seen == size * seen
        return seconds


async def iterate_aiokafka(address: str, topic: str, size: int, count: int) -> float:
    """``async for``."""
    async with _aiokafka(address) as consumer:
        consumer.assign([AioTopicPartition(topic, index) for index in range(PARTITIONS)])
        seen, bytes_seen = 0, 0
        started = time.perf_counter()
        async for record in consumer:
            seen += 1
            bytes_seen += len(record.value or b"")
            if seen == count:
                break
        seconds = time.perf_counter() - started
        assert bytes_seen == size * seen
        return seconds


MEASUREMENTS: Final[Mapping[str, Callable[[str, str, int, int], Awaitable[float]]]] = {
    "oncelog": poll,
    "oncelog, async for": iterate,
    "aiokafka": poll_aiokafka,
    "aiokafka, async for": iterate_aiokafka,
}
