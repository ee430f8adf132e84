"""Consumers that read from a replica in their own rack: they see what is there in the end, each record once.

A consumer asks the leader first, which refers it to a follower; after an error it asks the leader again, as clients do.
A follower that is behind the position of the consumer responds with OFFSET_OUT_OF_RANGE, as in Kafka; a leader never
may, because what was read was replicated.
"""

import asyncio
import random
from typing import Any, Final

from oncelog.broker.config.broker_config import RACK_AWARE_SELECTOR
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.acknowledged_writers import records_of
from tests.simulation.cluster_history import log_of
from tests.simulation.cluster_shape import ClusterShape
from tests.simulation.cluster_stories import create, state_of
from tests.simulation.log_reader import PartitionContent, take
from tests.simulation.simulated_cluster import PER_BROKER, SimulatedCluster
from tests.simulation.wire_client import NoResponse, WireClient

PARTITION: Final = TopicPartition("near", 0)
SETTINGS: Final = {**PER_BROKER, "replica.selector.class": RACK_AWARE_SELECTOR}
_NONE: Final = -1
_WAIT_MS: Final = 300
_RETRIES: Final = requests.RETRIABLE


class NearReader:
    """A consumer in one rack."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random, rack: str) -> None:
        self.stopping = False
        self.position = 0
        self.seen = PartitionContent()
        self._cluster = cluster
        self._rng = rng
        self._rack = rack
        self._preferred = _NONE
        self._client: WireClient | None = None
        self._broker = _NONE
        """The one that it is connected to."""

    async def run(self) -> None:
        while not self.stopping:
            leader = state_of(self._cluster, *PARTITION)
            broker_id = self._preferred if self._preferred != _NONE else leader.leader
            before = self._range_of(broker_id)
            try:
                data = await self._fetch(broker_id)
            except NoResponse:
                await self._back_to_the_leader()
                continue
            await self._take(data, broker_id, before)

    async def _fetch(self, broker_id: int) -> Any:
        if broker_id == _NONE:
            raise NoResponse("no leader")
        if self._client is None or self._client.closed or self._broker != broker_id:
            self._leave()
            self._client = await WireClient.connect(self._cluster[broker_id].port, response_within=2.0)
            self._broker = broker_id
        request = requests.fetch(
            PARTITION,
            self.position,
            read_committed=self._rng.random() < 0.5,
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=self._rng.choice([1, 300, 1 << 20]),
            rack=self._rack,
        )
        response = await self._client.call(request, requests.FETCH_VERSION)
        return response.responses[0].partitions[0]

    async def _take(self, data: Any, broker_id: int, before: tuple[int, int, int] | None) -> None:
        code = ErrorCode(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._assert_out_of_range(broker_id, before)
        if code is not ErrorCode.NONE:
            assert code is ErrorCode.OFFSET_OUT_OF_RANGE or code in _RETRIES, code.name
            self._note(f"{'near' if self._preferred != _NONE else 'leader'} read refused: {code.name.lower()}")
            await self._back_to_the_leader()
            return
        if data.preferred_read_replica != _NONE:
            self._preferred = data.preferred_read_replica
            return
        position = take(data, self.position, self.seen, read_committed=False)
        assert position <= max(data.high_watermark, self.position), f"{position} is not below {data.high_watermark}"
        if position > self.position:
            self._note("read from a follower" if self._preferred != _NONE else "read from the leader")
        self.position = position

    def _assert_out_of_range(self, broker_id: int, before: tuple[int, int, int] | None) -> None:
        """Check that the position was outside of the replica's log, which is cut only where its epoch changes."""
        after = self._range_of(broker_id)
        if before is not None and after is not None and before[0] == after[0]:
            inside = before[1] <= self.position <= before[2] and after[1] <= self.position <= after[2]
            assert not inside, f"broker {broker_id} has {before}, and {self.position} is out of range"

    def _range_of(self, broker_id: int) -> tuple[int, int, int] | None:
        """Return (leader epoch, start, end) of a broker's replica, if it runs."""
        broker = self._cluster.brokers.get(broker_id)
        replica = (
            None if broker is None or broker.broker is None else broker.broker.replica_manager.partition(PARTITION)
        )
        if replica is None or replica.log is None:
            return None
        return replica.leader_epoch, replica.log.log_start_offset, replica.log.log_end_offset

    async def _back_to_the_leader(self) -> None:
        self._preferred = _NONE
        self._leave()
        await asyncio.sleep(self._rng.uniform(0.02, 0.3))

    def _leave(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _note(self, event: str) -> None:
        self._cluster.loop.journal.note(self._rack, f"operation: {event}")


class FollowerReads:
    """``setup``, ``start``, ``finish``, ``check``, in this order."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random, shape: ClusterShape) -> None:
        self._cluster = cluster
        self._shape = shape
        self._writer = AcknowledgedWriter(cluster, PARTITION, pause=0.3)
        racks = [PER_BROKER["broker.rack"].format(broker_id=broker_id) for broker_id in shape.broker_ids]
        chosen = rng.sample(racks, 2)
        self._readers = [NearReader(cluster, random.Random(rng.random()), rack) for rack in chosen]
        self._tasks: list[asyncio.Task[None]] = []

    async def setup(self) -> None:
        await create(self._cluster, PARTITION.topic, *self._shape.replicas(1))

    def start(self) -> None:
        runs = [self._writer.run(), *(reader.run() for reader in self._readers)]
        self._tasks = [self._cluster.loop.create_task(run) for run in runs]

    async def finish(self) -> None:
        self._writer.stop()
        for reader in self._readers:
            reader.stopping = True
        await asyncio.gather(*self._tasks)

    def check(self) -> None:
        log = log_of(self._cluster, state_of(self._cluster, *PARTITION).leader, PARTITION)
        records = records_of(log)
        self._writer.assert_in_place(dict(records))
        for reader in self._readers:
            expected = [record for record in records if record.offset < reader.position]
            assert reader.seen.records == expected, f"{PARTITION} changed under a reader at {reader.position}"
