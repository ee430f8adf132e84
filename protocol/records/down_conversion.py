"""Batches of format version 2 as sets of old messages: what a Fetch before version 4 returns.

A batch without codec becomes messages, one with a codec becomes wrappers of the same codec; zstd has no place in old
messages. What an old consumer must not see is left out: control batches, and, if the aborted transactions are given,
the records of these. So are records below the fetch offset, and the headers of records. With the append time as
timestamp all messages have the batch's.

The result may end anywhere between two messages, since a consumer goes on behind the last one that it has seen. That
bounds it, however much a batch holds: a wrapper holds at most ``_WRAPPER_BYTES`` and a message, and nothing more is
begun once there are ``max_bytes``. ``next_offset`` says what was left out at the end: a range that has nothing
for the consumer must not be read again and again, as the consumer cannot go on behind it by itself.

Batches may be hostile, since what a leader appends is not always walked: a header and a CRC say nothing of the records.
So this is a generator that takes its work from a ``WorkBudget`` and holds one record, one block and the result. Records
that cannot be decoded are an error at their place: what is before them is returned first.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.aborted_ranges import AbortedRanges, AbortedTransaction
from oncelog.protocol.records.block_window import BlockWindow
from oncelog.protocol.records.compression import (
    Compression,
    DecompressionBomb,
    iter_decompressed,
    new_compressor,
)
from oncelog.protocol.records.old_messages import (
    LARGEST_MESSAGE_SIZE,
    MAGIC_0,
    UNITS_PER_MESSAGE,
    encode_message,
    with_checksum_of_version_0,
)
from oncelog.protocol.records.recompression import UNITS_PER_KIB
from oncelog.protocol.records.record_batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptRecord,
    crc_is_valid,
    iter_batches,
)
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.records.varint import decode_varint
from oncelog.protocol.schema import Buffer

_WRAPPER_BYTES: Final = 1 << 20
"""Of the messages in a wrapper, before compression; a message more may be in it."""
_BLOCK_SIZE: Final = 64 * 1024
_LONGEST_VARINT: Final = 10
_MAX_INT64: Final = 2**63 - 1
_BATCH_UNITS: Final = 2
_LEAST_RECORD: Final = 6
"""Bytes after the length: attributes, two deltas, two lengths and the number of headers, in a byte each."""


class OldFetch(NamedTuple):
    """What an old consumer wants of one partition, and what bounds its response."""

    magic: int
    """Format version of its messages: 0 or 1."""
    fetch_offset: int
    max_bytes: int
    """Once the result has so many, nothing more is begun."""
    max_decompressed_bytes: int
    """Of one batch."""
    max_record_bytes: int = LARGEST_MESSAGE_SIZE
    aborted_transactions: Sequence[AbortedTransaction] = ()


class OldMessages(NamedTuple):
    """A set of messages for an old consumer."""

    entries: bytes
    message_count: int
    """Those in wrappers included."""
    next_offset: int
    """All that the consumer may see below it is in ``entries``."""
    error: ErrorCode
    """Why nothing can be returned; NONE if there is something, or nothing to return."""


def convert_batches(batches: Buffer, wanted: OldFetch, budget: WorkBudget) -> Generator[None, None, OldMessages]:
    """Convert whole batches; one that is cut off at the end is left out. Yields whenever the budget is used up."""
    conversion = _Conversion(wanted, budget)
    error = ErrorCode.NONE
    try:
        error = yield from conversion.run(batches)
    except DecompressionBomb:
        error = ErrorCode.MESSAGE_TOO_LARGE
    except (IndexError, ValueError):
        error = ErrorCode.CORRUPT_MESSAGE
    return conversion.result(error)


class _RecordView(NamedTuple):
    """A record as an old message has it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class _Conversion:
    """The messages of one partition in one response."""

    __slots__ = ("_aborted", "_budget", "_count", "_next_offset", "_parts", "_size", "_wanted")

    def __init__(self, wanted: OldFetch, budget: WorkBudget) -> None:
        self._wanted = wanted
        self._budget = budget
        self._aborted = AbortedRanges(wanted.aborted_transactions)
        self._parts: list[bytes] = []
        self._size = 0
        self._count = 0
        self._next_offset = wanted.fetch_offset

    def run(self, batches: Buffer) -> Generator[None, None, ErrorCode]:
        """Convert until there is enough. Return what prevents more; raises ValueError or IndexError likewise."""
        budget = self._budget
        for position, header in iter_batches(batches):
            budget.left -= _BATCH_UNITS
            if budget.left <= 0:
                yield
            if self._is_full:
                break
            if not crc_is_valid(batches, position, header):
                return ErrorCode.CORRUPT_MESSAGE
            if self._aborted.shows(batches, position, header) and header.records_count:
                if header.compression is Compression.ZSTD:
                    return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
                records = memoryview(batches)[position + HEADER_SIZE : position + header.size]
                yield from self._convert(records, header)
                if self._is_full:
                    break  # Perhaps in the middle of the batch.
            self._next_offset = max(self._next_offset, header.next_offset)
        return ErrorCode.NONE

    def result(self, error: ErrorCode) -> OldMessages:
        return OldMessages(
            entries=b"".join(self._parts),
            message_count=self._count,
            next_offset=self._next_offset,
            error=ErrorCode.NONE if self._parts else error,
        )

    @property
    def _is_full(self) -> bool:
        return self._size >= self._wanted.max_bytes and bool(self._parts)

    def _convert(self, records: memoryview, header: BatchHeader) -> Generator[None, None, None]:
        wrapper = _Wrapper(header, self._wanted.magic, self._budget) if header.compression else None
        magic, budget = self._wanted.magic, self._budget
        attributes = LOG_APPEND_TIME_BIT if magic != MAGIC_0 and header.is_log_append_time else 0
        blocks = iter_decompressed(header.compression, records, max_bytes=self._wanted.max_decompressed_bytes)
        walk = _RecordWalk(blocks, header, self._wanted, budget)
        for _ in range(header.records_count):
            record = yield from walk.next_record()
            budget.left -= UNITS_PER_MESSAGE
            if record is None:
                continue
            if wrapper is None:
                offset, timestamp, key, value = record
                message = encode_message(magic, offset, attributes, timestamp, key, value)
                self._add(message, 1, offset)
            else:
                yield from wrapper.add(record)
                if wrapper.size >= _WRAPPER_BYTES:
                    self._add(*wrapper.finish())
            if self._is_full:
                return
        if wrapper is not None and wrapper.count:
            self._add(*wrapper.finish())

    def _add(self, entries: bytes, count: int, last_offset: int) -> None:
        self._parts.append(entries)
        self._size += len(entries)
        self._count += count
        self._next_offset = last_offset + 1


class _RecordWalk:
    """The records of one batch, one after the other, without their headers."""

    __slots__ = ("_budget", "_header", "_most", "_previous", "_start_offset", "_window")

    def __init__(self, blocks: Iterator[bytes], header: BatchHeader, wanted: OldFetch, budget: WorkBudget) -> None:
        self._window = BlockWindow(blocks, budget)
        self._budget = budget
        self._header = header
        self._start_offset = wanted.fetch_offset
        self._most = wanted.max_record_bytes
        self._previous = -1

    def next_record(self) -> Generator[None, None, _RecordView | None]:
        """Return the next record; None if it is below the fetch offset. Raises ValueError or IndexError."""
        window = self._window
        if self._budget.left <= 0:
            yield
        if window.left < _LONGEST_VARINT:
            yield from window.need(_LONGEST_VARINT)
        length, body = decode_varint(window.held, window.at)
        if length < _LEAST_RECORD:
            raise CorruptRecord(f"a record of {length} bytes")
        if length > self._most:
            raise DecompressionBomb(f"a record of {length} bytes where {self._most} are allowed")
        whole = body - window.at + length
        if window.left < whole:
            at = body - window.at
            if not (yield from window.need(whole)):
                raise CorruptRecord("a record is cut off")
            body = window.at + at
        window.at = body + length
        return self._decode(window.held, body, body + length)

    def _decode(self, held: bytes, at: int, end: int) -> _RecordView | None:
        header = self._header
        delta, at = decode_varint(held, at + 1)
        offset_delta, at = decode_varint(held, at)
        if not self._previous < offset_delta <= header.last_offset_delta:
            raise CorruptRecord(f"offset delta {offset_delta} after {self._previous}")
        self._previous = offset_delta
        offset = header.base_offset + offset_delta
        if offset < self._start_offset:
            return None
        timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + delta
        if timestamp > _MAX_INT64:
            raise CorruptRecord(f"timestamp {timestamp}")
        key, at = _field(held, at, end)
        value, at = _field(held, at, end)
        # Old clients know no time before 1970.
        return _RecordView(offset, max(timestamp, NO_TIMESTAMP), key, value)


def _field(held: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = decode_varint(held, at)
    if length < 0:
        return None, at
    if at + length >= end:  # At least the number of headers follows.
        raise CorruptRecord("a field that ends after its record")
    return held[at : at + length], at + length


class _Wrapper:
    """Messages of one batch, compressed as they come, and the wrapper around them; then those of the next one."""

    __slots__ = ("_base_offset", "_budget", "_compressor", "_header", "_last", "_magic", "_parts", "_pending",
                 "_pending_size", "_timestamp", "count", "size")  # fmt: skip

    def __init__(self, header: BatchHeader, magic: int, budget: WorkBudget) -> None:
        self._header = header
        self._magic = magic
        self._budget = budget
        self._begin()

    def _begin(self) -> None:
        self._compressor = new_compressor(self._header.compression)
        self._parts: list[bytes] = []
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._base_offset = self._last = -1
        self._timestamp = NO_TIMESTAMP
        self.count = 0
        self.size = 0
        """Bytes of its messages, before compression."""

    def add(self, record: _RecordView) -> Generator[None, None, None]:
        """Add a message, of which none is smaller than the one before it."""
        offset, timestamp, key, value = record
        if not self.count:
            self._base_offset = offset
        self._last = offset
        self._timestamp = max(self._timestamp, timestamp)
        relative = offset if self._magic == MAGIC_0 else offset - self._base_offset
        message = encode_message(self._magic, relative, 0, timestamp, key, value)
        self.count += 1
        self.size += len(message)
        self._pending.append(message)
        self._pending_size += len(message)
        if self._pending_size >= _BLOCK_SIZE:
            yield from self._compress_pending()

    def finish(self) -> tuple[bytes, int, int]:
        """Return the wrapper, the number of its messages and the last offset, and begin the next one."""
        for _ in self._compress_pending():
            pass
        self._parts.append(self._compressor.flush())
        value, count, last = b"".join(self._parts), self.count, self._last
        header, attributes = self._header, int(self._header.compression)
        if self._magic == MAGIC_0:
            if header.compression is Compression.LZ4:
                value = with_checksum_of_version_0(value)
        elif header.is_log_append_time:
            attributes |= LOG_APPEND_TIME_BIT
        wrapper = encode_message(self._magic, last, attributes, self._timestamp, None, value)
        self._begin()
        return wrapper, count, last

    def _compress_pending(self) -> Generator[None, None, None]:
        pending = memoryview(b"".join(self._pending))
        self._pending.clear()
        self._pending_size = 0
        for start in range(0, len(pending), _BLOCK_SIZE):
            block = bytes(pending[start : start + _BLOCK_SIZE])
            self._parts.append(self._compressor.compress(block))
            self._budget.left -= UNITS_PER_KIB[self._header.compression] * len(block) // 1024
            if self._budget.left <= 0:
                yield
