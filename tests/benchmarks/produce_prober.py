"""A light client that asks every partition of a topic, over and over, whether it accepts a record (acks=all).

It knows what any client knows: the leaders from Metadata, taken from whoever answers, and the hints in errors; of two
it believes the newer leader epoch. It has one connection to each broker, and tries a partition again as soon as it
knows of another leader, or a hundredth of a second later. So what it measures is the cluster, and not the patience of
a library. A broker that is silent is asked nothing else: after a while the others are asked who leads now.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import Any, Final, NamedTuple, TypeAlias

from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.errors import ClientError
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from oncelog.protocol.records.record_batch import NewRecord, build_batch

Connector: TypeAlias = Callable[..., Coroutine[Any, Any, Connection]]
"""As ``oncelog.clients.connection.connect``."""
_CONNECT_SECONDS: Final = 0.5
_PAUSE_SECONDS: Final = 0.01
_PATIENCE_SECONDS: Final = 0.2
_SILENCE_SECONDS: Final = 0.05
_TIMESTAMP_MS: Final = 1_700_000_000_000


class Accepted(NamedTuple):
    """A record that was accepted: when it was first sent and when the response came, in the loop's seconds."""

    began: float
    ended: float
    leader: int


@dataclass(slots=True)
class _Leader:
    broker_id: int = -1
    epoch: int = -2


@dataclass(slots=True)
class _Broker:
    address: Address
    connection: Connection | None = None
    requested: "asyncio.Future[MetadataResponse] | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the last Metadata said."""

    controller_id: int = -1
    live: frozenset[int] = frozenset()
    leaders: Mapping[int, int] = field(default_factory=dict)
    isr: Mapping[int, frozenset[int]] = field(default_factory=dict)
    replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


class ProduceProber:
    """``run`` it in a task; ``accepted`` has what every partition accepted, in order."""

    def __init__(
        self,
        addresses: Mapping[int, Address],
        topic: str,
        partitions: int,
        *,
        beat_seconds: float,
        size: int = 100,
        connector: Connector = connect,
    ) -> None:
        """``beat_seconds``: from one record of a partition to its next; it may be changed meanwhile."""
        self._connect = partial(connector, connect_seconds=_CONNECT_SECONDS)
        self._brokers = {broker_id: _Broker(address) for broker_id, address in addresses.items()}
        self._topic = topic
        self.beat_seconds = beat_seconds
        self._leaders = {partition: _Leader() for partition in range(partitions)}
        batch = build_batch([NewRecord(timestamp=_TIMESTAMP_MS, key=None, value=bytes(size))])
        self._requests = {partition: _produce(topic, partition, batch) for partition in range(partitions)}
        self._hurried = asyncio.Event()
        self._wanted = asyncio.Event()
        self._seen = asyncio.Event()
        self.view = View()
        self.accepted: dict[int, list[Accepted]] = {partition: [] for partition in range(partitions)}
        self.errors: dict[str, int] = {}
        """How often each error was answered."""

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for broker in self._brokers.values():
                group.create_task(_stay_connected(broker, self._connect))
            group.create_task(self._follow_metadata())
            for partition in self._leaders:
                group.create_task(self._probe(partition))

    def hurry(self) -> None:
        """Ask every partition now."""
        self._hurried.set()
        self._hurried = asyncio.Event()

    async def look(self) -> View:
        """What brokers say from now on."""
        for _ in range(2):  # A response that is under way may be older.
            self._wanted.set()
            await self._seen.wait()
        return self.view

    def first_accepted(self, partition: int, since: float, *, not_by: int = -1) -> Accepted | None:
        """The first record that the partition accepted after a moment, from another leader than ``not_by``."""
        found = None
        for accepted in reversed(self.accepted[partition]):
            if accepted.ended <= since:
                break
            if accepted.leader != not_by:
                found = accepted
        return found

    def first_begun(self, partition: int, since: float) -> Accepted | None:
        """The first record that the partition accepted of those that were sent after a moment."""
        found = None
        for accepted in reversed(self.accepted[partition]):
            if accepted.began <= since:
                break
            found = accepted
        return found

    def longest_stall(self, since: float) -> float:
        """The most seconds that a record took which was answered after a moment."""
        late = [a.ended - a.began for accepted in self.accepted.values() for a in accepted if a.ended > since]
        return max(late)

    # Partitions

    async def _probe(self, partition: int) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self.beat_seconds * partition / len(self._leaders))
        while True:
            began = loop.time()
            while not await self._try(partition):
                pass
            self.accepted[partition].append(Accepted(began, loop.time(), self._leaders[partition].broker_id))
            rest = began + self.beat_seconds - loop.time()
            if rest > 0:
                try:
                    async with asyncio.timeout(rest):
                        await self._hurried.wait()
                except TimeoutError:
                    pass

    async def _try(self, partition: int) -> bool:
        leader = self._leaders[partition]
        requested = leader.broker_id
        broker = self._brokers.get(requested)
        if broker is None or broker.connection is None or not broker.connection.is_open:
            await self._look_once()
            return False
        try:
            future = broker.connection.send(self._requests[partition], ProduceResponse, at_most=12)
            future.add_done_callback(_retrieve_exception)
            while not future.done():
                await asyncio.wait([future], timeout=_PATIENCE_SECONDS)
                if not future.done():
                    await self._look_once()
                    if leader.broker_id != requested:
                        future.cancel()
                        return False
            response = future.result()
        except ClientError as error:
            self._count(type(error).__name__)
            await self._look_once()
            return False
        return await self._judge(leader, response)

    async def _judge(self, leader: _Leader, response: ProduceResponse) -> bool:
        (topic,) = response.responses
        (produced,) = topic.partition_responses
        if produced.error_code == ErrorCode.NONE:
            return True
        self._count(ErrorCode(produced.error_code).name)
        hint = produced.current_leader
        if hint is None or not _learn(leader, hint.leader_id, hint.leader_epoch):
            await self._look_once()
        return False

    def _count(self, error: str) -> None:
        self.errors[error] = self.errors.get(error, 0) + 1

    # Metadata

    async def _look_once(self) -> None:
        self._wanted.set()
        await self._seen.wait()

    async def _follow_metadata(self) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        for broker in cycle(self._brokers.values()):
            await self._wanted.wait()
            connection = broker.connection
            if connection is not None and connection.is_open and (broker.requested is None or broker.requested.done()):
                self._wanted.clear()
                broker.requested = connection.send(request, MetadataResponse, at_most=9)
                broker.requested.add_done_callback(self._hear)
                await asyncio.wait([broker.requested], timeout=_SILENCE_SECONDS)
                if not broker.requested.done():
                    self._wanted.set()
            await asyncio.sleep(_PAUSE_SECONDS)

    def _hear(self, response: "asyncio.Future[MetadataResponse]") -> None:
        if response.exception() is not None:
            self._wanted.set()
            return
        self._take(response.result())
        self._seen.set()
        self._seen = asyncio.Event()

    def _take(self, response: MetadataResponse) -> None:
        partitions = [partition for topic in response.topics for partition in topic.partitions]
        for reported in partitions:
            _learn(self._leaders[reported.partition_index], reported.leader_id, reported.leader_epoch)
        self.view = View(
            controller_id=response.controller_id,
            live=frozenset(broker.node_id for broker in response.brokers),
            leaders={reported.partition_index: reported.leader_id for reported in partitions},
            isr={reported.partition_index: frozenset(reported.isr_nodes) for reported in partitions},
            replicas={reported.partition_index: tuple(reported.replica_nodes) for reported in partitions},
        )


def _learn(leader: _Leader, broker_id: int, epoch: int) -> bool:
    """Believe the newer of two; whether this one was."""
    if epoch <= leader.epoch:
        return False
    leader.broker_id, leader.epoch = broker_id, epoch
    return True


def _retrieve_exception(response: "asyncio.Future[ProduceResponse]") -> None:
    """Also when nobody waits for it any more."""
    if not response.cancelled():
        response.exception()


def _produce(topic: str, partition: int, batch: bytearray) -> ProduceRequest:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])


async def _stay_connected(broker: _Broker, connector: Connector) -> None:
    """Keep a connection, as far as there is somebody to connect to."""
    try:
        while True:
            try:
                broker.connection = await connector(broker.address)
                await asyncio.shield(broker.connection.closed)
            except ClientError:
                await asyncio.sleep(_PAUSE_SECONDS)
    finally:
        if broker.connection is not None:
            broker.connection.close()
