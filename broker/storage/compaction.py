"""What compaction keeps: pure decisions about batches and records, without files.

A record stays if no later record has its key. Beyond that simple rule lies what makes compaction safe here:

* A tombstone (null value) and the marker of a transaction without data stay until they are older than
  ``delete.retention.ms`` *and* have survived an earlier pass. So whoever reads the log from its start while it is being
  compacted never gets a value without the tombstone that ends it, nor data without its marker.
* The marker of a transaction stays while a batch of that transaction was still there in this pass. Records of aborted
  transactions go at once, and shadow nothing.
* The batch with a producer's last sequence stays, emptied of its records if need be; of a producer that has only
  markers the last marker stays. So does the last batch of the cleaned range, which says where the range ends.

Batches keep their base offset, last offset, sequence and records' deltas: what is cut out leaves a gap. A batch in
doubt (it cannot be decoded, it has records without keys) is left as it is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from broker.storage.producer_state_entry import ProducerStateEntry
from broker.storage.transaction_index import AbortedTransaction
from protocol.records.compression import compress
from protocol.records.record_batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptRecord,
    Record,
    iter_records,
    records_payload,
    stamp_crc,
)
from protocol.records.varint import decode_varint
from protocol.schema import Buffer

MAX_DECOMPRESSED_BYTES: Final = 256 << 20

_LENGTH: Final = Struct(">i")
_LENGTH_POSITION: Final = 8
_ATTRIBUTES: Final = Struct(">h")
_ATTRIBUTES_POSITION: Final = 21
_TIMESTAMPS: Final = Struct(">qq")
_BASE_TIMESTAMP_POSITION: Final = 27
_MAX_TIMESTAMP: Final = Struct(">q")
_MAX_TIMESTAMP_POSITION: Final = 35
_COUNT: Final = Struct(">i")
_COUNT_POSITION: Final = 57


def last_offsets(producers: Iterable[ProducerStateEntry]) -> dict[int, tuple[int, int]]:
    """Of each producer that is remembered: its last data offset (-1 if it has only markers) and its epoch."""
    return {entry.producer_id: (entry.last_data_offset, entry.producer_epoch) for entry in producers}


class TransactionTracker:
    """Follows the transactions of a log while its batches are visited in order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """``aborted``: all that overlap the range that will be visited."""
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


@dataclass(slots=True, kw_only=True)
class Compaction:
    """One pass over the beginning of a log."""

    offsets: Mapping[bytes, int]
    """The last offset of each key, as far as it is known."""
    transactions: TransactionTracker
    last_offsets: Mapping[int, tuple[int, int]]
    first_dirty_offset: int
    """What lies before has survived an earlier pass."""
    end_offset: int
    """Where the cleaned range ends."""
    remove_before_ms: int
    """What is older may lose its tombstones and markers."""
    retained_aborted: list[AbortedTransaction] = field(default_factory=list)
    """Entries that the transaction index of the present segment needs; whoever begins a segment empties it."""

    def retain(self, buffer: Buffer, position: int, header: BatchHeader) -> Buffer | None:
        """What stays of a batch; None if nothing does."""
        if header.is_control:
            return self._retain_marker(buffer, position, header)
        whole = memoryview(buffer)[position : position + header.size]
        if self.transactions.is_aborted(header):
            return self._retain_empty(whole, header)
        try:
            payload = records_payload(buffer, position, header, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
            records = list(iter_records(buffer, position, header, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES))
        except CorruptRecord:
            return whole
        kept = [self._keeps(record, header) for record in records]
        if all(kept):
            return whole if records else self._retain_empty(whole, header)
        if not any(kept):
            return self._retain_empty(whole, header)
        return _subset(whole, header, payload, records, kept)

    def _keeps(self, record: Record, header: BatchHeader) -> bool:
        if record.key is None:
            return True
        if self.offsets.get(record.key, -1) > record.offset:
            return False
        return record.value is not None or not self._is_past(header)

    def _is_past(self, header: BatchHeader) -> bool:
        """Whether tombstones and markers of a batch have been there for long enough."""
        return header.last_offset < self.first_dirty_offset and header.max_timestamp < self.remove_before_ms

    def _retain_marker(self, buffer: Buffer, position: int, header: BatchHeader) -> Buffer | None:
        had_data, aborted = self.transactions.end(header)
        if had_data and aborted is not None:
            self.retained_aborted.append(aborted)
        if had_data or not self._is_past(header) or self._is_needed(header):
            return memoryview(buffer)[position : position + header.size]
        return None

    def _retain_empty(self, whole: memoryview, header: BatchHeader) -> Buffer | None:
        if not self._is_needed(header):
            return None
        if header.records_count == 0:
            return whole
        return _emptied(whole, header)

    def _is_needed(self, header: BatchHeader) -> bool:
        """Whether a batch says something by its header alone."""
        if header.next_offset == self.end_offset:
            return True
        last = self.last_offsets.get(header.producer_id)
        if last is None:
            return False
        last_data_offset, producer_epoch = last
        if last_data_offset >= 0:
            return header.last_offset == last_data_offset
        return header.is_control and header.producer_epoch == producer_epoch


def _emptied(whole: memoryview, header: BatchHeader) -> bytearray:
    batch = bytearray(whole[:HEADER_SIZE])
    _LENGTH.pack_into(batch, _LENGTH_POSITION, HEADER_SIZE - LOG_OVERHEAD)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_POSITION, header.attributes & ~COMPRESSION_MASK)
    _TIMESTAMPS.pack_into(batch, _BASE_TIMESTAMP_POSITION, header.max_timestamp, header.max_timestamp)
    _COUNT.pack_into(batch, _COUNT_POSITION, 0)
    stamp_crc(batch)
    return batch


def _subset(
    whole: memoryview, header: BatchHeader, payload: bytes, records: list[Record], kept: list[bool]
) -> bytearray:
    """A batch with some of its records, byte for byte."""
    parts: list[bytes] = []
    at = 0
    for keep in kept:
        length, start = decode_varint(payload, at)
        end = start + length
        if keep:
            parts.append(payload[at:end])
        at = end
    batch = bytearray(whole[:HEADER_SIZE])
    batch += compress(header.compression, b"".join(parts))
    _LENGTH.pack_into(batch, _LENGTH_POSITION, len(batch) - LOG_OVERHEAD)
    if not header.is_log_append_time:
        largest = max(record.timestamp for record, keep in zip(records, kept, strict=True) if keep)
        _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, largest)
    _COUNT.pack_into(batch, _COUNT_POSITION, len(parts))
    stamp_crc(batch)
    return batch
