"""A transaction coordinator in a small world: its ports in memory, its time virtual, its faults at the test's command.

``Log`` is one partition of the transaction log, replicated by nobody: the test moves the high watermark, refuses
appends, and fails over at any point between the high watermark and the end. ``DataPartition`` is a partition of
a topic of clients: it keeps markers as a partition leader does and fences older coordinators. ``World`` ties them to a
``TransactionCoordinator`` and runs the loop.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from oncelog.coordinator.ports import (
    NO_OFFSET,
    CoordinatorHost,
    LeaderAndEpoch,
    OnReplicated,
    OnResponse,
    TransactionMarker,
)
from oncelog.coordinator.promise import Promise, Response, Undecided
from oncelog.coordinator.transaction.coordinator import (
    EndTxnResult,
    InitProducerIdResult,
    TransactionCoordinator,
)
from oncelog.coordinator.transaction.listing import TransactionFilter
from oncelog.coordinator.transaction.log_records import read_record
from oncelog.coordinator.transaction.settings import TransactionConfig
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch, Transaction, TransactionMetadata
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from oncelog.protocol.records.record_batch import CorruptRecord, iter_records, patch_offset_and_epoch, read_header
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.schema import ZERO_UUID, Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.virtual_loop import VirtualLoop

T = TypeVar("T")
R = TypeVar("R")

HERE = 1
"""The broker of the coordinator."""
LISTING_UNITS = 2_000
"""The budget of one slice of ``World.listed``."""


class Log:
    """One partition of the transaction log, over all its leaders."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, bytes]] = []
        self.log_start_offset = 0
        self.high_watermark = 0
        self.log_end_offset = 0
        self.epoch = -1
        self.replicates_at_once = True
        self.refusals: list[ErrorCode | Exception] = []
        """The errors that the next appends return, or raise."""
        self.failures_after_write: list[Exception] = []
        """What the next appends raise once their batch is written."""
        self.isr_changes = 0
        """By how much the leader epoch has grown since this leadership began."""
        self.is_deserted = False
        self.waiters: list[tuple[int, OnReplicated]] = []
        self.epoch_log: EpochLog | None = None

    def elect(self, *, lost_records: int = 0) -> "EpochLog":
        """A new leader, which may lack records that were not replicated."""
        self.depose()
        for _ in range(lost_records):
            if self.batches and self.batches[-1][0] >= self.high_watermark:
                self.log_end_offset = self.batches.pop()[0]
        self.epoch += 1
        self.epoch_log = EpochLog(self, self.epoch)
        return self.epoch_log

    def depose(self) -> None:
        self.epoch_log = None
        waiters, self.waiters = self.waiters, []
        for _, callback in waiters:
            callback(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def replicate(self, up_to: int | None = None) -> None:
        """Move the high watermark, to the end unless said otherwise; followers have whole batches."""
        target = self.log_end_offset
        if up_to is not None:
            ends = [read_header(batch).next_offset for _, batch in self.batches]
            target = min((end for end in ends if end >= up_to), default=target)
        self.high_watermark = max(self.high_watermark, target)
        while self.waiters and self.waiters[0][0] <= self.high_watermark:
            self.waiters.pop(0)[1](ErrorCode.NONE)

    def records(self, *, below: int | None = None) -> Iterator[tuple[str, TransactionMetadata | None]]:
        """What the log says, record by record."""
        for base_offset, batch in self.batches:
            if below is None or base_offset < below:
                for record in iter_records(batch, 0, read_header(batch), max_decompressed_bytes=1 << 20):
                    entry = read_record(record)
                    assert entry is not None
                    yield entry

    def value_versions(self, *, below: int | None = None) -> dict[str, int]:
        """In which version the last word on each transactional id was written."""
        versions: dict[str, int] = {}
        for base_offset, batch in self.batches:
            if below is None or base_offset < below:
                for record in iter_records(batch, 0, read_header(batch), max_decompressed_bytes=1 << 20):
                    assert record.key is not None
                    versions[record.key[4:].decode()] = -1 if record.value is None else record.value[1]
        return versions

    def table(self, *, below: int | None = None) -> dict[str, TransactionMetadata]:
        """The last word on each transactional id."""
        table: dict[str, TransactionMetadata] = {}
        for transactional_id, metadata in self.records(below=below):
            if metadata is None:
                table.pop(transactional_id, None)
            else:
                table[transactional_id] = metadata
        return table

    def states(self, transactional_id: str) -> list[str]:
        """The states that an id went through, with its epochs, as the log has them."""
        return [
            "gone" if metadata is None else f"{metadata.state.label}@{metadata.producer_epoch}"
            for known, metadata in self.records()
            if known == transactional_id
        ]


@dataclass
class EpochLog:
    """``ReplicatedLog``: the log at one leader epoch."""

    log: Log
    leader_epoch: int
    late_appends: int = 0
    """How often somebody tried to append after the end of the term."""

    @property
    def is_over(self) -> bool:
        return self.log.epoch_log is not self

    @property
    def is_deserted(self) -> bool:
        return self.log.is_deserted

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    def append(self, batch: bytearray) -> int | ErrorCode:
        if self.is_over:
            self.late_appends += 1
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.refusals:
            refusal = self.log.refusals.pop(0)
            if isinstance(refusal, Exception):
                raise refusal
            return refusal
        base_offset = self.log.log_end_offset
        patch_offset_and_epoch(batch, 0, base_offset, self.leader_epoch + self.log.isr_changes)
        self.log.batches.append((base_offset, bytes(batch)))
        self.log.log_end_offset = read_header(batch).next_offset
        if self.log.failures_after_write:
            raise self.log.failures_after_write.pop(0)
        if self.log.replicates_at_once:
            self.log.replicate()
        return self.log.log_end_offset

    def when_replicated(self, end_offset: int, callback: OnReplicated) -> None:
        if self.is_over:
            callback(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.log.high_watermark >= end_offset:
            callback(ErrorCode.NONE)
        else:
            self.log.waiters.append((end_offset, callback))

    def read(self, start_offset: int, max_bytes: int) -> bytes:
        found = bytearray()
        for _, batch in self.log.batches:
            if read_header(batch).next_offset > start_offset and (not found or len(found) + len(batch) <= max_bytes):
                found += batch
        return bytes(found)


@dataclass
class DataPartition:
    """A partition that transactions write to."""

    leader: int | None = HERE
    leader_epoch: int = 0
    markers: list[TransactionMarker] = field(default_factory=list)
    errors: list[ErrorCode] = field(default_factory=list)
    """The errors that the next markers get."""

    def write(self, marker: TransactionMarker) -> ErrorCode:
        if self.errors:
            return self.errors.pop(0)
        for known in self.markers:
            if known.producer_id == marker.producer_id and known.coordinator_epoch > marker.coordinator_epoch:
                return ErrorCode.TRANSACTION_COORDINATOR_FENCED
            if known.producer_id == marker.producer_id and known.producer_epoch > marker.producer_epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
        self.markers.append(marker)
        return ErrorCode.NONE


@dataclass
class Sent:
    """A request on its way to another broker."""

    broker_id: int
    request: WriteTxnMarkersRequest
    on_response: OnResponse


class Cluster:
    """Topics, their partitions and the ways to their leaders.

    ``TopicMetadata``, ``BrokerChannel`` and ``LocalMarkers``.
    """

    def __init__(self, log_partitions: int) -> None:
        self.partitions: dict[TopicPartition, DataPartition] = {}
        self.counts: dict[str, int] = {TRANSACTION_STATE_TOPIC_NAME: log_partitions}
        self.topic_ids: dict[str, bytes] = {}
        self.knows_all = True
        """Whether a partition that is not known does not exist."""
        self.on_the_way: list[Sent] = []
        """Requests to other brokers; the test delivers, loses or forgets them."""

    def add_topic(self, topic: str, partitions: int = 1, *, leader: int | None = HERE) -> None:
        self.counts[topic] = partitions
        for index in range(partitions):
            self.partitions[TopicPartition(topic, index)] = DataPartition(leader)

    def delete_topic(self, topic: str) -> None:
        for index in range(self.counts.pop(topic)):
            del self.partitions[TopicPartition(topic, index)]

    def topic_exists(self, topic: str) -> bool:
        return topic in self.counts

    def partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    def is_deleted(self, partition: TopicPartition) -> bool:
        return self.knows_all and partition not in self.partitions

    def topic_id(self, topic: str) -> bytes:
        return self.topic_ids.get(topic, ZERO_UUID)

    def leader(self, partition: TopicPartition) -> LeaderAndEpoch | None:
        known = self.partitions.get(partition)
        return None if known is None or known.leader is None else LeaderAndEpoch(known.leader, known.leader_epoch)

    def send(self, broker_id: int, request: Message, on_response: OnResponse) -> None:
        assert isinstance(request, WriteTxnMarkersRequest)
        assert broker_id != HERE, "a coordinator needs no request for the partitions of its own broker"
        self.on_the_way.append(Sent(broker_id, request, on_response))

    def write(self, marker: TransactionMarker, partitions: Sequence[TopicPartition]) -> Promise[Sequence[ErrorCode]]:
        written: Promise[Sequence[ErrorCode]] = Promise()
        written.complete([self._write(partition, marker) for partition in partitions])
        return written

    def respond(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """What the leaders do with the markers."""
        results = []
        for marker in request.markers:
            kept = TransactionMarker(
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                marker.coordinator_epoch,
                marker.transaction_version,
            )
            topics = []
            for topic in marker.topics:
                partitions = [
                    WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=self._write(TopicPartition(topic.name, index), kept)
                    )
                    for index in topic.partition_indexes
                ]
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
            results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        return WriteTxnMarkersResponse(markers=results)

    def _write(self, partition: TopicPartition, marker: TransactionMarker) -> ErrorCode:
        known = self.partitions.get(partition)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else known.write(marker)

    def deliver(self, count: int | None = None) -> None:
        """Let requests arrive, and their responses come back."""
        taken = len(self.on_the_way) if count is None else count
        sent, self.on_the_way = self.on_the_way[:taken], self.on_the_way[taken:]
        for one in sent:
            one.on_response(self.respond(one.request))

    def lose(self) -> None:
        """The connections break before anything arrives."""
        sent, self.on_the_way = self.on_the_way, []
        for one in sent:
            one.on_response(None)


class ProducerIds:
    """``ProducerIdSource`` with blocks that the test can make as short as it likes."""

    def __init__(self, block: int = 1_000) -> None:
        self.given = 0
        self._left = self._block = block
        self.failure: Exception | None = None

    def block(self, size: int) -> None:
        """The blocks to be reserved from now on have this size."""
        self._block = size

    def next_nowait(self) -> int | None:
        if not self._left:
            return None
        self._left -= 1
        self.given += 1
        return 1_000 + self.given

    async def next(self) -> int:
        await asyncio.sleep(0.001)
        if self.failure is not None:
            raise self.failure
        self._left = self._block
        producer_id = self.next_nowait()
        assert producer_id is not None
        return producer_id


class Tasks:
    """``TaskOwner``: an exception of a task is the test's failure."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.running: list[asyncio.Task[None]] = []
        self.failures: list[str] = []
        """Of work that is begun again after each."""

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> object:
        task = self._loop.create_task(coroutine, name=name)
        self.running.append(task)
        return task

    def retry(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> "asyncio.Task[None]":
        task = self._loop.create_task(self._retry(work, name), name=name)
        self.running.append(task)
        return task

    async def _retry(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        while True:
            try:
                await work()
            except (CorruptRecord, OSError) as error:
                self.failures.append(f"{name}: {error}")
                await asyncio.sleep(1.0)
            else:
                return

    def check(self) -> None:
        """Raise what a task has raised."""
        for task in [task for task in self.running if task.done()]:
            self.running.remove(task)
            if not task.cancelled():
                task.result()

    async def stop(self) -> None:
        self.check()
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)


class World:
    """A coordinator and everything around it."""

    def __init__(
        self,
        *,
        log_partitions: int = 1,
        config: TransactionConfig | None = None,
        block: int = 1_000,
        level: int = 2,
    ) -> None:
        """``level`` is the finalised one of ``transaction.version``."""
        self.loop = VirtualLoop(random.Random(0))
        self.config = config or TransactionConfig()
        self.cluster = Cluster(log_partitions)
        self.logs = [Log() for _ in range(log_partitions)]
        self.producer_ids = ProducerIds(block)
        self.transaction_version = level
        self.tasks = Tasks(self.loop)
        self.listing_slices = 0
        """How many slices the last listing took."""
        self.coordinator = TransactionCoordinator(
            CoordinatorHost(
                broker_id=HERE,
                metadata=self.cluster,
                channel=self.cluster,
                markers=self.cluster,
                tasks=self.tasks,
                wall_clock=self.wall_clock,
            ),
            self.config,
            producer_ids=self.producer_ids,
            features=self,
        )

    @property
    def log(self) -> Log:
        (log,) = self.logs
        return log

    def wall_clock(self) -> int:
        return 1_000_000 + int(self.loop.time() * 1000)

    # The loop

    def do(self, action: Callable[[], T]) -> T:
        """Run plain code inside the loop, in one turn of it."""

        async def run() -> T:
            return action()

        return self.loop.run_until_complete(run())

    def turn(self, turns: int = 5) -> None:
        """Let what is ready happen, without letting time pass."""

        async def run() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.loop.run_until_complete(run())
        self.tasks.check()

    def sleep(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def start(self) -> "World":
        """Elect this broker for every partition, and begin the sweeps."""
        for index in range(len(self.logs)):
            self.elect(index)
        self.turn()
        self.do(self.coordinator.start)
        return self

    def elect(self, index: int = 0, *, lost_records: int = 0) -> None:
        """A failover, or a restart: the coordinator begins again with what the log has."""
        log = self.logs[index]
        log.depose()
        self.do(lambda: self.coordinator.on_resigned(index))
        epoch_log = log.elect(lost_records=lost_records)
        self.do(lambda: self.coordinator.on_elected(index, epoch_log))

    def stop(self) -> None:
        try:
            self.do(self.coordinator.stop)
            self.loop.run_until_complete(self.tasks.stop())
        finally:
            self.loop.close()

    # Requests

    def begin(self, request: Callable[[], Response[T]]) -> "Call[T]":
        """Make a request and see how far it gets in this turn of the loop."""
        call: Call[T] = Call(self)
        self.do(lambda: call.begin(request()))
        return call

    def init(
        self,
        transactional_id: str | None = "id",
        *,
        expected: ProducerIdAndEpoch | None = None,
        timeout_ms: int = 60_000,
    ) -> "Call[InitProducerIdResult]":
        return self.begin(lambda: self.coordinator.init_producer_id(transactional_id, timeout_ms, expected))

    def producer(self, transactional_id: str = "id") -> ProducerIdAndEpoch:
        """Initialise a producer that is not held up by anything."""
        result = self.init(transactional_id).wait()
        assert result.error is ErrorCode.NONE
        return result.producer

    def add(
        self,
        producer: ProducerIdAndEpoch,
        *partitions: TopicPartition,
        transactional_id: str = "id",
        client_version: int = 0,
    ) -> "Call[ErrorCode]":
        return self.begin(
            lambda: self.coordinator.add_partitions(
                transactional_id, producer, frozenset(partitions), client_version=client_version
            )
        )

    def end(
        self, producer: ProducerIdAndEpoch, *, commit: bool = True, transactional_id: str = "id"
    ) -> "Call[ErrorCode]":
        """EndTxn of a version-1 client, which learns nothing but the error."""
        return self.begin(
            lambda: shaped(
                self.coordinator.end_txn(transactional_id, producer, commit=commit, client_version=0),
                lambda result: result.error,
            )
        )

    def end_and_bump(
        self, producer: ProducerIdAndEpoch, *, commit: bool = True, transactional_id: str = "id"
    ) -> "Call[EndTxnResult]":
        """EndTxn of a version-2 client, which goes on with what the response says."""
        return self.begin(lambda: self.coordinator.end_txn(transactional_id, producer, commit=commit, client_version=2))

    def markers(self, partition: TopicPartition) -> list[TransactionMarker]:
        """The markers that a partition got, without the offsets of the records that decided them."""
        markers = self.cluster.partitions[partition].markers
        return [marker._replace(decision_offset=NO_OFFSET) for marker in markers]

    def decision_offsets(self, partition: TopicPartition) -> list[int]:
        return [marker.decision_offset for marker in self.cluster.partitions[partition].markers]

    def described(self, transactional_id: str = "id") -> TransactionMetadata:
        metadata = self.coordinator.describe(transactional_id)
        assert isinstance(metadata, TransactionMetadata)
        return metadata

    def listed(self, wanted: TransactionFilter) -> list[Transaction] | ErrorCode:
        """Those ids that the filter accepts, in as many slices as it takes."""
        budget = WorkBudget(LISTING_UNITS)
        selection = self.coordinator.list_transactions(wanted, budget)
        if isinstance(selection, ErrorCode):
            return selection
        self.listing_slices = 1
        while True:
            try:
                next(selection)
            except StopIteration as stop:
                found: list[Transaction] = stop.value
                return found
            self.listing_slices += 1
            budget.left = LISTING_UNITS


def shaped(response: Response[T], shape: Callable[[T], R]) -> Response[R]:
    """The same response in another shape."""
    if isinstance(response, asyncio.Future):
        later: asyncio.Future[R] = response.get_loop().create_future()
        response.add_done_callback(lambda done: later.set_result(shape(done.result())))
        return later
    if not isinstance(response, Undecided):
        return shape(response)

    async def decide() -> R:
        return shape(await response.decide())

    return Undecided(decide)


class Call(Generic[T]):
    """One request. ``response`` is None as long as there is none."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._value: T | None = None
        self._later: asyncio.Future[T] | None = None
        self.held_its_connection = False
        """Whether the connection's next request had to wait."""

    def begin(self, response: Response[T]) -> None:
        if isinstance(response, asyncio.Future):
            self._later = response
        elif isinstance(response, Undecided):
            self.held_its_connection = True
            self._later = self._world.loop.create_task(response.decide())
        else:
            self._value = response

    @property
    def response(self) -> T | None:
        if self._later is not None and self._later.done():
            return self._later.result()
        return self._value

    def wait(self) -> T:
        """The response, however long it takes."""
        if self._later is not None:
            return self._world.loop.run_until_complete(self._later)
        assert self._value is not None
        return self._value


@contextmanager
def world(**options: Any) -> Iterator[World]:
    """A started world that is stopped at the end."""
    created = World(**options).start()
    try:
        yield created
    finally:
        created.stop()
