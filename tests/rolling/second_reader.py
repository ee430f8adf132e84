"""Read everything that readers of committed records see, with our own consumer, to compare with librdkafka's."""

import asyncio
import time
from random import Random
from typing import Final

from oncelog.clients.consumer import Consumer, ConsumerConfig
from oncelog.protocol.topic_partition import TopicPartition
from tests.faults.access import Access
from tests.faults.history import Place
from tests.faults.names import PARTITIONS
from tests.faults.reader import CannotRead

_SECONDS: Final = 120.0


async def read_committed_again(access: Access, topic: str) -> list[tuple[str, Place]]:
    """The values of a topic from its beginning to its end. Raises ``CannotRead``."""
    settings = {"bootstrap": access.bootstrap, **access.of_oncelog()}
    config = ConsumerConfig(auto_offset_reset="earliest", isolation_level="read_committed", **settings)
    partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    found: list[tuple[str, Place]] = []
    consumer = Consumer(config, rng=Random(0), wall_clock=lambda: time.time_ns() // 1_000_000)
    await consumer.start()
    try:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        async with asyncio.timeout(_SECONDS):
            while not await _is_at(consumer, ends):
                for record in await consumer.poll(0.2, 5_000):
                    found.append(((record.value or b"").decode(), Place(record.partition, record.offset)))
    except TimeoutError:
        raise CannotRead(f"{topic}: our consumer is not at the end after {len(found)} records") from None
    finally:
        await consumer.close()
    return found


async def _is_at(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    """Whether every position is at or above the end; markers and aborted records at the end move it, too."""
    positions = [(await consumer.position(partition), end) for partition, end in ends.items()]
    return all(position >= end for position, end in positions)
