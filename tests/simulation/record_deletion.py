"""A partition whose oldest records clients delete while a writer appends: no others are lost, and none come back.

As in Kafka, a broker remembers the log start from one checkpoint to the next in memory only. So a deletion is counted
as kept once it is in the checkpoint of every replica, or as long as no broker starts again after it was acknowledged.
"""

import asyncio
import random
from typing import Final

from oncelog.broker.storage.checkpoints import LOG_START_CHECKPOINT
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests, topic_requests
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.acknowledged_writers import records_of
from tests.simulation.cluster_history import log_of
from tests.simulation.cluster_routes import ClusterRoutes
from tests.simulation.cluster_shape import ClusterShape
from tests.simulation.cluster_stories import assignments, create
from tests.simulation.patient_client import PatientClient
from tests.simulation.simulated_cluster import SimulatedCluster

PARTITION: Final = TopicPartition("short", 0)
SETTINGS: Final = {"log.flush.start.offset.checkpoint.interval.ms": "500"}
_LOOK_SECONDS: Final = 0.2
_LINES_BEFORE_ENTRIES: Final = 2
"""Of a checkpoint: its version, and the number of entries."""


class RecordDeletion:
    """``setup``, ``start``, ``finish``, ``check``, in this order."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random, shape: ClusterShape) -> None:
        self._cluster = cluster
        self._rng = random.Random(rng.random())
        self._shape = shape
        self._writer = AcknowledgedWriter(cluster, PARTITION, pause=0.3)
        self._stopping = False
        self._acknowledged: list[tuple[int, int]] = []
        """(offset, starts of brokers) of each deletion that was acknowledged."""
        self._kept = 0
        """Below this offset there is nothing any more, whichever brokers crash."""
        self._requested = 0
        """Below this offset nothing needs to be there."""
        self._tasks: list[asyncio.Task[None]] = []

    async def setup(self) -> None:
        await create(self._cluster, PARTITION.topic, *self._shape.replicas(1))

    def start(self) -> None:
        self._tasks = [
            self._cluster.loop.create_task(work) for work in (self._writer.run(), self._delete(), self._look())
        ]

    async def finish(self) -> None:
        self._stopping = True
        self._writer.stop()
        await asyncio.gather(*self._tasks)

    def check(self) -> None:
        starts = self._starts()
        gone = max([self._kept, *(offset for offset, before in self._acknowledged if before == starts)])
        for broker_id in assignments(self._cluster)[PARTITION]:
            log = log_of(self._cluster, broker_id, PARTITION)
            start = log.log_start_offset
            assert start >= gone, f"broker {broker_id} has {start} to {gone} again"
            assert start <= self._requested, f"broker {broker_id} has deleted {self._requested} to {start}"
            self._writer.assert_in_place(dict(records_of(log)), start=start)

    async def _delete(self) -> None:
        client = PatientClient(ClusterRoutes(self._cluster, self._rng), self._rng)
        while not self._stopping:
            await asyncio.sleep(self._rng.uniform(0.2, 3.0))
            if not self._writer.offsets:
                continue
            upper = self._writer.offsets[-1] + 1
            offset = self._rng.randint(min(self._requested, upper), upper)
            self._requested = max(self._requested, offset)
            request = topic_requests.delete_records(PARTITION, offset)
            response = await client.call(request, topic_requests.DELETE_RECORDS_VERSION)
            code = ErrorCode(response.topics[0].partitions[0].error_code)
            if code is ErrorCode.NONE:
                self._acknowledged.append((offset, self._starts()))
            else:
                # A leader that was just elected does not know yet how far all is replicated.
                assert code in requests.RETRIABLE or code is ErrorCode.OFFSET_OUT_OF_RANGE, code.name
            outcome = "deleted" if code is ErrorCode.NONE else "not known to be deleted"
            self._cluster.loop.journal.note(PARTITION.topic, f"operation: records {outcome}", f"{offset}")

    async def _look(self) -> None:
        """Find out which deletions are in the checkpoints of all replicas."""
        while not self._stopping:
            await asyncio.sleep(_LOOK_SECONDS)
            checkpointed = min(self._checkpointed(broker_id) for broker_id in assignments(self._cluster)[PARTITION])
            self._kept = max([self._kept, *(offset for offset, _ in self._acknowledged if offset <= checkpointed)])

    def _checkpointed(self, broker_id: int) -> int:
        lines = self._cluster[broker_id].disk.peek(f"/data/{LOG_START_CHECKPOINT}").decode().splitlines()
        entries = [line.split() for line in lines[_LINES_BEFORE_ENTRIES:]]
        found = [int(entry[2]) for entry in entries if entry[:2] == [PARTITION.topic, str(PARTITION.partition)]]
        return max(found, default=0)

    def _starts(self) -> int:
        return sum(broker.starts for broker in self._cluster.brokers.values())
