"""The clients of a cluster history that just write, with acks=all: what was acknowledged is there, in its order."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.clients.history.anomaly import AnomalyKind
from oncelog.protocol.records.record_batch import iter_batches, iter_records
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_history import HEALING_SECONDS, log_of
from tests.simulation.cluster_shape import THREE, ClusterShape
from tests.simulation.cluster_stories import create, state_of
from tests.simulation.log_reader import PositionedValue
from tests.simulation.recorded_history import SimulatedHistory
from tests.simulation.replication_history import batches
from tests.simulation.simulated_cluster import ClusterBroker, SimulatedCluster

_PARTITIONS: Final = 3
PAUSES: Final = (0.05, 0.2, 0.5)
LONG_PAUSES: Final = (0.3, 1.0)
"""Of writers to clusters whose size takes processor time enough."""
_PATIENCE: Final = (0.3, 1.0, 5.0)
_LONGEST_BATCH: Final = 1 << 20


class AcknowledgedWriters:
    """One for each partition of a topic."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        rng: random.Random,
        shape: ClusterShape = THREE,
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        """``pauses``: in seconds, between two records, one of which each writer draws."""
        self._cluster = cluster
        self._shape = shape
        self._replicas = shape.replicas(_PARTITIONS)
        self._history = SimulatedHistory(cluster.loop)
        self._writers = [
            AcknowledgedWriter(
                cluster,
                TopicPartition("t", index),
                pause=rng.choice(pauses),
                response_within=rng.choice(_PATIENCE),
                history=self._history,
            )
            for index in range(_PARTITIONS)
        ]
        self._writing: list[asyncio.Future[None]] = []

    async def setup(self) -> None:
        await create(self._cluster, "t", *self._replicas)

    def start(self) -> None:
        self._writing = [asyncio.ensure_future(writer.run()) for writer in self._writers]  # noqa: TID251

    async def disturb(self) -> None:
        pass

    def progress(self) -> Mapping[TopicPartition, int]:
        return {writer.partition: len(writer.acknowledged) for writer in self._writers}

    def power_lost(self, broker: ClusterBroker) -> None:
        """Where no other machine has a record, what was not synced may be lost."""
        if not self._shape.survives_power_loss and broker.broker is not None:
            for writer in self._writers:
                log = broker.running.log_manager.get(writer.partition)
                writer.expect_loss_from(0 if log is None else log.flushed_offset)

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
        self._history.finish({partition: records_of(log) for partition, log in logs.items()}, {})
        for writer in self._writers:
            log = batches(logs[writer.partition], 0)
            writer.assert_nothing_is_lost(b"".join(content for _, content in log.values()))
        if self._shape.survives_power_loss:
            self._history.assert_good(AnomalyKind.DUPLICATE)  # They are not idempotent.


def records_of(log: PartitionLog) -> list[PositionedValue]:
    """Return every record of a log, in order."""
    found = []
    for segment in log.segments:
        data = memoryview(segment.file.read_at(segment.size, 0))
        for position, header in iter_batches(data):
            for record in iter_records(data, position, header, max_decompressed_bytes=_LONGEST_BATCH):
                found.append(PositionedValue(record.offset, bytes(record.value or b"")))
    return found
