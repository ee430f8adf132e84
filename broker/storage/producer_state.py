"""``ProducerStateManager``: what a log knows of its idempotent and transactional producers.

It decides whether a batch may be appended (``admit``, ``admit_marker``): epochs fence zombies, sequences find
duplicates and gaps, coordinator epochs fence old coordinators. A decision changes nothing; the methods that change the
state follow an append, a truncation or the high watermark. What belongs to it has a noun of its own:

* ``ProducerStateEntry``: one producer's epoch, last batches and open transaction;
* ``UnstableTransactions``: which transactions keep the last stable offset back;
* ``AwaitedBatches``: which batches came too early, and must come again before their successors;
* ``RefusedBatches``: which batches could not be written, and must come again before their successors;
* ``PendingVerifications``: which producers are about to begin a transaction (KIP-890), in memory only;
* ``ProducerSnapshots``: the state on disk, which shortens the way from the log to the state.

The log is the truth: the state is what its batches add up to.

The state of a producer is forgotten after ``producer.id.expiration.ms`` without activity (markers count: its
coordinator epoch must stay known), but never while it has an open transaction; neither retention nor DeleteRecords
forgets it. Activity is measured by this broker's clock, not by the timestamps of records, which may be years old. A
producer without state may begin at any sequence.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from logging import getLogger
from typing import Final, NamedTuple

from oncelog.broker.storage.append_info import AppendInfo
from oncelog.broker.storage.awaited_batches import AwaitedBatches, Place
from oncelog.broker.storage.batch_scan import ScannedBatch
from oncelog.broker.storage.frozen_producers import FrozenProducers
from oncelog.broker.storage.producer_state_entry import BatchMetadata, Decision, ProducerStateEntry
from oncelog.broker.storage.refused_batches import RefusedBatches
from oncelog.broker.storage.transaction_index import AbortedTransaction, TransactionIndex
from oncelog.broker.storage.unstable_transactions import CompletedTransaction, UnstableTransactions
from oncelog.broker.storage.verification_state import PendingVerifications, VerificationStateEntry
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.control_records import EndTxnMarker, parse_end_txn_marker
from oncelog.protocol.records.record_batch import NO_TIMESTAMP, BatchHeader, CorruptRecord, increment_sequence
from oncelog.protocol.schema import Buffer

DEFAULT_PRODUCER_ID_EXPIRATION_MS: Final = 24 * 60 * 60 * 1000
_TRANSACTIONAL: Final = 0x10

_log = getLogger(__name__)


class AppendOrigin(Enum):
    """Where a batch comes from, which says what is left to check."""

    CLIENT = auto()
    """A producer: epoch and sequence are checked."""
    COORDINATOR = auto()
    """A transaction or group coordinator: its batches have no sequences; epochs are checked."""
    REPLICATION = auto()
    """The leader, or the log itself in recovery: it has been checked."""


class Accept(NamedTuple):
    """The batch may be appended."""

    marker: EndTxnMarker | None = None
    """What it says, if it is a control batch."""


class Duplicate(NamedTuple):
    """The batch was appended before."""

    batch: BatchMetadata

    def append_info(self, log_start_offset: int) -> AppendInfo:
        """Return what the first append of the batch returned."""
        return AppendInfo(
            base_offset=self.batch.first_offset,
            last_offset=self.batch.last_offset,
            max_timestamp=self.batch.timestamp,
            log_append_time=NO_TIMESTAMP,
            log_start_offset=log_start_offset,
            duplicate=True,
        )


_ACCEPT: Final = Accept()
_new_tuple: Final = tuple.__new__
"""Makes a NamedTuple of its fields without the detour of its constructor."""


class ProducerStateManager:
    """The producer state of one log."""

    __slots__ = (
        "_awaited",
        "_refused",
        "_verifications",
        "_wall_clock",
        "expired_ms",
        "frozen",
        "map_end_offset",
        "producer_id_expiration_ms",
        "producers",
        "transactions",
    )

    def __init__(self, *, wall_clock: Callable[[], int], producer_id_expiration_ms: int) -> None:
        self._wall_clock = wall_clock
        self._awaited = AwaitedBatches(wall_clock)
        self._refused = RefusedBatches(wall_clock)
        self._verifications = PendingVerifications(wall_clock)
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.expired_ms = 0
        """When a producer was last forgotten, by the loop's clock; 0 if none was."""
        self.producers: dict[int, ProducerStateEntry] = {}
        self.frozen: Sequence[FrozenProducers] = ()
        """The snapshots that are not written yet: they must see a producer before it changes."""
        self.transactions = UnstableTransactions()
        self.map_end_offset = 0
        """The state is that of the log up to here."""

    # Decisions

    def admit(self, header: BatchHeader, origin: AppendOrigin) -> Accept | Duplicate | ErrorCode:
        """Decide whether a data batch may be appended. Change nothing."""
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return self._admit_first(header, origin)
        is_of_client = origin is AppendOrigin.CLIENT
        if is_of_client:
            duplicate = entry.find_duplicate(header)
            if duplicate is not None:
                return Duplicate(duplicate)
        if header.producer_epoch < entry.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if is_of_client:
            error = self._check_unverified(header, entry) if self._verifications.entries else None
            error = error or entry.check_sequence(header)
            if error is not None:
                if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    error = self._refused.error_behind(header, self.producer_id_expiration_ms) or error
                return error
        if entry.txn_first_offset is not None and not header.attributes & _TRANSACTIONAL:
            return ErrorCode.INVALID_TXN_STATE
        return _ACCEPT

    def _admit_first(self, header: BatchHeader, origin: AppendOrigin) -> Accept | ErrorCode:
        """Decide on a batch of an unknown producer: it may have any sequence, but not follow one that was refused."""
        error = self._refused.error_behind(header, self.producer_id_expiration_ms)
        if error is None:
            error = self._awaited.error_behind(header)
        if error is None and origin is AppendOrigin.CLIENT:
            error = self._check_unverified(header, None)
        return _ACCEPT if error is None else error

    def _check_unverified(self, header: BatchHeader, entry: ProducerStateEntry | None) -> ErrorCode | None:
        return self._verifications.check_sequence(header, follows_batches=entry is not None and bool(entry.batches))

    def admit_marker(
        self, batch: Buffer, header: BatchHeader, marker: EndTxnMarker | None, transaction_version: int
    ) -> Accept | ErrorCode:
        """Decide whether a control batch may be appended. Change nothing.

        ``marker``: what the batch says; None to have it parsed. ``transaction_version``: of the transaction it ends.
        """
        try:
            marker = marker or parse_end_txn_marker(batch, 0, header)
        except CorruptRecord:
            return ErrorCode.INVALID_RECORD
        if marker is None:
            return ErrorCode.INVALID_RECORD
        entry = self.producers.get(header.producer_id)
        if entry is not None:
            if not entry.accepts_marker(header.producer_epoch, transaction_version):
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if marker.coordinator_epoch < entry.coordinator_epoch:
                return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return _new_tuple(Accept, (marker,))

    def is_marker_late(self, producer_id: int, decision: Decision) -> bool:
        """Return whether a marker is that of an earlier transaction than the one that is open.

        Up to version 1 its epoch does not show that. But it was written before, or the open transaction could not have
        begun, and of each transaction the end was decided by a later record of the transaction log. A log that has lost
        its end, and was led by another coordinator then, reaches the same offsets again.
        """
        entry = self.producers.get(producer_id)
        if entry is None or entry.txn_first_offset is None:
            return False
        return decision.offset >= 0 and decision <= entry.decision

    def note_decision(self, producer_id: int, decision: Decision) -> None:
        """Note what decided the end whose marker was just appended."""
        entry = self.producers[producer_id]
        entry.decision = max(entry.decision, decision)

    def note_abort(self, producer_id: int, now_ms: int) -> None:
        """Note when a marker that aborts was appended; by the loop's clock."""
        self.producers[producer_id].aborted_ms = now_ms

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether the producer has an open transaction here in this epoch."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.txn_first_offset is not None and entry.producer_epoch == producer_epoch

    # Verification, before the first batch of a transaction

    def start_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, adds_partitions: bool
    ) -> VerificationStateEntry | ErrorCode | None:
        """Return the guard with which a transactional batch is verified at its transaction coordinator.

        None: its transaction is open here, so that it was verified before. INVALID_PRODUCER_EPOCH: the producer is
        fenced, whatever the coordinator would respond.
        """
        entry = self.producers.get(producer_id)
        if entry is not None:
            if producer_epoch < entry.producer_epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if producer_epoch == entry.producer_epoch:
                if entry.txn_first_offset is not None:
                    return None
                # A late batch, which will be refused, must not hold back the next one of its producer.
                base_sequence = max(base_sequence, increment_sequence(entry.last_sequence, 1))
        return self._verifications.start(producer_id, producer_epoch, base_sequence, adds_partitions=adds_partitions)

    def withdraw_verification(self, header: BatchHeader) -> None:
        """Let a batch that was to be verified hold back no others: it is challenged for its connection."""
        verification = self._verifications.entries.get(header.producer_id)
        if verification is not None and verification.producer_epoch == header.producer_epoch:
            verification.withdraw(header.base_sequence)

    def check_verified(self, producer_id: int, producer_epoch: int, guard: VerificationStateEntry | None) -> ErrorCode:
        """Return NONE if the coordinator's response still holds for a batch; call it in the step of the append.

        ``guard`` is what ``start_verification`` returned. The response holds if the transaction is open here now, or if
        the guard is still present; else a marker or a newer epoch came in between.
        """
        entry = self.producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.has_ongoing_transaction(producer_id, producer_epoch):
            return ErrorCode.NONE
        return self._verifications.check_guard(producer_id, producer_epoch, guard)

    def forget_undecided(self) -> None:
        """Forget verifications: this broker resigned. Await what was refused or not verified, if it leads again."""
        refused = self._refused.by_producer.items()
        self.expect((producer_id, Place(each.producer_epoch, each.base_sequence)) for producer_id, each in refused)
        self.expect(self._verifications.first_batches())
        if self._refused.has_dropped:
            self._awaited.expect_any()
        self._verifications.entries.clear()
        self._refused.clear()

    # What follows an append, or a refusal

    def refuse(self, header: BatchHeader) -> None:
        """Note that a batch was not appended, although it was in sequence or has not been checked."""
        self._refused.refuse(header, self.producer_id_expiration_ms)

    def expect(self, batches: Iterable[tuple[int, Place]]) -> None:
        """Await batches that were refused before this broker leads, by producer id.

        They count while the log does not know their producer. Else the sequence shows the gap.
        """
        self._awaited.expect(batches)

    def apply(
        self,
        header: BatchHeader,
        marker: EndTxnMarker | None,
        offset: int,
        transaction_index: TransactionIndex,
        transaction_version: int,
    ) -> None:
        """Note a batch with a producer id that was appended at ``offset``; ``marker``: what a control batch says."""
        if marker is None:
            self.update(header, offset)
        else:
            self.end_transaction(header, marker, offset, transaction_index, transaction_version)

    def update(self, header: BatchHeader, first_offset: int) -> None:
        """Note a data batch with a producer id that was appended at ``first_offset``."""
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self._new_entry(header)
        elif self.frozen:
            self._keep(producer_id)
        if self._refused.by_producer:
            self._refused.forget(header)
        if self._verifications.entries and header.attributes & _TRANSACTIONAL:
            self._verifications.entries.pop(producer_id, None)
        entry.last_active_ms = self._wall_clock()
        if entry.add_batch(header, first_offset):
            self.transactions.begin(first_offset, producer_id)

    def _keep(self, producer_id: int) -> None:
        for frozen in self.frozen:
            frozen.keep(producer_id)

    def _new_entry(self, header: BatchHeader) -> ProducerStateEntry:
        producer_id = header.producer_id
        self._awaited.by_producer.pop(producer_id, None)
        entry = ProducerStateEntry(producer_id, header.producer_epoch, unknown_until_ms=self.expired_ms)
        self.producers[producer_id] = entry
        return entry

    def end_transaction(
        self,
        header: BatchHeader,
        marker: EndTxnMarker,
        offset: int,
        transaction_index: TransactionIndex | None,
        transaction_version: int = 0,
    ) -> CompletedTransaction | None:
        """Note a marker that was appended at ``offset``. Return None if the producer had no transaction here.

        A transaction that it aborts is added to ``transaction_index``; None: the index has it already.
        ``transaction_version`` matters only where this broker leads.
        """
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self._new_entry(header)
        elif self.frozen:
            self._keep(producer_id)
        if self._verifications.entries:
            self._verifications.end(producer_id, header.producer_epoch, transaction_version)
        entry.last_active_ms = self._wall_clock()
        first_offset = entry.txn_first_offset
        entry.end_transaction(header.producer_epoch, marker.coordinator_epoch, header.max_timestamp)
        if not marker.commit:
            entry.abort_offset, entry.aborted_epoch = offset, header.producer_epoch
        if first_offset is None:
            return None
        completed = CompletedTransaction(producer_id, first_offset, offset, not marker.commit)
        if completed.aborted and transaction_index is not None:
            last_stable_offset = self.transactions.last_stable_offset_after(completed)
            transaction_index.append(AbortedTransaction(producer_id, first_offset, offset, last_stable_offset))
        self.transactions.complete(completed)
        return completed

    def replay(self, batch: ScannedBatch, transaction_index: TransactionIndex | None) -> None:
        """Note a batch that is in the log: replicated, or found in recovery.

        A transaction that it aborts is added to ``transaction_index``; None: the index has it already.
        """
        header = batch.header
        if not header.has_producer_id:
            return
        if not header.is_control:
            self.update(header, header.base_offset)
            return
        marker = read_marker(batch)
        if marker is not None:
            self.end_transaction(header, marker, header.base_offset, transaction_index)

    def on_log_start(self, log_start_offset: int) -> None:
        """Note the deletion of the records below: no follower fetches the markers among them any more."""
        self.transactions.on_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)

    def expire(self, now_ms: int, loop_ms: int) -> int:
        """Forget the producers without activity for ``producer_id_expiration_ms``; return how many. By both clocks."""
        limit_ms = now_ms - self.producer_id_expiration_ms
        self._verifications.expire(limit_ms)
        idle = [each for each in self.producers.values() if each.last_active_ms <= limit_ms]
        expired = [each for each in idle if each.txn_first_offset is None]
        for entry in expired:
            self.expired_ms = loop_ms
            del self.producers[entry.producer_id]
        return len(expired)

    # Loading

    def clear(self, offset: int) -> None:
        """Forget everything: the state is that of a log that begins at ``offset``."""
        self.producers.clear()
        self.transactions.clear()
        self.forget_undecided()
        self.map_end_offset = offset

    def restore(self, entries: Sequence[ProducerStateEntry], offset: int) -> None:
        """Add the producers of a snapshot that was taken at ``offset``."""
        now_ms = self._wall_clock()
        for entry in entries:
            entry.last_active_ms = now_ms
            self.producers[entry.producer_id] = entry
        self.transactions.restore(
            sorted((each.txn_first_offset, each.producer_id) for each in entries if each.txn_first_offset is not None)
        )
        self.map_end_offset = offset


def read_marker(batch: ScannedBatch) -> EndTxnMarker | None:
    """Return the marker in a control batch of the log; None if compaction emptied it, or if it ends no transaction."""
    try:
        return parse_end_txn_marker(batch.buffer, batch.at, batch.header)
    except CorruptRecord as error:
        _log.warning("control batch at offset %d has no marker: %s", batch.header.base_offset, error)
        return None
