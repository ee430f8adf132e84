"""The clients of one simulated history, and what must be true when they are done.

Some of each kind of clients: writers, whose transactions are all or nothing; pipelined idempotent producers, whose
retries must not show; workers that transform what those produce, with positions and outputs in one transaction; and
observers, who read what is committed all the time. Some of them die in the middle and are never seen again. Writers and
workers speak transaction version 1, or 2 where it is finalised; an operator may change that under their hands, and what
is of version 2 may be held back and come again at any time.

The checks are those of a history of transactional operations, as far as one broker can break them: nothing acknowledged
is lost, nothing is there twice, no transaction is torn, no aborted value is read, positions and outputs agree, the last
stable offset reaches the high watermark, each log by itself makes sense, and no two producers had one producer id.
The same clients and checks serve histories of clusters.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.records.record_batch import increment_sequence
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests, topic_requests
from tests.simulation.late_post import LatePost
from tests.simulation.level_changer import LevelChanger
from tests.simulation.log_reader import Call, PartitionContent, SeenBatch, read_partition
from tests.simulation.observer import Observer
from tests.simulation.patient_client import PatientClient
from tests.simulation.pipelined_producer import PipelinedProducer
from tests.simulation.recorded_history import SimulatedHistory
from tests.simulation.routes import Routes
from tests.simulation.transactional_session import TransactionalSession
from tests.simulation.transactional_writer import Fate, Transaction, TransactionalWriter
from tests.simulation.transform_worker import GROUP, TransformWorker, output_of
from tests.simulation.virtual_loop import VirtualLoop

PURCHASES, INVOICES, SHIPMENTS, JOURNAL = "purchases", "invoices", "shipments", "journal"
_PARTITION_COUNTS = {PURCHASES: 2, INVOICES: 1, SHIPMENTS: 1, JOURNAL: 2}
SOURCES = [TopicPartition(PURCHASES, index) for index in range(2)]
TARGETS = [TopicPartition(INVOICES, 0), TopicPartition(SHIPMENTS, 0)]
JOURNALS = [TopicPartition(JOURNAL, index) for index in range(2)]
ALL = [*SOURCES, *TARGETS, *JOURNALS]
_SETTLE_SECONDS = 8.0
"""Longer than the transaction time-out and the sweep that follows it."""
_PATIENCE_AT_THE_END = 5.0
"""Seconds. On a network where no response ever comes in 10 ms, a client that waits no longer would repeat for ever."""


class Client(Protocol):
    """An application."""

    stopping: bool

    async def run(self) -> None: ...


@dataclass
class Seen:
    """A partition at the end, at both isolation levels."""

    committed: PartitionContent
    everything: PartitionContent


class Manners(NamedTuple):
    """How the clients behave that depends on what they talk to."""

    replication_factor: int = 1
    longest_rest: float = 0.0
    """In seconds, of every client between two things that it does."""
    most_batches: int = 80
    """Of an idempotent producer."""
    patience: tuple[float, ...] = (5.0,)
    """Seconds after which a transactional client gives up to wait for a response, and asks again."""
    patience_in_version_1: float = 5.0
    """Longer than anything is held up: a late request of version 1 may harm a later transaction (KAFKA-17754)."""
    repeats_markers: bool = True
    restarts: bool = False
    """Whether brokers start from snapshots, as after an orderly stop: these have only the last batch of a producer."""
    requests_outlive_clients: bool = False
    """Whether what a client has sent may arrive when its death is known."""


class Workload:
    """``setup``, ``start``, ``finish``, ``check``, in this order."""

    def __init__(
        self,
        loop: VirtualLoop,
        new_routes: Callable[[], Routes],
        rng: random.Random,
        manners: Manners = Manners(),  # noqa: B008
    ) -> None:
        """``new_routes``: for one more client."""
        self._loop = loop
        self._new_routes = new_routes
        self._rng = rng
        self._manners = manners
        self._topic_ids: dict[str, bytes] = {}
        self._history = SimulatedHistory(loop)
        self.late_post = LatePost(
            loop,
            new_routes(),
            self._own_stream(),
            probability=rng.choice([0.0, 0.1, 0.3]),
            repeats_markers=manners.repeats_markers,
        )
        self.level_changers = [LevelChanger(new_routes(), self._own_stream()) for _ in range(rng.choice([0, 0, 1]))]
        self.writers = [self._writer(f"w{n}") for n in range(rng.choice([0, 1, 1, 2, 3]))]
        self.producers = [
            PipelinedProducer(
                f"p{n}",
                new_routes(),
                rng.choice(SOURCES),
                self._own_stream(),
                rng.randint(5, manners.most_batches),
                response_within=rng.choice([0.01, 0.05, 5.0]),
                history=self._history,
                longest_rest=manners.longest_rest,
                may_be_forgotten=manners.restarts,
            )
            for n in range(rng.randint(1, 3))
        ]
        self.workers = [self._worker(source) for source in SOURCES[: rng.choice([0, 1, 2, 2])]]
        self.observers = [
            Observer(new_routes(), partition, self._own_stream(), self._history)
            for partition in rng.sample(ALL, rng.randint(0, 2))
        ]
        self._tasks: dict[Client, asyncio.Task[None]] = {}

    def _own_stream(self) -> random.Random:
        """Return the random stream of one client, which is the same whatever befalls the others."""
        return random.Random(self._rng.random())

    def _writer(self, name: str) -> TransactionalWriter:
        rest = self._manners.longest_rest
        return TransactionalWriter(
            name, JOURNALS, self._own_stream(), self._session(name), self._history, longest_rest=rest
        )

    def _worker(self, source: TopicPartition, incarnation: str = "") -> TransformWorker:
        session = self._session(f"transform-{source.partition}{incarnation}")
        rest = self._manners.longest_rest
        history = self._history
        return TransformWorker(
            source, TARGETS, self._own_stream(), session, history, incarnation=incarnation, longest_rest=rest
        )

    def _session(self, transactional_id: str) -> TransactionalSession:
        newest_version = self._rng.choice([1, 2, 2])
        patience = self._manners.patience_in_version_1
        if newest_version == 2 and not self.level_changers:
            patience = self._rng.choice(self._manners.patience)
        client = self._client(response_within=patience)
        return TransactionalSession(
            transactional_id,
            client,
            self._own_stream(),
            newest_version=newest_version,
            timeout_ms=self._rng.choice([400, 5_000, 5_000]),
            topic_ids=self._topic_ids,
        )

    def _client(self, response_within: float = 5.0) -> PatientClient:
        return PatientClient(
            self._new_routes(), self._own_stream(), response_within=response_within, late_post=self.late_post
        )

    @property
    def sessions(self) -> list[TransactionalSession]:
        return [writer.session for writer in self.writers] + [worker.session for worker in self.workers]

    @property
    def events(self) -> Counter[str]:
        """What happened that a history may be wanted for."""
        return self._steps + self.late_post.responses

    @property
    def _steps(self) -> Counter[str]:
        """What clients and operators did."""
        steps = sum((session.events for session in self.sessions), Counter[str]())
        steps["level changed"] = sum(changer.changes for changer in self.level_changers)
        return steps

    async def setup(self) -> None:
        topics = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=self._manners.replication_factor)
            for name, count in _PARTITION_COUNTS.items()
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=5000)
        response = await self._client().succeed(
            request, topic_requests.CREATE_TOPICS_VERSION, topic_requests.creation_errors
        )
        if not any(topic.error_code for topic in response.topics):  # Else no id is known, and clients use names.
            self._topic_ids.update({topic.name: topic.topic_id for topic in response.topics})

    def start(self) -> None:
        clients: list[Client] = [
            *self.writers,
            *self.producers,
            *self.workers,
            *self.observers,
            *self.level_changers,
        ]
        for client in clients:
            self._tasks[client] = self._loop.create_task(client.run())

    def progress(self) -> Mapping[TopicPartition, int]:
        """Nothing: a marker may have to pass the very link that is cut."""
        return {}

    def power_lost(self, broker: object) -> None:
        """Nothing: these clients are promised that nothing is lost."""

    async def disturb(self) -> None:
        """Clients die, or get successors."""
        if self._rng.random() < 0.3:
            self.kill_some()
        else:
            await self.replace_a_worker()

    def kill_some(self) -> None:
        """Applications die: they neither end their transactions nor say goodbye."""
        for task in self._tasks.values():
            if self._rng.random() < 0.3 and task.cancel():
                self._note("client dies")

    async def replace_a_worker(self) -> None:
        """Start a second worker for a partition: while the first is at work, or after it died."""
        if not self.workers:
            return
        first = self.workers[0]
        predecessors = [worker for worker in self.workers if worker.source == first.source]
        incarnation = predecessors[-1].incarnation
        # What is held up somewhere may arrive after its sender's death is known, and only a group's generation tells.
        may_be_held_up = self._loop.network.stall_probability > 0.0 or self.late_post.probability > 0.0
        if not may_be_held_up and not self._manners.requests_outlive_clients and self._rng.random() < 0.5:
            for worker in predecessors:
                self._tasks[worker].cancel()
            await asyncio.sleep(2 * self._loop.network.delay_seconds[1])
            incarnation = f"-{len(self.workers)}"
        second = self._worker(first.source, incarnation)
        self._tasks[second] = self._loop.create_task(second.run())
        self.workers.append(second)
        self._note("worker is replaced")
        await asyncio.sleep(self._rng.uniform(0.0, 0.3))

    async def finish(self) -> None:
        """Let those that live come to an end, and transactions of those that do not time out."""
        for client in self._tasks:
            client.stopping = client not in self.producers
        for patient in [producer.client for producer in self.producers] + [session.client for session in self.sessions]:
            patient.response_within = max(patient.response_within, _PATIENCE_AT_THE_END)
        done, _ = await asyncio.wait(self._tasks.values(), timeout=120)
        assert len(done) == len(self._tasks), "a client hangs"
        for task in done:
            if not task.cancelled():
                task.result()
        await self.late_post.empty()
        await asyncio.sleep(_SETTLE_SECONDS)
        for step in self._steps.elements():
            self._note(step)
        for response in self.late_post.responses.elements():
            self._note(f"late {response}")

    def _note(self, event: str) -> None:
        self._loop.journal.note("workload", f"operation: {event}")

    async def check(self) -> None:
        seen, positions = await self._look()
        self._check_producer_ids()
        for partition, both in seen.items():
            _check_log(partition, both)
        for writer in self.writers:
            for transaction in writer.transactions:
                _check_atomicity(transaction, seen)
        for producer in self.producers:
            _check_idempotence(producer, seen[producer.partition].everything)
        for observer in self.observers:
            observer.check(seen[observer.partition].committed)
        for source in SOURCES:
            _check_transformation(source, positions[source], seen)
        self._history.assert_good()

    async def check_by_history(self) -> None:
        """Only what the separate checker finds."""
        await self._look()
        self._history.assert_good()

    async def _look(self) -> tuple[dict[TopicPartition, Seen], dict[TopicPartition, int]]:
        """All partitions, and the positions of the group; recorded as the end of the history."""
        client = self._client()
        seen = {partition: await _see(client.call, partition) for partition in ALL}
        positions = {source: await _position(client.call, source) for source in SOURCES}
        await client.disconnect()
        records = {partition: both.committed.records for partition, both in seen.items()}
        self._history.finish(records, {GROUP: positions})
        return seen, positions

    def _check_producer_ids(self) -> None:
        """Each was given to one producer."""
        owners = {f"idempotent {producer.name}": {producer.producer_id} - {-1} for producer in self.producers}
        for session in self.sessions:
            owners.setdefault(session.transactional_id, set()).update(session.producer_ids)
        counts = Counter(producer_id for producer_ids in owners.values() for producer_id in producer_ids)
        assert max(counts.values(), default=1) == 1, f"a producer id was given out twice: {owners}"


async def _see(call: Call, partition: TopicPartition) -> Seen:
    committed = await read_partition(call, partition, read_committed=True)
    return Seen(committed, await read_partition(call, partition, read_committed=False))


async def _position(call: Call, source: TopicPartition) -> int:
    find = requests.find_coordinator(GROUP, transactional=False)
    while True:
        await call(find, requests.FIND_COORDINATOR_VERSION)
        request = requests.offset_fetch(GROUP, source, require_stable=True)
        position = requests.fetched_position(await call(request, requests.OFFSET_FETCH_VERSION))
        if position.error is ErrorCode.NONE:
            return max(position.offset, 0)
        assert position.error in requests.RETRIABLE, position.error.name
        await asyncio.sleep(0.01)


def _check_log(partition: TopicPartition, seen: Seen) -> None:
    """One log by itself: everything is decided, sequences have no gap, and no producer's epoch goes back."""
    everything = seen.everything
    assert seen.committed.last_stable_offset == everything.high_watermark, f"{partition} hangs"
    counts = Counter(everything.values)
    assert max(counts.values(), default=1) == 1 or partition in TARGETS, f"{partition} has a batch twice"
    by_producer: dict[int, list[SeenBatch]] = {}
    for batch in everything.batches:
        by_producer.setdefault(batch.header.producer_id, []).append(batch)
    for producer_id, batches in by_producer.items():
        _check_producer(f"{partition}, producer {producer_id}", batches)


def _check_producer(name: str, batches: Iterable[SeenBatch]) -> None:
    epoch, expected, open_transaction = -1, 0, False
    for header, commits in batches:
        assert header.producer_epoch >= epoch, f"{name}: epoch {header.producer_epoch} after {epoch}"
        if header.producer_epoch > epoch:
            assert commits is not None or not open_transaction, f"{name}: a new epoch inside a transaction"
            # A commit is of the transaction's epoch, or of the next, with which version 2 prepares it.
            assert not (commits and open_transaction) or header.producer_epoch == epoch + 1, f"{name}: a torn commit"
            epoch, expected = header.producer_epoch, 0
        if commits is not None:
            open_transaction = False
            continue
        assert header.base_sequence == expected, f"{name}: sequence {header.base_sequence} instead of {expected}"
        expected = increment_sequence(header.last_sequence, 1)
        open_transaction = header.is_transactional
    assert not open_transaction, f"{name}: a transaction without an end"


def _check_atomicity(transaction: Transaction, seen: dict[TopicPartition, Seen]) -> None:
    visible = [value in seen[partition].committed.values for partition, value in transaction.values]
    if transaction.fate is Fate.COMMITTED:
        assert all(visible), f"lost or torn: {transaction} {visible}"
    elif transaction.fate is Fate.ABORTED:
        assert not any(visible), f"aborted but visible: {transaction} {visible}"
    else:
        # The last produce of a broken transaction may have had no effect, so only visibility is all or nothing.
        assert not any(visible) or all(visible), f"torn: {transaction} {visible}"


def _check_idempotence(producer: PipelinedProducer, content: PartitionContent) -> None:
    """What was acknowledged is where the broker said; what was not is there at most once, in its order."""
    mine = [record for record in content.records if record.value.startswith(b"%s-" % producer.name.encode())]
    assert [record.value for record in mine] == [b"%s-%d" % (producer.name.encode(), n) for n in range(len(mine))]
    by_offset = {record.offset: record.value for record in mine}
    for batch in producer.done:
        assert [by_offset.get(batch.offset + n) for n in range(len(batch.values))] == batch.values, f"lost: {batch}"


def _check_transformation(source: TopicPartition, position: int, seen: dict[TopicPartition, Seen]) -> None:
    """The position covers an input exactly if its outputs are visible, and they are visible once."""
    covered = [output_of(source, record.value) for record in seen[source].committed.records if record.offset < position]
    for target in TARGETS:
        outputs = [value for value in seen[target].committed.values if value.startswith(b"%d:" % source.partition)]
        assert outputs == covered, f"{source} up to {position} and its outputs in {target} disagree"
