"""The transactional ids of the partitions that this broker owns: their log, their table in memory, their loading.

An ``OwnedPartition`` exists from an election to the next resignation, at one coordinator epoch. Code that waits keeps
the object and checks afterwards that it is still owned. All that belonged to an older ownership is void then, because
the present owner reads its transitions again from the log.

``append`` is the only way to change a transactional id: it sets ``pending``, appends the record, and applies the
transition when the high watermark has passed. ``pending`` goes away in two ways only. The log refused the record: then
nothing has happened. Or the record is durable: then it has. Between the two there is no failure, only "not yet",
however long it takes; a client that cannot wait gets an error, but the id stays busy.

An unforeseen exception goes on to the caller, which does not know the outcome then. It counts as a refusal unless the
record was written: then it becomes durable like any other.

Each partition also keeps its ongoing transactions apart, so that the search for those that timed out costs nothing for
the ids that are idle.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from oncelog.coordinator.load_report import LoadReport
from oncelog.coordinator.load_times import LoadTimes
from oncelog.coordinator.log_errors import coordinator_error
from oncelog.coordinator.log_loading import load
from oncelog.coordinator.ports import (
    Cancellable,
    ClientConnection,
    FinalizedFeatures,
    ReplicatedLog,
    TaskOwner,
    WallClock,
)
from oncelog.coordinator.promise import Promise
from oncelog.coordinator.transaction.connection_challenge import Action, ConnectionChallenge, is_challenged
from oncelog.coordinator.transaction.log_records import build_record_batch, build_tombstones, value_version
from oncelog.coordinator.transaction.log_replay import LogReplay
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch, Transaction, Transition, decide_expiration
from oncelog.coordinator.transaction.transaction_state import PREPARED_STATES, TransactionState
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.internal.topics import TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.records.record_batch import read_header

logger = logging.getLogger(__name__)

TOMBSTONES_PER_BATCH: Final = 100


class Commit(Promise[ErrorCode]):
    """A record in the log: NONE once it is durable and applied, NOT_COORDINATOR once leadership ended before that."""

    is_in_log = False
    """Whether the record was written although its append raised an exception."""


class OwnedPartition:
    """One partition of the transaction log under one coordinator epoch."""

    __slots__ = ("index", "is_open", "log", "ongoing", "opened_at", "owners", "transactions")

    def __init__(self, index: int, log: ReplicatedLog) -> None:
        self.index = index
        self.log = log
        self.transactions: dict[str, Transaction] = {}
        self.ongoing: dict[str, Transaction] = {}
        self.owners: dict[str, ConnectionChallenge] = {}
        """By transactional id, of those that had a request since the load."""
        self.is_open = False
        """False until it is loaded."""
        self.opened_at = math.inf
        """When it was loaded, by the loop's clock."""

    def forget(self) -> None:
        """Drop everything that was loaded."""
        self.is_open = False
        self.transactions.clear()
        self.ongoing.clear()
        self.owners.clear()

    def __str__(self) -> str:
        return f"{TRANSACTION_STATE_TOPIC_NAME}-{self.index} at epoch {self.coordinator_epoch}"

    @property
    def coordinator_epoch(self) -> int:
        return self.log.leader_epoch

    def owner_of(self, transactional_id: str) -> ConnectionChallenge:
        """Return which connection acts for an id, unknown at first."""
        owner = self.owners.get(transactional_id)
        if owner is None:
            owner = self.owners[transactional_id] = ConnectionChallenge()
        return owner

    def is_challenged(
        self, txn: Transaction, producer: ProducerIdAndEpoch, action: Action, connection: ClientConnection
    ) -> bool:
        """Return whether a request of the present producer changes nothing until its client repeats it."""
        owner = self.owners.get(txn.transactional_id)
        if owner is not None and owner.connection_id == connection.id and owner.producer == producer:
            return False
        owner = owner or self.owner_of(txn.transactional_id)
        if connection.greeted_at > max(self.opened_at, txn.acted_at):
            owner.grant(producer, connection.id)
            return False
        return is_challenged(owner, producer, action, connection)

    def is_owner(
        self, txn: Transaction, producer: ProducerIdAndEpoch, connection: ClientConnection, *, since_ms: int
    ) -> bool:
        """Return whether the request that last took effect came over a connection, after a time of the loop's clock."""
        if txn.acted_at * 1000 <= since_ms:
            return False
        owner = self.owners.get(txn.transactional_id)
        return owner is not None and owner.is_owner(producer, connection.id)

    def place(self, txn: Transaction) -> None:
        """Note the state that was just applied."""
        if txn.metadata.state is TransactionState.ONGOING:
            self.ongoing[txn.transactional_id] = txn
        else:
            self.ongoing.pop(txn.transactional_id, None)


class TransactionStateManager:
    """The owned partitions, and the way of a transition into the log and the table."""

    def __init__(
        self,
        *,
        partition_count: Callable[[], int | None],
        tasks: TaskOwner,
        wall_clock: WallClock,
        features: FinalizedFeatures,
        on_open: Callable[[OwnedPartition, list[Transaction]], None],
    ) -> None:
        """Call ``on_open`` with each partition that has been loaded and its prepared transactions, to complete them.

        ``features`` decides the version of records.
        """
        self._partition_count = partition_count
        self._tasks = tasks
        self._wall_clock = wall_clock
        self._features = features
        self._on_open = on_open
        self._partitions: dict[int, OwnedPartition] = {}
        self._loads: dict[int, Cancellable] = {}
        """By index, for as long as the partition is owned."""
        self._loading: dict[OwnedPartition, None] = {}
        """Those that are being read. One that could not be read is not among them until the next attempt."""
        self._load_report = LoadReport(TRANSACTION_STATE_TOPIC_NAME, "transactional ids", logger)
        self.load_times = LoadTimes()
        self._load_turn = asyncio.Lock()

    # Ownership

    def elect(self, index: int, log: ReplicatedLog) -> None:
        """Load a partition that this broker leads from now on."""
        self.resign(index)
        partition = OwnedPartition(index, log)
        self._partitions[index] = partition
        self._loading[partition] = None
        self._loads[index] = self._tasks.retry(
            partial(self._load, partition), f"load {TRANSACTION_STATE_TOPIC_NAME}-{index}"
        )

    def resign(self, index: int) -> None:
        """Drop a partition that this broker does not lead any more."""
        partition = self._partitions.pop(index, None)
        if partition is not None:
            self._loads.pop(index).cancel()
            self._loading.pop(partition, None)
            logger.debug("Unloaded %s", partition)

    def owns(self, partition: OwnedPartition) -> bool:
        """Return whether this very ownership still lasts."""
        return self._partitions.get(partition.index) is partition

    def partition_of(self, transactional_id: str) -> OwnedPartition | ErrorCode:
        """Return the open partition of an id, or the error of its requests.

        COORDINATOR_NOT_AVAILABLE while the log is deserted: a successor may have ended the transaction that is
        remembered as open here, or begun the next one. A batch would enter after its marker, an EndTxn would be taken
        for one that comes again, and a producer would be fenced in the name of an epoch that is over. Clients
        retry within their time-outs; unlike members of groups they have no session that ends meanwhile.
        """
        index = self.partition_for(transactional_id)
        partition = None if index is None else self._partitions.get(index)
        if partition is None:
            return ErrorCode.NOT_COORDINATOR
        if partition.is_open:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE if partition.log.is_deserted else partition
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def find(self, transactional_id: str) -> Transaction | None:
        """Return an id of an open partition; None if it is not known, or its requests are not served here."""
        partition = self.partition_of(transactional_id)
        return None if isinstance(partition, ErrorCode) else partition.transactions.get(transactional_id)

    def partition_for(self, transactional_id: str) -> int | None:
        """Return the index of an id's partition; None while the topic does not exist."""
        count = self._partition_count()
        return None if count is None else partition_for(transactional_id, count)

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def open_partitions(self) -> list[OwnedPartition]:
        return [partition for partition in self._partitions.values() if partition.is_open]

    def all_transactions(self) -> Iterator[Transaction]:
        for partition in self._partitions.values():
            if partition.is_open:
                yield from partition.transactions.values()

    def id_count(self) -> int:
        """Return how many transactional ids are kept here."""
        return sum(len(partition.transactions) for partition in self._partitions.values())

    # Loading

    async def _load(self, partition: OwnedPartition) -> None:
        """Make one attempt to load; after an exception the next attempt begins with nothing."""
        partition.forget()
        self._loading[partition] = None
        began = asyncio.get_running_loop().time()
        replay = LogReplay(partition.transactions)
        try:
            if await load(
                partition.log,
                replay.replay,
                lambda: self.owns(partition),
                turn=self._load_turn,
                settle=replay.settle,
            ):
                self._open(partition)
                self.load_times.note(partition.opened_at - began)
            elif self.owns(partition):  # The leadership was lost; it is about to be resigned.
                del self._partitions[partition.index], self._loads[partition.index]
        finally:
            self._loading.pop(partition, None)
            if not self._loading:
                self._load_report.conclude()

    def _open(self, partition: OwnedPartition) -> None:
        """Serve a partition of which everything that was read is durable, and complete what a predecessor decided."""
        for txn in partition.transactions.values():
            partition.place(txn)
        self._loading.pop(partition, None)
        partition.is_open = True
        partition.opened_at = asyncio.get_running_loop().time()
        self._load_report.note(partition.index, len(partition.transactions))
        prepared = [txn for txn in partition.transactions.values() if txn.metadata.state in PREPARED_STATES]
        self._on_open(partition, prepared)

    # Transitions

    def append(self, partition: OwnedPartition, txn: Transaction, transition: Transition) -> Commit | ErrorCode:
        """Append a transition to the log, and apply it when it is durable. An error: it was not appended.

        Nothing remains of a transition that was not appended, whether the log refused it or raised an exception.
        """
        is_new = not txn.metadata.exists_in_log
        txn.begin(transition)
        if is_new:
            partition.transactions[txn.transactional_id] = txn
        commit = Commit()
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            error = self.append_pending(partition, txn, commit)
        finally:
            if error is not ErrorCode.NONE and txn.pending is transition and not commit.is_in_log:
                txn.withdraw()
                if is_new:
                    del partition.transactions[txn.transactional_id]
                txn.notify()
        return commit if error is ErrorCode.NONE else error

    def append_pending(self, partition: OwnedPartition, txn: Transaction, commit: Commit) -> ErrorCode:
        """Append a transition that has begun already. If the log refuses it, it stays pending, for another attempt.

        After an unforeseen exception ``commit.is_in_log`` says whether it was appended.
        """
        transition = txn.pending
        assert transition is not None, f"{txn} has nothing to append"
        version = value_version(transition, self._features.transaction_version)
        batch = build_record_batch(txn.transactional_id, transition, self._wall_clock(), value_version=version)
        end_offset: int | ErrorCode | None = None
        try:
            end_offset = partition.log.append(batch)
        finally:
            if end_offset is None and is_written(batch, partition.log):
                commit.is_in_log = True
                end_offset = partition.log.log_end_offset
                txn.last_offset = end_offset - 1
                partition.log.when_replicated(end_offset, partial(self._on_replicated, partition, txn, commit))
        if isinstance(end_offset, ErrorCode):
            logger.info("The log of %s refused a record of %s: %s", partition, txn, end_offset.name)
            return coordinator_error(end_offset)
        txn.last_offset = end_offset - 1
        partition.log.when_replicated(end_offset, partial(self._on_replicated, partition, txn, commit))
        return ErrorCode.NONE

    def _on_replicated(self, partition: OwnedPartition, txn: Transaction, commit: Commit, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE or not self.owns(partition):
            commit.complete(ErrorCode.NOT_COORDINATOR)
            return
        txn.apply()
        partition.place(txn)
        commit.complete(ErrorCode.NONE)
        if commit.is_in_log and txn.metadata.state in PREPARED_STATES:
            self._on_open(partition, [txn])  # Because of the exception nothing else completes it.
        txn.notify()

    # Expiration

    def expire(self, partition: OwnedPartition, expiration_ms: int) -> None:
        """Expire the transactional ids of a partition that were not used for ``expiration_ms``."""
        now_ms = self._wall_clock()
        decisions = [
            (txn, transition)
            for txn in partition.transactions.values()
            if (transition := decide_expiration(txn, expiration_ms, now_ms)) is not None
        ]
        for start in range(0, len(decisions), TOMBSTONES_PER_BATCH):
            expired: list[Transaction] = []
            for txn, transition in decisions[start : start + TOMBSTONES_PER_BATCH]:
                txn.begin(transition)
                expired.append(txn)
            self._append_tombstones(partition, expired, now_ms)

    def _append_tombstones(self, partition: OwnedPartition, expired: list[Transaction], now_ms: int) -> None:
        batch = build_tombstones([txn.transactional_id for txn in expired], now_ms)

        def on_replicated(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE or not self.owns(partition):
                return
            for txn in expired:
                del partition.transactions[txn.transactional_id]
                partition.owners.pop(txn.transactional_id, None)
                txn.withdraw()
                txn.notify()
            logger.info("Expired %d transactional ids of %s", len(expired), partition)

        end_offset: int | ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            end_offset = partition.log.append(batch)
        finally:
            if end_offset is ErrorCode.UNKNOWN_SERVER_ERROR and is_written(batch, partition.log):
                end_offset = partition.log.log_end_offset
            if isinstance(end_offset, ErrorCode):
                logger.info("The log of %s refused %d tombstones: %s", partition, len(expired), end_offset.name)
                for txn in expired:
                    txn.withdraw()
                    txn.notify()
            else:
                partition.log.when_replicated(end_offset, on_replicated)


def is_written(batch: bytearray, log: ReplicatedLog) -> bool:
    """Return whether a batch is in the log although its append raised: its place is stamped before it is written.

    The stamped epoch is that of the append: later than the leadership's first one if the ISR has changed since.
    """
    header = read_header(batch)
    return header.partition_leader_epoch >= log.leader_epoch and header.base_offset < log.log_end_offset
