"""Walking the records of a batch without making objects of them, in slices.

Records may be hostile: a few hundred bytes decompress to hundreds of megabytes with tens of millions of records or
headers, and each of those costs up to a microsecond. So a walk is a generator. It takes its work from a ``WorkBudget``
and yields whenever nothing is left of that. Its payload comes in blocks that are decompressed one after the other and
not kept; keys, values and headers are stepped over.

* ``walk_records`` checks all that a leader checks before it appends a batch.
* ``find_timestamp`` looks for the first record that is not older than a timestamp. It steps by the records' lengths, so
  that headers cost nothing.
"""

from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from oncelog.protocol.records.compression import CorruptRecord
from oncelog.protocol.records.record_batch import NO_TIMESTAMP, BatchHeader
from oncelog.protocol.records.varint import decode_varint

MAX_RECORD_ERRORS: Final = 1000
"""Of one batch. A client takes records that are not named for ones that failed only because of the others."""

_MIN_INT64: Final = -(2**63)
_MAX_INT64: Final = 2**63 - 1
_LONGEST_VARINT: Final = 10
_HEADERS_PER_BYTE: Final = 16
"""Headers that a batch may have for each of its bytes, and at least as many as one record: a walk costs in proportion
to what was sent."""
_BYTES_PER_UNIT: Final = 1024
"""Bytes that are decompressed in about the time in which one record is walked."""
_FIELD_SIZES: Final = tuple(1 + max(byte >> 1 ^ -(byte & 1), 0) for byte in range(0x80))
"""By its first byte, the size of a key or value whose length takes one byte."""


class WorkBudget:
    """What may still be done in this turn of the loop, in units of about a microsecond.

    Work is subtracted from ``left``. A generator yields when nothing is left; its driver sets ``left`` anew.
    """

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class RecordRules(NamedTuple):
    """What a topic accepts of single records."""

    earliest: int = _MIN_INT64
    latest: int = _MAX_INT64
    needs_keys: bool = False
    max_headers: int = 2**31 - 1


class RecordError(NamedTuple):
    """What is wrong with one record of a batch (KIP-467)."""

    batch_index: int
    message: str


class WalkedRecords(NamedTuple):
    """What a walk has seen."""

    max_timestamp: int
    """Of the accepted records; -1 if none has one."""
    has_rejected_timestamp: bool
    rejected: int
    """Number of records that the topic does not accept."""
    record_errors: list[RecordError]
    """The first ``MAX_RECORD_ERRORS`` of them."""


class FoundRecord(NamedTuple):
    """The record that a search found."""

    offset: int
    timestamp: int


class _Payload:
    """The decompressed records of a batch, of which only a window is held."""

    __slots__ = ("_blocks", "_passed", "at", "budget", "window")

    def __init__(self, blocks: Iterator[bytes], budget: WorkBudget) -> None:
        self._blocks = blocks
        self._passed = 0
        """Bytes before the window."""
        self.budget = budget
        self.window = b""
        self.at = 0

    @property
    def position(self) -> int:
        return self._passed + self.at

    def extend(self) -> bool:
        """Put another block behind what is left of the window; False if there is none."""
        block = next(self._blocks, None)
        if block is None:
            return False
        self.budget.left -= 1 + len(block) // _BYTES_PER_UNIT
        self._passed += self.at
        self.window = self.window[self.at :] + block if self.at < len(self.window) else block
        self.at = 0
        return True

    def varint(self) -> int:
        """Read one, wherever it ends."""
        while len(self.window) - self.at < _LONGEST_VARINT and self.extend():
            pass
        value, self.at = decode_varint(self.window, self.at)
        return value

    def skip(self, size: int) -> Generator[None, None, None]:
        """Step over some bytes, which may be more than should be held at once."""
        while size > (held := len(self.window) - self.at):
            size -= held
            self.at = len(self.window)
            if self.budget.left <= 0:
                yield
            if not self.extend():
                raise CorruptRecord("the records are cut off")
        self.at += max(size, 0)

    def finish(self) -> Generator[None, None, None]:
        """Find that there is nothing more, and that the compressed bytes end where they say."""
        while True:
            if self.at < len(self.window):
                raise CorruptRecord("bytes after the last record")
            if self.budget.left <= 0:
                yield
            if not self.extend():
                return


def walk_records(
    blocks: Iterator[bytes], header: BatchHeader, rules: RecordRules, budget: WorkBudget
) -> Generator[None, None, WalkedRecords]:
    """Check the records of a produced batch. Raises CorruptRecord if they contradict the header or themselves."""
    return _Walk(blocks, header, rules, budget).run()


def _as_corrupt(error: IndexError | ValueError) -> CorruptRecord:
    """Return the CorruptRecord for an error of reading broken records."""
    if isinstance(error, CorruptRecord):
        return error
    return CorruptRecord("a record is cut off" if isinstance(error, IndexError) else str(error))


class _Walk:
    """One walk: whole records of the window by a fast loop, one that crosses its end field by field."""

    __slots__ = (
        "_header",
        "_headers_left",
        "_index",
        "_max_timestamp",
        "_payload",
        "_record_errors",
        "_rejected",
        "_rules",
        "_timestamp_is_bad",
    )

    def __init__(self, blocks: Iterator[bytes], header: BatchHeader, rules: RecordRules, budget: WorkBudget) -> None:
        self._payload = _Payload(blocks, budget)
        self._header = header
        self._rules = rules
        self._headers_left = max(rules.max_headers, _HEADERS_PER_BYTE * header.size)
        self._index = 0
        self._max_timestamp = NO_TIMESTAMP
        self._timestamp_is_bad = False
        self._rejected = 0
        self._record_errors: list[RecordError] = []

    def run(self) -> Generator[None, None, WalkedRecords]:
        payload, count = self._payload, self._header.records_count
        try:
            payload.extend()
            while True:
                self._walk_window()
                if self._index == count:
                    break
                if payload.budget.left <= 0:
                    yield
                else:
                    yield from self._walk_crossing_record()
            if payload.at < len(payload.window) or payload.extend():
                yield from payload.finish()
        except (IndexError, ValueError) as error:
            raise _as_corrupt(error) from error
        return WalkedRecords(self._max_timestamp, self._timestamp_is_bad, self._rejected, self._record_errors)

    def _walk_window(self) -> None:
        """Walk the records that the window has whole, as far as the budget allows."""
        payload, header = self._payload, self._header
        earliest, latest, needs_keys, _ = self._rules
        window, at, size = payload.window, payload.at, len(payload.window)
        count, base_timestamp, largest = header.records_count, header.base_timestamp, self._max_timestamp
        left, index = payload.budget.left, self._index
        while index < count and left > 0:
            try:
                length, attributes = decode_varint(window, at)
            except IndexError:
                break
            end = attributes + length
            if end > size:
                break
            left -= 1
            at = attributes + 1
            byte = window[at]
            if byte < 0x80:
                timestamp = base_timestamp + (byte >> 1 ^ -(byte & 1))
                at += 1
            else:
                delta, at = decode_varint(window, at)
                timestamp = base_timestamp + delta
            byte = window[at]
            if byte < 0x80:
                delta = byte >> 1 ^ -(byte & 1)
                at += 1
            else:
                delta, at = decode_varint(window, at)
            if delta != index:
                raise ValueError(f"offset delta {delta} of record {index}")
            byte = window[at]
            has_key = not byte & 1  # The sign of the length: a null key has -1.
            if byte < 0x80:
                at += _FIELD_SIZES[byte]
            else:
                length, at = decode_varint(window, at)
                at += length if has_key else 0
            byte = window[at]
            if byte < 0x80:
                at += _FIELD_SIZES[byte]
            else:
                length, at = decode_varint(window, at)
                at += length if length > 0 else 0
            if window[at]:
                headers, at = decode_varint(window, at)
                at = _skip_headers(window, at, end, self._accepted_headers(headers))
                left -= headers
            else:
                at += 1
            if at != end:
                raise ValueError(f"record {index} ends {at - end} bytes from its end")
            if timestamp > largest:
                largest = timestamp
            if (needs_keys and not has_key) or not earliest <= timestamp <= latest:
                self._judge(index, timestamp, has_key)
            index += 1
        payload.at, payload.budget.left = at, left
        self._index, self._max_timestamp = index, largest

    def _walk_crossing_record(self) -> Generator[None, None, None]:
        """Walk a record of which the window has only a part."""
        payload = self._payload
        length = payload.varint()
        end = payload.position + length
        yield from payload.skip(1)
        timestamp = self._header.base_timestamp + payload.varint()
        delta = payload.varint()
        if delta != self._index:
            raise ValueError(f"offset delta {delta} of record {self._index}")
        key_length = payload.varint()
        yield from payload.skip(key_length)
        yield from payload.skip(payload.varint())
        for _ in range(self._accepted_headers(payload.varint())):
            name_length = payload.varint()
            if name_length < 0:
                raise ValueError("a header without a name")
            yield from payload.skip(name_length)
            yield from payload.skip(payload.varint())
            payload.budget.left -= 3
        if payload.position != end:
            raise ValueError(f"record {self._index} ends {payload.position - end} bytes from its end")
        payload.budget.left -= 5
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self._judge(self._index, timestamp, key_length >= 0)
        self._index += 1

    def _accepted_headers(self, count: int) -> int:
        """Return the number of headers of a record. Raises ValueError if it is not acceptable."""
        self._headers_left -= count
        if not 0 <= count <= self._rules.max_headers or self._headers_left < 0:
            raise ValueError(f"record {self._index} has {count} headers, and the batch too many")
        return count

    def _judge(self, index: int, timestamp: int, has_key: bool) -> None:
        """Note a record that the topic does not accept."""
        earliest, latest, needs_keys, _ = self._rules
        if not _MIN_INT64 <= timestamp <= _MAX_INT64:
            raise ValueError(f"the timestamp of record {index} does not fit 64 bits")
        if needs_keys and not has_key:
            message = "A record of a compacted topic needs a key"
        elif not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
            message = f"The timestamp {timestamp} is not within [{earliest}, {latest}]"
            self._timestamp_is_bad = True
        else:
            return
        self._rejected += 1
        if self._rejected <= MAX_RECORD_ERRORS:
            self._record_errors.append(RecordError(index, message))


def _skip_headers(window: bytes, at: int, end: int, count: int) -> int:
    if 2 * count > end - at:
        raise ValueError(f"{count} headers in {end - at} bytes")
    for _ in range(count):
        length, at = decode_varint(window, at)
        if length < 0:
            raise ValueError("a header without a name")
        length, at = decode_varint(window, at + length)
        if length > 0:
            at += length
    return at


def find_timestamp(
    blocks: Iterator[bytes], header: BatchHeader, timestamp: int, start_offset: int, budget: WorkBudget
) -> Generator[None, None, FoundRecord | None]:
    """Find the first record at ``start_offset`` or later that is not older than ``timestamp``.

    Raises CorruptRecord if the records before it cannot be read.
    """
    append_time = header.max_timestamp if header.is_log_append_time else None
    try:
        payload, previous = _Payload(blocks, budget), -1
        payload.extend()
        for _ in range(header.records_count):
            length = payload.varint()
            end = payload.position + length
            yield from payload.skip(1)
            delta = payload.varint()
            found = header.base_timestamp + delta if append_time is None else append_time
            offset_delta = payload.varint()
            if not previous < offset_delta <= header.last_offset_delta:
                raise CorruptRecord(f"offset delta {offset_delta} after {previous}")
            previous = offset_delta
            offset = header.base_offset + offset_delta
            if found >= timestamp and offset >= start_offset:
                return FoundRecord(offset, found)
            if end < payload.position:
                raise CorruptRecord("a record that is shorter than its fields")
            yield from payload.skip(end - payload.position)
            budget.left -= 3
            if budget.left <= 0:
                yield
    except (IndexError, ValueError) as error:
        raise _as_corrupt(error) from error
    return None
