"""A partition whose ``min.insync.replicas`` an operator raises and lowers while a writer appends with acks=all.

What was acknowledged stays, and what is acknowledged is on as many replicas as the leader's value demands.
"""

import asyncio
import random
from typing import Final, NamedTuple

from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests, topic_requests
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.acknowledged_writers import records_of
from tests.simulation.cluster_history import log_of
from tests.simulation.cluster_routes import ClusterRoutes
from tests.simulation.cluster_shape import ClusterShape
from tests.simulation.cluster_stories import assignments, create, state_of
from tests.simulation.patient_client import PatientClient
from tests.simulation.simulated_cluster import SimulatedCluster

PARTITION: Final = TopicPartition("minimum", 0)
_KEY: Final = "min.insync.replicas"
_REST: Final = 0.2


class _InForce(NamedTuple):
    """What a leader demands of an acknowledged record."""

    leader_epoch: int
    copies: int
    starts: int
    """Of all brokers: one that has started again since may have lost its copy."""


class MinimumChanges:
    """``setup``, ``start``, ``finish``, ``check``, in this order."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random, shape: ClusterShape) -> None:
        self._cluster = cluster
        self._rng = random.Random(rng.random())
        self._shape = shape
        self._values = (1, 2, 3) if shape.may_be_lowered else (2, 3)
        self._stopping = False
        self._writer = AcknowledgedWriter(cluster, PARTITION, response_within=self._rng.choice([1.0, 10.0]))
        self._tasks: list[asyncio.Task[None]] = []

    async def setup(self) -> None:
        await create(self._cluster, PARTITION.topic, *self._shape.replicas(1))

    def start(self) -> None:
        self._tasks = [self._cluster.loop.create_task(work) for work in (self._write(), self._change())]

    async def finish(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    def check(self) -> None:
        log = log_of(self._cluster, state_of(self._cluster, *PARTITION).leader, PARTITION)
        self._writer.assert_in_place(dict(records_of(log)))

    async def _write(self) -> None:
        while not self._stopping:
            value = b"<%d>" % len(self._writer.acknowledged)
            before = self._in_force()
            if await self._writer.try_to_write(value):
                self._writer.acknowledge(value)
                if before is not None and before == self._in_force():
                    self._assert_copies(self._writer.offsets[-1], before)
                    self._note(f"record acknowledged under minimum {before.copies}")
                else:
                    self._note("record acknowledged while leader or minimum change")
            await asyncio.sleep(self._rng.uniform(0.0, 2 * _REST))

    def _in_force(self) -> _InForce | None:
        """Return what the leader demands now; None if it does not run."""
        state = state_of(self._cluster, *PARTITION)
        log = self._log_of(state.leader)
        if log is None:
            return None
        copies = min(log.config.min_insync_replicas, len(assignments(self._cluster)[PARTITION]))
        return _InForce(state.leader_epoch, copies, sum(broker.starts for broker in self._cluster.brokers.values()))

    def _log_of(self, broker_id: int) -> PartitionLog | None:
        broker = self._cluster.brokers.get(broker_id)
        return None if broker is None or broker.broker is None else broker.broker.log_manager.get(PARTITION)

    def _assert_copies(self, offset: int, in_force: _InForce) -> None:
        """Check that enough replicas have a record; one that is down may have it, too."""
        logs = [self._log_of(broker_id) for broker_id in assignments(self._cluster)[PARTITION]]
        copies = sum(log is None or log.log_end_offset > offset for log in logs)
        assert copies >= in_force.copies, f"{offset} is acknowledged with {copies} copies instead of {in_force.copies}"

    async def _change(self) -> None:
        client = PatientClient(ClusterRoutes(self._cluster, self._rng), self._rng)
        while not self._stopping:
            await asyncio.sleep(self._rng.uniform(0.2, 5.0))
            value = self._rng.choice(self._values)
            request = topic_requests.set_topic_config(PARTITION.topic, _KEY, str(value))
            response = await client.call(request, topic_requests.INCREMENTAL_ALTER_CONFIGS_VERSION)
            code = ErrorCode(response.responses[0].error_code)
            assert code is ErrorCode.NONE or code in requests.RETRIABLE, code.name
            if code is ErrorCode.NONE:
                self._note(f"minimum set to {value}")

    def _note(self, event: str) -> None:
        self._cluster.loop.journal.note(PARTITION.topic, f"operation: {event}")
