"""What compaction keeps: pure decisions about batches and records, without files.

A record is retained if no later record has its key; a record without a key is removed. More makes compaction safe:

* A tombstone (null value), and the marker of a transaction of which no batch is left, are retained for
  ``delete.retention.ms`` after the first pass that finds them so. That pass writes the time until then, the *delete
  horizon*, into their batch (KIP-534). So a consumer that reads the log from its start while it is being compacted, and
  takes no longer than that, never gets a value without the tombstone that ends it, nor data without its marker. The
  clock is the broker's, since clients choose the timestamps of records.
* The marker of a transaction is retained if this pass still found a batch of that transaction. Records of aborted
  transactions are removed at once, and replace no earlier record of their key.
* The batch with a producer's last sequence is retained, without its records if need be; of a producer that has only
  markers, the last marker is. So is the last batch of each segment that a pass writes, which says where that ends.

Batches keep their base offset, last offset, sequence and records' deltas: what is cut out leaves a gap. A batch whose
records cannot be decoded is left as it is.
"""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.broker.storage.producer_state_entry import ProducerStateEntry
from oncelog.broker.storage.transaction_index import AbortedTransaction
from oncelog.protocol.records.record_batch import BatchHeader, CorruptRecord, records_payload, records_payload_in_steps
from oncelog.protocol.records.rewriting import (
    RecordSpan,
    can_have_delete_horizon,
    empty_batch,
    iter_record_spans,
    retain_records,
)
from oncelog.protocol.schema import Buffer

MAX_DECOMPRESSED_BYTES: Final = 256 << 20
_RECORDS_PER_STEP: Final = 1000
"""A step of work on one batch; between two of them others may run."""


def last_offsets(producers: Iterable[ProducerStateEntry]) -> dict[int, tuple[int, int]]:
    """Return for each producer its last data offset (-1 if it has only markers) and its epoch."""
    return {entry.producer_id: (entry.last_data_offset, entry.producer_epoch) for entry in producers}


def latest_offsets(buffer: Buffer, position: int, header: BatchHeader) -> Generator[None, None, dict[bytes, int]]:
    """Return the last offset of each key in a batch, in steps. Raise ``CorruptRecord`` before any key is noted."""
    payload = yield from records_payload_in_steps(
        buffer, position, header, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES
    )
    found: dict[bytes, int] = {}
    for count, span in enumerate(iter_record_spans(payload, header), 1):
        if span.key is not None:
            found[span.key] = span.offset
        if count % _RECORDS_PER_STEP == 0:
            yield
    return found


class TransactionTracker:
    """Follows the transactions of a log while its batches are visited in order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Track transactions over a range of offsets; ``aborted``: the aborted ones that overlap it."""
        self._upcoming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()
        """Producers of whose present transaction a batch was visited."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Visit a data batch."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        self._with_data.add(header.producer_id)
        return header.producer_id in self._aborted

    def end(self, header: BatchHeader) -> tuple[bool, AbortedTransaction | None]:
        """Visit a marker: whether its transaction still had data, and the entry of the transaction index if aborted."""
        self._begin_up_to(header.last_offset)
        had_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        return had_data, self._aborted.pop(header.producer_id, None)

    def _begin_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[-1].first_offset <= offset:
            transaction = self._upcoming.pop()
            if transaction.last_offset >= offset:
                self._aborted[transaction.producer_id] = transaction


class _Selection(NamedTuple):
    """Which records of a batch stay."""

    retained: list[RecordSpan]
    is_whole: bool
    has_tombstone: bool


@dataclass(slots=True, kw_only=True)
class Compaction:
    """One pass over the beginning of a log."""

    offsets: Mapping[bytes, int]
    """The last offset of each key, as far as it is known."""
    transactions: TransactionTracker
    last_offsets: Mapping[int, tuple[int, int]]
    now_ms: int
    delete_retention_ms: int
    segment_end_offset: int = -1
    """Where the segment that is being written ends; set by the cleaner when it begins a segment."""
    retained_aborted: list[AbortedTransaction] = field(default_factory=list)
    """Entries for the transaction index of the segment that is being written; the cleaner takes them from here."""

    def retain(self, buffer: Buffer, position: int, header: BatchHeader) -> Generator[None, None, Buffer | None]:
        """Return what is retained of a batch, in steps; None if nothing is."""
        whole = memoryview(buffer)[position : position + header.size]
        if header.is_control:
            return (yield from self._retain_marker(whole, header))
        if self.transactions.is_aborted(header) or header.records_count == 0:
            return self._retain_empty(whole, header)
        try:
            payload = yield from records_payload_in_steps(
                buffer, position, header, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES
            )
            selection = yield from self._select(payload, header)
        except CorruptRecord:
            return whole
        if not selection.retained:
            return self._retain_empty(whole, header)
        horizon_ms = self._new_horizon(header, selection.retained) if selection.has_tombstone else None
        if selection.is_whole and horizon_ms is None:
            return whole
        return (yield from retain_records(header, payload, selection.retained, delete_horizon_ms=horizon_ms))

    def _select(self, payload: bytes, header: BatchHeader) -> Generator[None, None, _Selection]:
        drops_tombstones = self._is_past_horizon(header)
        retained: list[RecordSpan] = []
        has_tombstone, count = False, 0
        for count, span in enumerate(iter_record_spans(payload, header), 1):
            if span.key is not None and self.offsets.get(span.key, -1) <= span.offset:
                if not span.is_tombstone:
                    retained.append(span)
                elif not drops_tombstones:
                    retained.append(span)
                    has_tombstone = True
            if count % _RECORDS_PER_STEP == 0:
                yield
        return _Selection(retained, len(retained) == count, has_tombstone)

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        return header.has_delete_horizon and header.base_timestamp <= self.now_ms

    def _new_horizon(self, header: BatchHeader, retained: list[RecordSpan]) -> int | None:
        """Return the delete horizon that a batch gets; None if it has one already, or gets none."""
        horizon_ms = self.now_ms + self.delete_retention_ms
        if header.has_delete_horizon or not can_have_delete_horizon(retained, horizon_ms):
            return None
        return horizon_ms

    def _retain_marker(self, whole: memoryview, header: BatchHeader) -> Generator[None, None, Buffer | None]:
        had_data, aborted = self.transactions.end(header)
        if had_data:
            if aborted is not None:
                self.retained_aborted.append(aborted)
            return whole
        if self._is_past_horizon(header) or header.records_count == 0:
            return whole if self._is_needed(header) else None
        if header.has_delete_horizon:
            return whole
        try:
            payload = records_payload(whole, 0, header, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
            spans = list(iter_record_spans(payload, header))
        except CorruptRecord:
            return whole
        horizon_ms = self._new_horizon(header, spans)
        if horizon_ms is None:
            return whole
        return (yield from retain_records(header, payload, spans, delete_horizon_ms=horizon_ms))

    def _retain_empty(self, whole: memoryview, header: BatchHeader) -> Buffer | None:
        if not self._is_needed(header):
            return None
        return whole if header.records_count == 0 else empty_batch(header)

    def _is_needed(self, header: BatchHeader) -> bool:
        """Return whether the header of a batch is needed even without records."""
        if header.next_offset == self.segment_end_offset:
            return True
        last = self.last_offsets.get(header.producer_id)
        if last is None:
            return False
        last_data_offset, producer_epoch = last
        if last_data_offset >= 0:
            return header.last_offset == last_data_offset
        return header.is_control and header.producer_epoch == producer_epoch
