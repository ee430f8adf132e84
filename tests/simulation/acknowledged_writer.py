"""A producer that writes numbered records with acks=all, each until it is acknowledged, wherever the leader is."""

import asyncio
from collections.abc import Mapping
from itertools import pairwise

from oncelog.clients.history.operation import Kind, Outcome
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.cluster_stories import state_of
from tests.simulation.recorded_history import SimulatedHistory, name_of, text_of
from tests.simulation.requests import batch, produce
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.wire_client import NoResponse, WireClient

PRODUCE_VERSION = 9
RETRY_SECONDS = 0.02
MOST_ATTEMPTS = 20_000


class AcknowledgedWriter:
    """Writes to one partition, outside of every process. Records may be there twice: it is not idempotent."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        partition: TopicPartition,
        *,
        pause: float = RETRY_SECONDS,
        response_within: float = 1.0,
        history: SimulatedHistory | None = None,
    ) -> None:
        """``pause``: seconds between two records. ``history``: where it records what it does, beside others."""
        self._cluster = cluster
        self.partition = partition
        self._pause = pause
        self._response_within = response_within
        self._client: WireClient | None = None
        self._stopped = False
        self.acknowledged: list[bytes] = []
        self.times: list[float] = []
        self._history = history or SimulatedHistory(cluster.loop)
        self._process = self._history.process(f"writer of {name_of(partition)}")
        self._offset = -1
        """Of the last record that was acknowledged."""
        self.offsets: list[int] = []
        """Of all of them."""
        self._may_be_lost: set[bytes] = set()

    async def run(self) -> None:
        """Write until stopped."""
        while not self._stopped:
            await self.write(1)
            await asyncio.sleep(self._pause)

    def stop(self) -> None:
        self._stopped = True

    async def write(self, count: int) -> None:
        for _ in range(count):
            await self._write(b"<%d>" % len(self.acknowledged))

    async def _write(self, value: bytes) -> None:
        operation = self._history.begin(self._process, Kind.SEND)
        number = operation.send(name_of(self.partition), text_of(value))
        for _ in range(MOST_ATTEMPTS):
            if await self.try_to_write(value):
                operation.acknowledged(number, self._offset)
                operation.end(Outcome.OK)
                self.acknowledge(value)
                return
            await asyncio.sleep(RETRY_SECONDS)
        raise AssertionError(f"{value!r} is not taken by {self.partition}")

    def acknowledge(self, value: bytes) -> None:
        """Note that the last attempt has succeeded."""
        self.acknowledged.append(value)
        self.offsets.append(self._offset)
        self.times.append(self._cluster.loop.time())

    async def try_to_write(self, value: bytes) -> bool:
        try:
            client = await self._connection()
            response = None if client is None else await client.call(self._request(value), PRODUCE_VERSION)
        except NoResponse:
            response = None
        if response is None or response.responses[0].partition_responses[0].error_code != ErrorCode.NONE:
            self._leave()
            return False
        self._offset = response.responses[0].partition_responses[0].base_offset
        return True

    async def _connection(self) -> WireClient | None:
        """To whom it knows as the leader: that may be one that is replaced already, as long as it makes no mistakes."""
        if self._client is None or self._client.closed:
            leader = state_of(self._cluster, self.partition.topic, self.partition.partition).leader
            if leader < 0:
                return None
            self._client = await WireClient.connect(self._cluster[leader].port, response_within=self._response_within)
        return self._client

    def _request(self, value: bytes) -> ProduceRequest:
        return produce(self.partition, batch([value]))

    def _leave(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def longest_stall(self) -> float:
        return max(later - earlier for earlier, later in pairwise(self.times))

    def longest_stall_since(self, since: float) -> float:
        """Return the most seconds from one acknowledged record to the next, or until now, that end after a moment."""
        times = [*self.times, self._cluster.loop.time()]
        return max((later - earlier for earlier, later in pairwise(times) if later > since), default=0.0)

    def expect_loss_from(self, offset: int) -> None:
        """Let what is acknowledged now, at this offset or beyond, be lost."""
        acknowledged = zip(self.acknowledged, self.offsets, strict=True)
        self._may_be_lost.update(value for value, at in acknowledged if at >= offset)

    def assert_in_place(self, log: Mapping[int, bytes], *, start: int = 0) -> None:
        """Every acknowledged record is where the broker said, unless that is below the log's start."""
        for value, offset in zip(self.acknowledged, self.offsets, strict=True):
            found = log.get(offset)
            assert offset < start or found == value, f"{value!r} is lost at {offset} of {self.partition}: {found!r}"

    def assert_nothing_is_lost(self, log: bytes) -> None:
        """Every acknowledged record is in the log, in order."""
        position = 0
        for value in self.acknowledged:
            if value in self._may_be_lost and log.find(value, position) < 0:
                continue
            position = log.find(value, position)
            assert position >= 0, f"{value!r} is lost in {self.partition}"
