"""``make bench-scale``: three brokers with a thousand partitions of three replicas each, on this machine.

How long it takes until all partitions are there and serve, what the brokers cost while nobody uses them, and how long a
restart takes, of one broker and of all, until every replica is in sync again. Each partition has a record in it.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from oncelog.clients.admin.admin import Admin
from oncelog.clients.admin.offsets import LATEST, list_offsets
from oncelog.clients.admin.topics import NewTopic, TopicDescription
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from oncelog.clients.producer import Producer, ProducerConfig
from oncelog.protocol.topic_partition import TopicPartition
from tests.benchmarks.cluster_side_by_side import broker_pids, processor_seconds
from tests.benchmarks.side_by_side import resident_mib
from tests.processes import ClusterProcess

TOPICS = 10
REPLICAS = 3
_WANTED_IDLE_PERCENT = 5.0
_SETTLE_SECONDS = 10.0
_LIMIT_SECONDS = 300.0
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A running cluster and the topics that were made in it."""

    cluster: ClusterProcess
    topics: list[str]
    partitions_each: int

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, index) for topic in self.topics for index in range(self.partitions_each)]

    async def create(self) -> None:
        wanted = [NewTopic(name=n, partitions=self.partitions_each, replication_factor=REPLICAS) for n in self.topics]
        async with Admin(self.cluster.address, rng=Random(1)) as admin:
            outcomes = await admin.create_topics(wanted)
        assert not any(outcomes.values()), outcomes

    async def until_serving(self) -> None:
        """Return when every broker tells that all replicas are in sync, and every leader where its log ends."""
        async with asyncio.timeout(_LIMIT_SECONDS):
            for address in self.cluster.address.split(","):
                while not await self._is_whole(address):  # noqa: ASYNC110 - brokers do not tell by themselves
                    await asyncio.sleep(_PAUSE_SECONDS)
            while not await self._leaders_respond():  # noqa: ASYNC110
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _is_whole(self, address: str) -> bool:
        async with Admin(address, rng=Random(1)) as admin:
            found = (await admin.describe_topics(self.topics)).values()
        return all(
            isinstance(topic, TopicDescription)
            and len(topic.partitions) == self.partitions_each
            and all(p.leader is not None and len(p.isr) == REPLICAS for p in topic.partitions)
            for topic in found
        )

    async def _leaders_respond(self) -> bool:
        async with Cluster(parse_bootstrap(self.cluster.address), rng=Random(1)) as cluster:
            offsets = await list_offsets(cluster, dict.fromkeys(self.partitions, LATEST))
        return len(offsets.found) == len(self.partitions)

    async def fill(self) -> None:
        """One record in each partition, acknowledged by all replicas."""
        config = ProducerConfig(bootstrap=self.cluster.address)
        async with Producer(config, rng=Random(1), wall_clock=lambda: time.time_ns() // 1_000_000) as producer:
            sent = [await producer.send(tp.topic, b"record", partition=tp.partition) for tp in self.partitions]
            for future in sent:
                await future


def seconds(deed: Callable[[], Awaitable[None] | object]) -> float:
    """How long a deed takes, which may be a coroutine function."""
    began = time.perf_counter()
    done = deed()
    if isinstance(done, Awaitable):
        asyncio.run(_awaited(done))
    return time.perf_counter() - began


async def _awaited(deed: Awaitable[None]) -> None:
    await deed


def report(what: str, figure: float, unit: str, remark: str = "") -> None:
    print(f"{what:52}{figure:10.2f} {unit:8}{remark}", flush=True)


def report_idle(cluster: ClusterProcess, idle_seconds: float, state: str) -> None:
    """Memory, and processor time over a while in which nobody does anything."""
    time.sleep(_SETTLE_SECONDS)  # noqa: TID251 - what is measured is that nothing happens
    pids = broker_pids(cluster)
    before = [processor_seconds(pid) for pid in pids]
    time.sleep(idle_seconds)  # noqa: TID251
    for number, (pid, used) in enumerate(zip(pids, before, strict=True), start=1):
        percent = 100 * (processor_seconds(pid) - used) / idle_seconds
        remark = f"of a core, wanted ≤ {_WANTED_IDLE_PERCENT:.0f}" if percent <= _WANTED_IDLE_PERCENT else "TOO MUCH"
        report(f"{state}: broker {number}, idle", percent, "%", remark)
        report(f"{state}: broker {number}, resident", resident_mib(pid), "MiB")


def measure(folder: Path, partitions: int, idle_seconds: float) -> None:
    cluster = ClusterProcess(folder)
    scale = Scale(
        cluster=cluster, topics=[f"scale-{number}" for number in range(TOPICS)], partitions_each=partitions // TOPICS
    )
    print(f"{REPLICAS} brokers, {partitions} partitions x {REPLICAS}; load {os.getloadavg()[0]:.1f}\n")
    try:
        report("start of an empty cluster", seconds(cluster.start), "s")
        report_idle(cluster, idle_seconds, "empty")
        report("creation, until the controller answers", seconds(scale.create), "s")
        report("creation, then until all leaders serve everywhere", seconds(scale.until_serving), "s")
        report("a record in each, acks=all", seconds(scale.fill), "s")
        report_idle(cluster, idle_seconds, f"{partitions} partitions")
        report("restart of one: SIGTERM to its end", seconds(lambda: cluster.verb("stop", 2)), "s")
        report("restart of one: start to serving", seconds(lambda: cluster.verb("start", 2)), "s")
        report("restart of one: then until all are in sync", seconds(scale.until_serving), "s")
        report("restart of all: SIGTERM to the end", seconds(cluster.stop), "s", "one after the other")
        report("restart of all: start to serving", seconds(cluster.start), "s")
        report("restart of all: then until all are in sync", seconds(scale.until_serving), "s")
    finally:
        cluster.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oncelog-scale-") as folder:
        measure(Path(folder), options.partitions, options.idle_seconds)


if __name__ == "__main__":
    main()
