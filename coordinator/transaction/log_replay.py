"""Replaying a partition of the transaction log from its start, for the last record of each id.

A log that was not cleaned yet has several records of every transaction that there was, and only the last of each
transactional id counts. So the earlier ones are decoded as little as possible: key and value are taken out as
bytes, the value of a key replaces the one before, and what is left at the end is decoded. The others are only checked
for a producer that goes back to an older epoch.

A batch of one record, uncompressed, is all that coordinators write; its layout is read here directly. Any other batch
is taken apart by ``record_batch``.
"""

from collections.abc import Iterator
from itertools import islice
from struct import Struct
from typing import Final

from oncelog.coordinator.transaction.log_records import read_entry, read_producer
from oncelog.coordinator.transaction.state import Transaction
from oncelog.protocol.records.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    CorruptRecord,
    iter_records,
    read_header,
)
from oncelog.protocol.schema import Buffer

_MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
_SETTLED_AT_ONCE: Final = 100
_BATCH: Final = Struct(">qi4xb4xhi30xi")
"""Base offset, length, magic, attributes, last offset delta and count of records; the rest is not looked at."""
_COMPRESSED_OR_CONTROL: Final = 0x27
_PLAIN: Final = b"\0\0\0"
"""How a record of a batch of one continues after its length: no attributes, no deltas."""
_KEY_VERSION: Final = b"\0\0"
_EPOCH_AT: Final = 10
"""What comes before in a value are its version and the producer id."""
_EPOCH_END: Final = 12

_SMALLEST_RECORD: Final = 8
"""Bytes that every record has."""

_Last = tuple[bytes | None, int]
"""A value and its offset."""
_NOTHING: Final[_Last] = (None, -1)


class LogReplay:
    """One load: ``replay`` all slices of the log, then ``settle``."""

    def __init__(self, table: dict[str, Transaction]) -> None:
        """Fill ``table`` when the replay is settled."""
        self._table = table
        self._last: dict[bytes, _Last] = {}
        """By key; until they are settled."""
        self._settling: Iterator[tuple[bytes, _Last]] = iter(())

    def replay(self, buffer: Buffer, offset: int) -> int:
        """Read the whole batches that reach beyond ``offset``, and return the offset after them."""
        data = buffer if isinstance(buffer, bytes) else bytes(buffer)
        position, end, unpack = 0, len(data), _BATCH.unpack_from
        while end - position >= HEADER_SIZE:
            base_offset, length, magic, attributes, last_delta, count = unpack(data, position)
            if magic != MAGIC or length < HEADER_SIZE - LOG_OVERHEAD:
                read_header(data, position)  # It says what is wrong.
            following = position + LOG_OVERHEAD + length
            if following > end:
                break
            if base_offset + last_delta >= offset:
                is_plain = count == 1 and not attributes & _COMPRESSED_OR_CONTROL
                record = _only_record(data, position + HEADER_SIZE, following) if is_plain else None
                if record is None:
                    self._take_apart(data, position)
                else:
                    self._note(*record, base_offset)
                offset = base_offset + last_delta + 1
            position = following
        return offset

    def _take_apart(self, data: bytes, position: int) -> None:
        header = read_header(data, position)
        if header.is_control:
            return
        for record in iter_records(data, position, header, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES):
            if record.key is None:
                raise CorruptRecord(f"a record without a key at offset {record.offset}")
            self._note(record.key, record.value, record.offset)

    def _note(self, key: bytes, value: bytes | None, offset: int) -> None:
        before, _ = self._last.get(key, _NOTHING)
        if before is None or value is None or not _plainly_follows(before, value):
            if not _may_follow(key, before, value, offset):
                return
        self._last[key] = value, offset

    def settle(self) -> bool:
        """Decode some of the last records; return False once none is left."""
        some = list(islice(self._settling, _SETTLED_AT_ONCE))
        if not some:
            self._settling, self._last = iter(self._last.items()), {}
            some = list(islice(self._settling, _SETTLED_AT_ONCE))
        for key, (value, offset) in some:
            entry = read_entry(key, value, offset)
            assert entry is not None, "a record of an unknown version was not noted"
            if entry.metadata is None:
                self._table.pop(entry.transactional_id, None)
            else:
                txn = self._table[entry.transactional_id] = Transaction(entry.transactional_id, entry.metadata)
                txn.last_offset = offset
        return bool(some)


def _only_record(data: bytes, at: int, end: int) -> tuple[bytes, bytes] | None:
    """Return key and value of a record between two positions; None if it is not as coordinators write most of them.

    Lengths are zigzag varints; here the key's has one byte, the others have one or two.
    """
    if end - at < _SMALLEST_RECORD:
        return None
    size, second = data[at], data[at + 1]
    at += 1
    if size >= 0x80:
        size = size & 0x7F | second << 7
        at += 1
    key_size = data[at + 3]
    key_end = at + 4 + (key_size >> 1)
    if size != end - at << 1 or data[at : at + 3] != _PLAIN or key_size & 0x81 or not key_size or key_end + 2 > end:
        return None
    size, second = data[key_end], data[key_end + 1]
    start = key_end + 1
    if size >= 0x80:
        size = size & 0x7F | second << 7
        start += 1
    if size != end - start - 1 << 1 or data[end - 1]:  # No value, a longer one, or headers.
        return None
    return data[at + 4 : key_end], data[start : end - 1]


def _plainly_follows(before: bytes, value: bytes) -> bool:
    """Return whether a value is of the same version and producer, with the same epoch or a later one.

    Epochs are not negative, so they compare as their bytes do.
    """
    if before[:_EPOCH_AT] != value[:_EPOCH_AT]:
        return False
    return before[_EPOCH_AT:_EPOCH_END] <= value[_EPOCH_AT:_EPOCH_END]


def _may_follow(key: bytes, before: bytes | None, value: bytes | None, offset: int) -> bool:
    """Return False for a record of a version that is not known here. Raises CorruptRecord if it must not be there."""
    if key[: len(_KEY_VERSION)] != _KEY_VERSION:
        return read_entry(key, None, offset) is not None
    if value is None:
        return True
    producer = read_producer(value, offset)
    if producer is None:
        return False
    former = None if before is None else read_producer(before, offset)
    if former is not None and former.id == producer.id and former.epoch > producer.epoch:
        raise CorruptRecord(f"{key[4:]!r} goes back from epoch {former.epoch} to {producer.epoch} at offset {offset}")
    return True
