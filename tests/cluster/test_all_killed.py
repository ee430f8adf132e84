"""Every broker process is killed at the same time, and they return in every order: nothing acknowledged is lost."""

import asyncio
from itertools import permutations
from pathlib import Path
from random import Random

from oncelog.clients.admin.admin import Admin
from oncelog.clients.admin.topics import NewTopic
from oncelog.clients.consumer import Consumer, ConsumerConfig
from oncelog.clients.producer import Producer, ProducerConfig
from oncelog.protocol.topic_partition import TopicPartition
from tests.processes import ClusterProcess

SETTINGS = ["min.insync.replicas=2", "num.partitions=3", "group.initial.rebalance.delay.ms=0"]
BROKERS = (1, 2, 3)
RECORDS = 60
READ_SECONDS = 20.0


def wall_clock() -> int:
    return 1_700_000_000_000


async def write(cluster: ClusterProcess, first: int) -> None:
    """Write numbered records with acks=all, and wait for every acknowledgement."""
    config = ProducerConfig(bootstrap=cluster.address, linger_ms=0)
    async with Producer(config, rng=Random(first), wall_clock=wall_clock) as producer:
        sent = [
            await producer.send("t", b"%d" % number, partition=number % 3) for number in range(first, first + RECORDS)
        ]
        await asyncio.gather(*sent)


async def read(cluster: ClusterProcess, count: int) -> set[bytes]:
    """Return the first ``count`` records of the topic, or what is there in the end."""
    found: set[bytes] = set()
    config = ConsumerConfig(bootstrap=cluster.address, auto_offset_reset="earliest")
    async with asyncio.timeout(READ_SECONDS), Consumer(config, rng=Random(2), wall_clock=wall_clock) as consumer:
        consumer.assign([TopicPartition("t", index) for index in range(3)])
        while len(found) < count:
            found |= {record.value for record in await consumer.poll(1.0) if record.value is not None}
    return found


async def test_brokers_that_are_all_killed_lose_nothing_in_any_order_of_return(tmp_path: Path) -> None:
    """B57: what a killed process has written is in the page cache of its machine."""
    with ClusterProcess(tmp_path, settings=SETTINGS) as cluster:
        async with Admin(cluster.address, rng=Random(1)) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=3, replication_factor=3)])
        written = 0
        for order in permutations(BROKERS):
            await write(cluster, written)
            written += RECORDS
            await asyncio.to_thread(cluster.verb, "kill", *BROKERS)
            for broker_id in order:
                await asyncio.to_thread(cluster.verb, "start", broker_id)
            assert await read(cluster, written) == {b"%d" % number for number in range(written)}, order
