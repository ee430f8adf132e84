"""``ProducerStateManager``: what a log knows of its idempotent and transactional producers.

It answers two questions. *May this batch be appended?* (``check``, ``check_marker``: epochs fence zombies, sequences
find duplicates and gaps, coordinator epochs fence old coordinators.) *Up to where is the log decided?*
(``first_unstable_offset``: no transaction that began below is open, nor ended by a marker that may still be lost.)

The log is the truth: the state is what its batches add up to, and every method here that changes it follows an append,
a truncation or the high watermark. Snapshots only shorten the way from the log to the state. There is one at the base
offset of each segment but the first (taken when the segment before was rolled) and one where the log was closed; a
snapshot that a power loss left torn fails its CRC and counts as missing.

Transactions sit in the order of their first offsets, which is the order in which they began, so that the oldest one is
found at once. One that has ended stays until the high watermark has passed its marker: until then another leader may
not have that marker.

The state of a producer is forgotten after a time without activity (markers count: its coordinator epoch must stay
known), but never while it has an open transaction; and neither retention nor deletion of records forgets it. Activity
is what this broker's clock says, not the timestamps of records, which may be years old. A producer without state may
begin at any sequence.

Before the first batch of a transaction is appended, the transaction's coordinator is asked (KIP-890):
``start_verification`` before the question and ``check_verified`` after the answer, in the same step as the append. What
lies between is kept by a ``VerificationStateEntry``, in memory only.
"""

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from logging import getLogger
from typing import Final, NamedTuple

from oncelog.broker.storage.batch_scan import ScannedBatch
from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.log_files import SNAPSHOT_SUFFIX, offset_file, offsets_with_suffix
from oncelog.broker.storage.producer_snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from oncelog.broker.storage.producer_state_entry import BatchMetadata, ProducerStateEntry
from oncelog.broker.storage.transaction_index import AbortedTransaction, TransactionIndex
from oncelog.broker.storage.verification_state import VerificationStateEntry
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.control_records import EndTxnMarker, parse_end_txn_marker
from oncelog.protocol.records.record_batch import BatchHeader, CorruptRecord
from oncelog.protocol.schema import Buffer

DEFAULT_PRODUCER_ID_EXPIRATION_MS: Final = 24 * 60 * 60 * 1000

_TRANSACTIONAL: Final = 0x10
_MOST_REFUSED: Final = 1000
_MOST_VERIFICATIONS: Final = 10_000
_REFUSAL_HOLDS_MS: Final = 120_000
"""As long as a producer may repeat a batch by default (``delivery.timeout.ms``)."""

_log = getLogger(__name__)


class AppendOrigin(Enum):
    """Where a batch comes from, which says what is left to check."""

    CLIENT = auto()
    """A producer: epoch and sequence are checked."""
    COORDINATOR = auto()
    """A transaction or group coordinator: its batches have no sequences; epochs are checked."""
    REPLICATION = auto()
    """The leader, or the log itself in recovery: it has been checked."""


class _Refusal(NamedTuple):
    """The first batch of a producer that could not be appended, because the disk was full, say."""

    producer_epoch: int
    base_sequence: int
    at_ms: int
    """When a batch of the producer was refused last."""


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was appended."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of the marker."""
    aborted: bool


def read_marker(batch: ScannedBatch) -> EndTxnMarker | None:
    """The marker in a control batch of the log; None if compaction emptied it, or if it is none that ends anything."""
    try:
        return parse_end_txn_marker(batch.buffer, batch.at, batch.header)
    except CorruptRecord as error:
        _log.warning("control batch at offset %d has no marker: %s", batch.header.base_offset, error)
        return None


class ProducerStateManager:
    """The producer state of one log; not in charge of the log."""

    def __init__(
        self, disk: Disk, directory: str, *, wall_clock: Callable[[], int], producer_id_expiration_ms: int
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._wall_clock = wall_clock
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.producers: dict[int, ProducerStateEntry] = {}
        self.map_end_offset = 0
        """The state is that of the log up to here."""
        self._snapshot_offsets: list[int] = []
        self._last_snapshot_offset = 0
        self._transactions: OrderedDict[int, int] = OrderedDict()
        """First offset to producer id, of the transactions that are open or whose markers may still be lost."""
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        """Those of them that are open."""
        self._unreplicated: deque[tuple[int, int]] = deque()
        """(offset of the marker, first offset) of the others, in the order of their markers."""
        self._refused: OrderedDict[int, _Refusal] = OrderedDict()
        """By producer id, the batches that could not be appended and have not come again; the latest refused last."""
        self._dropped_refusal_ms: int | None = None
        """When the latest refusal was made that was dropped from ``_refused`` to bound it."""
        self._verifications: dict[int, VerificationStateEntry] = {}
        """By producer id, of those that are about to begin a transaction, in the order in which they came."""

    # Questions

    def check(self, header: BatchHeader, origin: AppendOrigin) -> BatchMetadata | ErrorCode | None:
        """Whether a data batch may be appended: None if so, else why not, or the batch that it duplicates."""
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return self._check_first(header, origin)
        if origin is AppendOrigin.CLIENT:
            duplicate = entry.find_duplicate(header)
            if duplicate is not None:
                return duplicate
        if header.producer_epoch < entry.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if origin is AppendOrigin.CLIENT:
            error = self._check_unverified(header, entry) if self._verifications else None
            error = error or entry.check_sequence(header)
            if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                return self._error_behind_refused(header) or error
            if error is not None:
                return error
        if entry.txn_first_offset is not None and not header.attributes & _TRANSACTIONAL:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def _check_first(self, header: BatchHeader, origin: AppendOrigin) -> ErrorCode | None:
        """A producer that is not known may begin anywhere, but not where a batch of its own may have been refused."""
        error = self._error_behind_refused(header)
        if error is not None:
            return error
        return self._check_unverified(header, None) if origin is AppendOrigin.CLIENT else None

    def _error_behind_refused(self, header: BatchHeader) -> ErrorCode | None:
        """What to answer if a batch of the same producer must come first, which was refused and will be sent again.

        The batches that were under way behind it share its fate. To call them out of order would be true, but a
        producer may take that for lost records, and begin anew with batches that have been appended.
        """
        refused_ms = self._refused_before_ms(header)
        if refused_ms is None:
            return None
        is_recent = self._wall_clock() - refused_ms < _REFUSAL_HOLDS_MS
        return ErrorCode.KAFKA_STORAGE_ERROR if is_recent else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def _refused_before_ms(self, header: BatchHeader) -> int | None:
        """Return when a batch was, or may have been, refused that precedes this one; None if there is no such batch.

        A refusal that was dropped may have been of any producer and epoch that have none now, for as long as this log
        would remember that producer.
        """
        refusal = self._refused.get(header.producer_id)
        if refusal is not None and refusal.producer_epoch == header.producer_epoch:
            return refusal.at_ms if refusal.base_sequence < header.base_sequence else None
        return self._dropped_before_ms(header)

    def _dropped_before_ms(self, header: BatchHeader) -> int | None:
        dropped_ms = self._dropped_refusal_ms
        if dropped_ms is None or header.base_sequence <= 0:
            return None
        return dropped_ms if self._wall_clock() - dropped_ms < self.producer_id_expiration_ms else None

    def _check_unverified(self, header: BatchHeader, entry: ProducerStateEntry | None) -> ErrorCode | None:
        """What is kept of batches that wait, or waited, for their coordinator."""
        verification = self._verifications.get(header.producer_id)
        if verification is None:
            return None
        return verification.check_sequence(header, follows_batches=entry is not None and bool(entry.batches))

    def checked_marker(
        self, batch: Buffer, header: BatchHeader, marker: EndTxnMarker | None, transaction_version: int
    ) -> EndTxnMarker | ErrorCode:
        """The marker in a control batch, if its coordinator may append it; ``marker`` if it need not be parsed."""
        try:
            marker = marker or parse_end_txn_marker(batch, 0, header)
        except CorruptRecord:
            marker = None
        if marker is None:
            return ErrorCode.INVALID_RECORD
        return self.check_marker(header, marker, transaction_version) or marker

    def check_marker(self, header: BatchHeader, marker: EndTxnMarker, transaction_version: int) -> ErrorCode | None:
        """Whether a marker of a transaction of this version may be appended by its coordinator."""
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return None
        if not entry.accepts_marker(header.producer_epoch, transaction_version):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < entry.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return None

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        entry = self.producers.get(producer_id)
        return entry is not None and entry.txn_first_offset is not None and entry.producer_epoch == producer_epoch

    def check_verified(self, producer_id: int, producer_epoch: int, guard: VerificationStateEntry | None) -> ErrorCode:
        """Whether the coordinator's word still holds for a batch, in the step in which it is to be appended.

        ``guard`` is what ``start_verification`` gave, None for a batch that found its transaction open then. Either it
        is open now, or the guard is still there; else a marker came in between, or a newer epoch.
        """
        entry = self.producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.has_ongoing_transaction(producer_id, producer_epoch):
            return ErrorCode.NONE
        present = self._verifications.get(producer_id)
        if present is None or present is not guard:
            is_fenced = present is not None and producer_epoch < present.producer_epoch
            return ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open or whose marker may still be lost."""
        for first_offset in self._transactions:
            return first_offset
        return None

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open."""
        for first_offset in self._ongoing:
            return first_offset
        return None

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """What the transaction index records: the last stable offset once this transaction has ended."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    # Before the first batch of a transaction

    def start_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, adds_partitions: bool
    ) -> VerificationStateEntry | ErrorCode | None:
        """What a transactional batch needs before it may be appended: the guard of a question to its coordinator.

        INVALID_PRODUCER_EPOCH: it is fenced, whatever anybody answers. None: its transaction is open here, so that its
        coordinator was asked before. Questions of one epoch share their guard; one of a newer epoch takes it from them.
        """
        entry = self.producers.get(producer_id)
        if entry is not None:
            if producer_epoch < entry.producer_epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if entry.txn_first_offset is not None and producer_epoch == entry.producer_epoch:
                return None
        verification = self._verifications.get(producer_id)
        if verification is None or producer_epoch > verification.producer_epoch:
            return self._new_verification(producer_id, producer_epoch, base_sequence, adds_partitions)
        if producer_epoch == verification.producer_epoch:
            verification.saw(base_sequence)
        return verification

    def _new_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, adds_partitions: bool
    ) -> VerificationStateEntry:
        verifications = self._verifications
        verifications.pop(producer_id, None)
        if len(verifications) >= _MOST_VERIFICATIONS:
            del verifications[next(iter(verifications))]
        verifications[producer_id] = verification = VerificationStateEntry(
            producer_epoch, base_sequence, adds_partitions=adds_partitions, started_ms=self._wall_clock()
        )
        return verification

    def forget_undecided(self) -> None:
        """This broker does not lead any more: what was asked or refused meanwhile counts no longer."""
        self._verifications.clear()
        self._forget_refusals()

    def _forget_refusals(self) -> None:
        self._refused.clear()
        self._dropped_refusal_ms = None

    # What follows an append, or a refusal

    def refuse(self, header: BatchHeader) -> None:
        """A batch could not be appended, although it was in order or has not been checked. Its producer will retry it.

        The batches behind the first one that was refused must wait. If the refusal of that one may have been dropped,
        sequence 0 is taken for it. An older epoch does not take the place of a newer one.
        """
        if header.base_sequence < 0:
            return
        first_sequence = header.base_sequence
        before = self._refused.get(header.producer_id)
        if before is not None and before.producer_epoch > header.producer_epoch:
            return
        if before is not None and before.producer_epoch == header.producer_epoch:
            first_sequence = min(first_sequence, before.base_sequence)
        elif self._dropped_before_ms(header) is not None:
            first_sequence = 0
        self._refused[header.producer_id] = _Refusal(header.producer_epoch, first_sequence, self._wall_clock())
        self._refused.move_to_end(header.producer_id)
        if len(self._refused) > _MOST_REFUSED:
            _, dropped = self._refused.popitem(last=False)
            self._dropped_refusal_ms = dropped.at_ms

    def _forget_refusal(self, header: BatchHeader) -> None:
        """Forget the refused batch of a producer that goes on; an older epoch says nothing of a newer one."""
        refusal = self._refused.get(header.producer_id)
        if refusal is not None and refusal.producer_epoch <= header.producer_epoch:
            del self._refused[header.producer_id]

    def update(self, header: BatchHeader, first_offset: int) -> None:
        """A data batch with a producer id was appended at ``first_offset``."""
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerStateEntry(producer_id, header.producer_epoch)
        if self._refused:
            self._forget_refusal(header)
        if self._verifications and header.attributes & _TRANSACTIONAL:
            self._verifications.pop(producer_id, None)
        entry.last_active_ms = self._wall_clock()
        if entry.add_batch(header, first_offset):
            self._transactions[first_offset] = self._ongoing[first_offset] = producer_id

    def update_marker(
        self, header: BatchHeader, marker: EndTxnMarker, offset: int, timestamp: int, transaction_version: int = 0
    ) -> CompletedTransaction | None:
        """A marker was appended at ``offset``. None if the producer had no transaction here.

        ``transaction_version`` matters only where this broker leads.
        """
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerStateEntry(producer_id, header.producer_epoch)
        verification = self._verifications.get(producer_id)
        if verification is not None and not verification.outlives_marker(header.producer_epoch, transaction_version):
            del self._verifications[producer_id]
        entry.last_active_ms = self._wall_clock()
        first_offset = entry.txn_first_offset
        entry.end_transaction(header.producer_epoch, marker.coordinator_epoch, timestamp)
        if first_offset is None:
            return None
        return CompletedTransaction(producer_id, first_offset, offset, not marker.commit)

    def replay(self, batch: ScannedBatch, transaction_index: TransactionIndex | None) -> None:
        """Account for a batch that is in the log, be it replicated or found in recovery.

        A transaction that it aborts is recorded in ``transaction_index``, unless that has it already (None).
        """
        header = batch.header
        if not header.has_producer_id:
            return
        if not header.is_control:
            self.update(header, header.base_offset)
            return
        marker = read_marker(batch)
        if marker is None:
            return
        completed = self.update_marker(header, marker, header.base_offset, header.max_timestamp)
        if completed is not None:
            if transaction_index is not None:
                self.record_aborted(completed, transaction_index)
            self.complete(completed)

    def record_aborted(self, completed: CompletedTransaction, transaction_index: TransactionIndex) -> None:
        """Let readers of committed records know, if the transaction was aborted; comes before ``complete``."""
        if completed.aborted:
            transaction_index.append(
                AbortedTransaction(
                    completed.producer_id,
                    completed.first_offset,
                    completed.last_offset,
                    self.last_stable_offset_after(completed),
                )
            )

    def complete(self, completed: CompletedTransaction) -> None:
        """The transaction index has it; from now on only replication keeps it unstable."""
        del self._ongoing[completed.first_offset]
        self._unreplicated.append((completed.last_offset, completed.first_offset))

    def on_high_watermark(self, high_watermark: int) -> None:
        """Markers below are replicated."""
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0][0] < high_watermark:
            del self._transactions[unreplicated.popleft()[1]]

    def on_log_start(self, log_start_offset: int) -> None:
        """Markers below are gone, so nobody can be waiting for them."""
        self.on_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)

    def expire(self, now_ms: int) -> int:
        """Forget producers that were idle for too long; returns how many."""
        limit_ms = now_ms - self.producer_id_expiration_ms
        for producer_id in [key for key, entry in self._verifications.items() if entry.started_ms <= limit_ms]:
            del self._verifications[producer_id]
        expired = [entry.producer_id for entry in self.producers.values() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self.producers[producer_id]
        return len(expired)

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        return entry.txn_first_offset is None and now_ms - entry.last_active_ms >= self.producer_id_expiration_ms

    # Snapshots

    def open(self) -> None:
        """Find the snapshots on disk."""
        self._snapshot_offsets = offsets_with_suffix(self._disk.list_dir(self._directory), SNAPSHOT_SUFFIX)

    @property
    def snapshot_offsets(self) -> tuple[int, ...]:
        return tuple(self._snapshot_offsets)

    def take_snapshot(self, *, sync: bool) -> str | None:
        """Write the state at ``map_end_offset`` unless that is on disk; returns the file's path if it was written."""
        offset = self.map_end_offset
        if offset <= self._last_snapshot_offset:
            return None
        path = self._path(offset)
        self._disk.write_atomic(path, encode_snapshot(self.producers.values()), sync=sync)
        self._last_snapshot_offset = offset
        if offset not in self._snapshot_offsets:
            insort(self._snapshot_offsets, offset)
        return path

    def remove_stray_snapshots(self, base_offsets: Iterable[int]) -> None:
        """Remove what belongs to no segment, except the latest if it lies beyond the last segment's base offset."""
        bases = set(base_offsets)
        last_base = max(bases, default=-1)
        strays = [offset for offset in self._snapshot_offsets if offset not in bases]
        if strays and strays[-1] > last_base:
            strays.pop()
        self.remove_snapshots(strays)

    def remove_snapshots(self, offsets: Iterable[int]) -> None:
        for offset in list(offsets):
            slot = bisect_left(self._snapshot_offsets, offset)
            if self._snapshot_offsets[slot : slot + 1] != [offset]:
                continue
            del self._snapshot_offsets[slot]
            if self._disk.exists(self._path(offset)):
                self._disk.remove(self._path(offset))

    def truncate_fully(self, offset: int) -> None:
        """Know nothing, at an offset where nothing is left."""
        self._clear()
        self.remove_snapshots(self.snapshot_offsets)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def keep_at(self, end_offset: int) -> None:
        """The log was cut there, and nothing of a producer was cut off."""
        self.remove_snapshots(offset for offset in self._snapshot_offsets if offset > end_offset)
        self.map_end_offset = end_offset
        self._last_snapshot_offset = max(self._snapshot_offsets, default=0)

    def reload(self, log_start_offset: int, end_offset: int) -> None:
        """Go back to the best snapshot in [log start, end]; later ones are wrong now and go.

        The caller replays the log from ``map_end_offset`` on.
        """
        self.remove_snapshots(offset for offset in self._snapshot_offsets if offset > end_offset)
        self.load_snapshot(log_start_offset, end_offset)

    def load_snapshot(self, log_start_offset: int, end_offset: int) -> None:
        """Become what the best snapshot in [log start, end] says; without one, empty at the log start."""
        self._clear()
        self.map_end_offset = log_start_offset
        self._last_snapshot_offset = 0
        for offset in reversed(self.snapshot_offsets):
            if not log_start_offset <= offset <= end_offset:
                continue
            try:
                entries = decode_snapshot(self._disk.read(self._path(offset)))
            except CorruptSnapshot as error:
                _log.warning("producer snapshot %s is corrupt (%s): removed", self._path(offset), error)
                self.remove_snapshots((offset,))
                continue
            self._load(entries)
            self.map_end_offset = self._last_snapshot_offset = offset
            return

    def _load(self, entries: list[ProducerStateEntry]) -> None:
        now_ms = self._wall_clock()
        for entry in entries:
            entry.last_active_ms = now_ms
            self.producers[entry.producer_id] = entry
        open_transactions = sorted(
            (entry.txn_first_offset, entry.producer_id) for entry in entries if entry.txn_first_offset is not None
        )
        self._ongoing.update(open_transactions)
        self._transactions.update(open_transactions)

    def _clear(self) -> None:
        self.producers.clear()
        self._transactions.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._forget_refusals()
        self._verifications.clear()

    def _path(self, offset: int) -> str:
        return offset_file(self._directory, offset, SNAPSHOT_SUFFIX)
