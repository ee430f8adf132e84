"""The clients of one simulated history, and what must be true when they are done.

Some of each kind of clients: writers, whose transactions are all or nothing; pipelined idempotent producers, whose
retries must not show; workers that transform what those produce, with positions and outputs in one transaction; and
observers, who read what is committed all the time. Some of them die in the middle and are never seen again. Writers and
workers speak transaction version 1, or 2 where it is finalised; an operator may change that under their hands, and what
is of version 2 may be held back and come again at any time.

The checks are those of a history of transactional operations, as far as one broker can break them: nothing acknowledged
is lost, nothing is there twice, no transaction is torn, no aborted value is read, positions and outputs agree, the last
stable offset reaches the high watermark, and each log by itself makes sense.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.records.record_batch import increment_sequence
from protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.late_post import LatePost
from tests.simulation.level_changer import LevelChanger
from tests.simulation.log_reader import PartitionContent, SeenBatch, read_partition
from tests.simulation.observer import Observer
from tests.simulation.patient_client import PatientClient
from tests.simulation.pipelined_producer import PipelinedProducer
from tests.simulation.transactional_session import TransactionalSession
from tests.simulation.transactional_writer import Fate, Transaction, TransactionalWriter
from tests.simulation.transform_worker import GROUP, TransformWorker, output_of
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.wire_client import WireClient

PURCHASES, INVOICES, SHIPMENTS, JOURNAL = "purchases", "invoices", "shipments", "journal"
_PARTITION_COUNTS = {PURCHASES: 2, INVOICES: 1, SHIPMENTS: 1, JOURNAL: 2}
SOURCES = [TopicPartition(PURCHASES, index) for index in range(2)]
TARGETS = [TopicPartition(INVOICES, 0), TopicPartition(SHIPMENTS, 0)]
JOURNALS = [TopicPartition(JOURNAL, index) for index in range(2)]
ALL = [*SOURCES, *TARGETS, *JOURNALS]
_SETTLE_SECONDS = 8.0
"""Longer than the transaction time-out and the sweep that follows it."""


class Client(Protocol):
    """An application."""

    stopping: bool

    async def run(self) -> None: ...


@dataclass
class Seen:
    """A partition at the end, at both isolation levels."""

    committed: PartitionContent
    everything: PartitionContent


class Workload:
    """``setup``, ``start``, ``finish``, ``check``, in this order."""

    def __init__(self, loop: VirtualLoop, port: int, rng: random.Random) -> None:
        self._loop = loop
        self._port = port
        self._rng = rng
        self._topic_ids: dict[str, bytes] = {}
        self.late_post = LatePost(loop, port, rng, probability=rng.choice([0.0, 0.1, 0.3]))
        self.writers = [self._writer(f"w{n}") for n in range(rng.choice([0, 1, 1, 2, 3]))]
        self.producers = [
            PipelinedProducer(
                f"p{n}",
                port,
                rng.choice(SOURCES),
                rng,
                rng.randint(5, 80),
                answer_within=rng.choice([0.01, 0.05, 5.0]),
            )
            for n in range(rng.randint(1, 3))
        ]
        self.workers = [self._worker(source) for source in SOURCES[: rng.choice([0, 1, 2, 2])]]
        self.observers = [Observer(port, partition, rng) for partition in rng.sample(ALL, rng.randint(0, 2))]
        self.level_changers = [LevelChanger(port, rng) for _ in range(rng.choice([0, 0, 1]))]
        self._tasks: dict[Client, asyncio.Task[None]] = {}

    def _writer(self, name: str) -> TransactionalWriter:
        return TransactionalWriter(name, JOURNALS, self._rng, self._session(name))

    def _worker(self, source: TopicPartition, incarnation: str = "") -> TransformWorker:
        session = self._session(f"transform-{source.partition}{incarnation}")
        return TransformWorker(source, TARGETS, self._rng, session, incarnation=incarnation)

    def _session(self, transactional_id: str) -> TransactionalSession:
        client = PatientClient(self._port, self._rng, late_post=self.late_post)
        newest_version = self._rng.choice([1, 2, 2])
        return TransactionalSession(
            transactional_id,
            client,
            self._rng,
            newest_version=newest_version,
            timeout_ms=self._rng.choice([400, 5_000, 5_000]),
            topic_ids=self._topic_ids,
        )

    @property
    def sessions(self) -> list[TransactionalSession]:
        return [writer.session for writer in self.writers] + [worker.session for worker in self.workers]

    @property
    def events(self) -> Counter[str]:
        """What happened that a history may be wanted for."""
        events = sum((session.events for session in self.sessions), Counter(self.late_post.answers))
        events["level changed"] = sum(changer.changes for changer in self.level_changers)
        return events

    async def setup(self) -> None:
        client = await WireClient.connect(self._port)
        topics = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in _PARTITION_COUNTS.items()
        ]
        answer = await client.call(CreateTopicsRequest(topics=topics, timeout_ms=5000), 7)
        self._topic_ids.update({topic.name: topic.topic_id for topic in answer.topics})
        client.close()

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

    def kill_some(self) -> None:
        """Applications die: they neither end their transactions nor say goodbye."""
        for task in self._tasks.values():
            if self._rng.random() < 0.3:
                task.cancel()

    async def replace_a_worker(self) -> None:
        """Start a second worker for a partition: while the first is at work, or after it died."""
        if not self.workers:
            return
        first = self.workers[0]
        predecessors = [worker for worker in self.workers if worker.source == first.source]
        incarnation = predecessors[-1].incarnation
        # What is held up somewhere may arrive after its sender's death is known, and only a group's generation tells.
        nothing_is_held_up = self._loop.network.stall_probability == self.late_post.probability == 0.0
        if nothing_is_held_up and self._rng.random() < 0.5:
            for worker in predecessors:
                self._tasks[worker].cancel()
            await asyncio.sleep(2 * self._loop.network.delay_seconds[1])
            incarnation = f"-{len(self.workers)}"
        second = self._worker(first.source, incarnation)
        self._tasks[second] = self._loop.create_task(second.run())
        self.workers.append(second)
        await asyncio.sleep(self._rng.uniform(0.0, 0.3))

    async def finish(self) -> None:
        """Let those that live come to an end, and transactions of those that do not time out."""
        for client in self._tasks:
            client.stopping = client not in self.producers
        done, _ = await asyncio.wait(self._tasks.values(), timeout=120)
        assert len(done) == len(self._tasks), "a client hangs"
        for task in done:
            if not task.cancelled():
                task.result()
        await self.late_post.empty()
        await asyncio.sleep(_SETTLE_SECONDS)

    async def check(self) -> None:
        client = await WireClient.connect(self._port)
        seen = {partition: await _see(client, partition) for partition in ALL}
        positions = {source: await _position(client, source) for source in SOURCES}
        client.close()
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


async def _see(client: WireClient, partition: TopicPartition) -> Seen:
    committed = await read_partition(client, partition, read_committed=True)
    return Seen(committed, await read_partition(client, partition, read_committed=False))


async def _position(client: WireClient, source: TopicPartition) -> int:
    find = requests.find_coordinator(GROUP, transactional=False)
    await client.call(find, requests.FIND_COORDINATOR_VERSION)
    while True:
        request = requests.offset_fetch(GROUP, source, require_stable=True)
        position = requests.fetched_position(await client.call(request, requests.OFFSET_FETCH_VERSION))
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
