"""A compacted topic: the last acknowledged value of each key is there, however often the log is compacted.

One writer has acks=all. It is idempotent, so that a request that arrives late cannot put a former value after a later
one; when a broker does not know it any more, it takes a new producer id. Another writer has acks=1: its values may be
lost, and until they are replicated no compaction may count on them.
"""

import asyncio
import random
from typing import Any, Final, NamedTuple

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests, topic_requests
from tests.simulation.cluster_history import log_of
from tests.simulation.cluster_routes import ClusterRoutes
from tests.simulation.cluster_shape import ClusterShape
from tests.simulation.cluster_stories import assignments
from tests.simulation.latest_records import latest_of
from tests.simulation.patient_client import PatientClient, error_of, produce_errors
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.wire_client import NoResponse

PARTITION: Final = TopicPartition("latest", 0)
_KEYS: Final = (b"a", b"b", b"c", b"d")
_TOMBSTONES: Final = 0.15
_LONGEST_REST: Final = 0.4


class _Acknowledged(NamedTuple):
    """The last record of a key with acks=all."""

    offset: int
    value: bytes | None
    """None for a tombstone."""


class CompactedTopic:
    """``setup``, ``start``, ``finish``, ``check``, in this order."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random, shape: ClusterShape) -> None:
        self._cluster = cluster
        self._rng = random.Random(rng.random())
        self._shape = shape
        self._stopping = False
        self._last: dict[bytes, _Acknowledged] = {}
        self._written = 0
        self._producer_id = -1
        self._sequence = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._client = self._new_client()

    async def setup(self) -> None:
        request = topic_requests.create_topic(
            PARTITION.topic,
            1,
            self._shape.replication_factor,
            cleanup_policy="compact",
            segment_ms=self._rng.choice(["500", "3000"]),
            min_cleanable_dirty_ratio="0.01",
        )
        await self._client.succeed(request, topic_requests.CREATE_TOPICS_VERSION, topic_requests.creation_errors)

    def start(self) -> None:
        self._tasks = [self._cluster.loop.create_task(work) for work in (self._run(), self._write_unreplicated())]

    async def finish(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    def check(self) -> None:
        for broker_id in assignments(self._cluster)[PARTITION]:
            log = log_of(self._cluster, broker_id, PARTITION)
            found = latest_of(log)
            for key, last in self._last.items():
                offset, value = found.get(key, (last.offset, None))
                is_later = offset > last.offset
                is_kept = is_later or (offset == last.offset and value == last.value)
                assert is_kept, f"broker {broker_id}: {key!r} is {value!r} at {offset} instead of {last}"
            if log.cleaned_offset > 0:
                self._cluster.loop.journal.note(PARTITION.topic, "operation: replica compacted")

    async def _run(self) -> None:
        await self._begin()
        while not self._stopping:
            key = self._rng.choice(_KEYS)
            value = None if self._rng.random() < _TOMBSTONES else b"%d" % self._written
            self._written += 1
            await self._write(key, value)
            await asyncio.sleep(self._rng.uniform(0.0, _LONGEST_REST))

    async def _begin(self) -> None:
        request = requests.init_producer_id(None)
        response = await self._client.succeed(request, requests.INIT_PRODUCER_ID_VERSION, error_of)
        self._producer_id, self._sequence = response.producer_id, 0

    async def _write(self, key: bytes, value: bytes | None) -> None:
        """Write one value, as often as it takes."""
        records = topic_requests.keyed_batch(
            key, value, at=self._cluster.loop.time(), producer_id=self._producer_id, sequence=self._sequence
        )
        request = requests.produce(PARTITION, records)
        while True:
            try:
                connection = await self._client.connection(request)
                response = await connection.call(request, requests.PRODUCE_VERSION)
            except NoResponse:
                await self._client.disconnect(request)
                continue
            self._client.heard(request, response)
            (code,) = produce_errors(response)
            if code is ErrorCode.NONE:
                self._acknowledge(key, _Acknowledged(_offset(response), value))
                return
            if code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
                await self._begin()
                return
            assert code in requests.RETRIABLE, code.name
            await self._client.pause()

    async def _write_unreplicated(self) -> None:
        """Write values with acks=1, each once."""
        client = self._new_client()
        while not self._stopping:
            await asyncio.sleep(self._rng.uniform(0.0, _LONGEST_REST))
            records = topic_requests.keyed_batch(self._rng.choice(_KEYS), b"local", at=self._cluster.loop.time())
            request = requests.produce(PARTITION, records, acks=1)
            try:
                connection = await client.connection(request)
                response = await connection.call(request, requests.PRODUCE_VERSION)
            except NoResponse:
                await client.disconnect(request)
            else:
                client.heard(request, response)
                self._cluster.loop.journal.note(PARTITION.topic, "operation: value of a key with acks=1")

    def _new_client(self) -> PatientClient:
        return PatientClient(ClusterRoutes(self._cluster, self._rng), self._rng, response_within=1.0)

    def _acknowledge(self, key: bytes, record: _Acknowledged) -> None:
        self._last[key] = record
        self._sequence += 1
        event = "tombstone" if record.value is None else "value of a key"
        self._cluster.loop.journal.note(PARTITION.topic, f"operation: {event} acknowledged")


def _offset(response: Any) -> int:
    offset: int = response.responses[0].partition_responses[0].base_offset
    return offset
