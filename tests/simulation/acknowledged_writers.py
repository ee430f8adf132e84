"""The clients of a cluster history that just write, with acks=all: what was acknowledged is there, in its order."""

import asyncio
import random
from collections.abc import Mapping
from typing import Final

from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.clients.history.anomaly import AnomalyKind
from oncelog.protocol.records.record_batch import iter_batches, iter_records
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_history import HEALING_SECONDS, log_of
from tests.simulation.cluster_stories import create, state_of
from tests.simulation.log_reader import PositionedValue
from tests.simulation.recorded_history import SimulatedHistory
from tests.simulation.replication_history import batches
from tests.simulation.simulated_cluster import SimulatedCluster

_REPLICAS: Final = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
_PAUSES: Final = (0.05, 0.2, 0.5)
_PATIENCE: Final = (0.3, 1.0, 5.0)
_LONGEST_BATCH: Final = 1 << 20


class AcknowledgedWriters:
    """One for each partition of a topic."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._history = SimulatedHistory(cluster.loop)
        self._writers = [
            AcknowledgedWriter(
                cluster,
                TopicPartition("t", index),
                pause=rng.choice(_PAUSES),
                response_within=rng.choice(_PATIENCE),
                history=self._history,
            )
            for index in range(len(_REPLICAS))
        ]
        self._writing: list[asyncio.Future[None]] = []

    async def setup(self) -> None:
        await create(self._cluster, "t", *_REPLICAS)

    def start(self) -> None:
        self._writing = [asyncio.ensure_future(writer.run()) for writer in self._writers]  # noqa: TID251

    async def disturb(self) -> None:
        pass

    def progress(self) -> Mapping[TopicPartition, int]:
        return {writer.partition: len(writer.acknowledged) for writer in self._writers}

    async def finish(self) -> None:
        for writer in self._writers:
            writer.stop()
        async with asyncio.timeout(HEALING_SECONDS):
            await asyncio.gather(*self._writing)

    async def check(self) -> None:
        logs = {}
        for writer in self._writers:
            leader = state_of(self._cluster, *writer.partition).leader
            logs[writer.partition] = log_of(self._cluster, leader, writer.partition)
        self._history.finish({partition: _records(log) for partition, log in logs.items()}, {})
        for writer in self._writers:
            log = batches(logs[writer.partition], 0)
            writer.assert_nothing_is_lost(b"".join(content for _, content in log.values()))
        self._history.assert_good(AnomalyKind.DUPLICATE)  # They are not idempotent.


def _records(log: PartitionLog) -> list[PositionedValue]:
    found = []
    for segment in log.segments:
        data = memoryview(segment.file.read_at(segment.size, 0))
        for position, header in iter_batches(data):
            for record in iter_records(data, position, header, max_decompressed_bytes=_LONGEST_BATCH):
                found.append(PositionedValue(record.offset, bytes(record.value or b"")))
    return found
