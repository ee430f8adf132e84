"""How fast Python clients produce: ours, by ``send_nowait`` and by ``await send``, and aiokafka.

Each sends ``count`` records of ``size`` bytes without keys, and returns the seconds until all are acknowledged by all
replicas. Batches and linger are the same for all; ours is idempotent, as by default, and aiokafka, as by default, not.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Final

from aiokafka import AIOKafkaProducer

from oncelog.clients.errors import BufferFull
from oncelog.clients.producer import Producer, ProducerConfig

BATCH_BYTES: Final = 64 * 1024
LINGER_MS: Final = 5


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


def value_of(size: int) -> bytes:
    return (bytes(range(97, 123)) * (size // 26 + 1))[:size]


def _producer(address: str) -> Producer:
    config = ProducerConfig(bootstrap=address, linger_ms=LINGER_MS, batch_bytes=BATCH_BYTES)
    return Producer(config, rng=Random(1), wall_clock=wall_clock)


async def produce_without_waiting(address: str, topic: str, size: int, count: int) -> float:
    """``send_nowait``, and ``send`` where it refuses."""
    value = value_of(size)
    async with _producer(address) as producer:
        last = await producer.send(topic, value)
        await last
        send = producer.send_nowait
        started = time.perf_counter()
        for _ in range(count - 1):
            try:
                last = send(topic, value)
            except BufferFull:
                last = await producer.send(topic, value)
        await producer.flush()
        seconds = time.perf_counter() - started
        last.result()
        return seconds


async def produce(address: str, topic: str, size: int, count: int) -> float:
    """``await send``, as with any other client."""
    value = value_of(size)
    async with _producer(address) as producer:
        last = await producer.send(topic, value)
        await last
        started = time.perf_counter()
        for _ in range(count - 1):
            last = await producer.send(topic, value)
        await producer.flush()
        seconds = time.perf_counter() - started
        last.result()
        return seconds


async def produce_with_aiokafka(address: str, topic: str, size: int, count: int) -> float:
    """``await send``."""
    value = value_of(size)
    producer = AIOKafkaProducer(bootstrap_servers=address, acks="all", linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES)
    await producer.start()
    try:
        await producer.send_and_wait(topic, value)
        started = time.perf_counter()
        for _ in range(count - 1):
            last = await producer.send(topic, value)
        await producer.flush()
        seconds = time.perf_counter() - started
        await last
        return seconds
    finally:
        await producer.stop()


MEASUREMENTS: Final[Mapping[str, Callable[[str, str, int, int], Awaitable[float]]]] = {
    "oncelog": produce_without_waiting,
    "oncelog, await send": produce,
    "aiokafka": produce_with_aiokafka,
}
