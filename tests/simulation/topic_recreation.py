"""A topic that is deleted and created again while clients write to it and read from it, all by topic id.

What was acknowledged to a topic id is in the topic of that id, as long as it exists, and in no other of the same name.
Now and then a client uses the id of a topic that is deleted, as one with old metadata does.
"""

import asyncio
import random
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests, topic_requests
from tests.simulation.acknowledged_writers import records_of
from tests.simulation.cluster_history import log_of
from tests.simulation.cluster_routes import ClusterRoutes
from tests.simulation.cluster_shape import ClusterShape
from tests.simulation.cluster_stories import state_of
from tests.simulation.log_reader import PartitionContent, PositionedValue, take
from tests.simulation.patient_client import PatientClient, produce_errors
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.wire_client import NoResponse

PARTITION: Final = TopicPartition("again", 0)
_LONGEST_REST: Final = 0.6
_READ_WAIT_MS: Final = 300
_OLD_METADATA: Final = 0.15


@dataclass
class Incarnation:
    """The topic under one id."""

    number: int
    topic_id: bytes
    acknowledged: list[PositionedValue] = field(default_factory=list)
    read: PartitionContent = field(default_factory=PartitionContent)
    position: int = 0
    """Of the reader."""

    def value(self, number: int) -> bytes:
        return b"%d/%d" % (self.number, number)

    def assert_own(self, values: list[bytes]) -> None:
        """Check that nothing of another incarnation is there."""
        strange = [value for value in values if not value.startswith(b"%d/" % self.number)]
        assert not strange, f"{strange} in incarnation {self.number}"


class TopicRecreation:
    """``setup``, ``start``, ``finish``, ``check``, in this order."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random, shape: ClusterShape) -> None:
        self._cluster = cluster
        self._rng = rng
        self._shape = shape
        self._stopping = False
        self._incarnations: list[Incarnation] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def setup(self) -> None:
        await self._create(self._client())

    def start(self) -> None:
        self._tasks = [self._cluster.loop.create_task(work) for work in (self._recreate(), self._write(), self._read())]

    async def finish(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    def check(self) -> None:
        present = self._incarnations[-1]
        log = log_of(self._cluster, state_of(self._cluster, *PARTITION).leader, PARTITION)
        records = records_of(log)
        present.assert_own([record.value for record in records])
        lost = [record for record in present.acknowledged if record not in records]
        assert not lost, f"{lost} of incarnation {present.number} are lost"
        seen = present.read.records
        assert seen == [record for record in records if record.offset < present.position], "changed under a reader"

    def _client(self) -> PatientClient:
        rng = random.Random(self._rng.random())
        return PatientClient(ClusterRoutes(self._cluster, rng), rng, response_within=rng.choice([1.0, 5.0]))

    async def _recreate(self) -> None:
        client = self._client()
        while not self._stopping:
            await asyncio.sleep(self._rng.uniform(0.5, 8.0))
            topic_id = self._incarnations[-1].topic_id
            while self._topic_id() == topic_id:
                await self._try_to_delete(client, topic_id)
            self._note("topic deleted")
            await self._create(client)

    async def _try_to_delete(self, client: PatientClient, topic_id: bytes) -> None:
        response = await client.call(topic_requests.delete_topic(topic_id), topic_requests.DELETE_TOPICS_VERSION)
        code = ErrorCode(response.responses[0].error_code)
        assert code is ErrorCode.NONE or code in requests.RETRIABLE, code.name
        await client.pause()

    async def _create(self, client: PatientClient) -> None:
        """Create the topic again: the controller refuses that until nothing is left of the former one."""
        former = {incarnation.topic_id for incarnation in self._incarnations}
        request = topic_requests.create_topic(PARTITION.topic, 1, self._shape.replication_factor)
        while self._topic_id() in (None, *former):
            response = await client.call(request, topic_requests.CREATE_TOPICS_VERSION)
            code = ErrorCode(response.topics[0].error_code)
            allowed = {
                ErrorCode.NONE,
                ErrorCode.TOPIC_ALREADY_EXISTS,
                ErrorCode.INVALID_REPLICATION_FACTOR,
            }  # The last one while too few brokers are there.
            assert code in allowed or code in requests.RETRIABLE, code.name
            await client.pause()
        topic_id = self._topic_id()
        assert topic_id is not None
        self._incarnations.append(Incarnation(len(self._incarnations), topic_id))
        self._note("topic created")

    def _topic_id(self) -> bytes | None:
        znode = self._cluster.ensemble.tree.get(paths.topic(PARTITION.topic))
        return None if znode is None else znodes.decode_topic(znode.data).topic_id

    def _known_incarnation(self) -> Incarnation:
        """Return the present incarnation, or sometimes the former one."""
        former = self._rng.random() < _OLD_METADATA
        return self._incarnations[-2 if former and len(self._incarnations) > 1 else -1]

    async def _write(self) -> None:
        client = self._client()
        for number in count():
            if self._stopping:
                return
            incarnation = self._known_incarnation()
            value = incarnation.value(number)
            request = requests.produce(PARTITION, requests.batch([value]), topic_id=incarnation.topic_id)
            try:
                connection = await client.connection(request)
                response = await connection.call(request, requests.PRODUCE_BY_TOPIC_ID_VERSION)
            except NoResponse:
                await client.disconnect(request)
                continue
            client.heard(request, response)
            (code,) = produce_errors(response)
            if code is ErrorCode.NONE:
                offset = response.responses[0].partition_responses[0].base_offset
                incarnation.acknowledged.append(PositionedValue(offset, value))
                self._note("record acknowledged to a topic id")
            else:
                assert code in requests.RETRIABLE, code.name
            await asyncio.sleep(self._rng.uniform(0.0, _LONGEST_REST))

    async def _read(self) -> None:
        client = self._client()
        while not self._stopping:
            incarnation = self._known_incarnation()
            request = requests.fetch(
                PARTITION,
                incarnation.position,
                read_committed=False,
                max_wait_ms=_READ_WAIT_MS,
                min_bytes=1,
                topic_id=incarnation.topic_id,
            )
            response = await client.call(request, topic_requests.FETCH_BY_TOPIC_ID_VERSION)
            data = response.responses[0].partitions[0] if response.responses else None
            if data is None or data.error_code in (ErrorCode.INCONSISTENT_TOPIC_ID, *requests.RETRIABLE):
                await client.pause()
                continue
            assert data.error_code == ErrorCode.NONE, ErrorCode(data.error_code).name
            incarnation.position = take(data, incarnation.position, incarnation.read, read_committed=False)
            incarnation.assert_own(incarnation.read.values)

    def _note(self, event: str) -> None:
        self._cluster.loop.journal.note(PARTITION.topic, f"operation: {event}")
