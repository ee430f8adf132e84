"""Finding offsets by time, for ListOffsets. Rare, so it walks records where a batch's header is not enough.

What a header says of the largest timestamp may be a lie, and the records behind it a bomb, so a search is as long as
the log at worst. It is a generator: it asks for bytes (``ReadRequest``), and yields None whenever its ``WorkBudget`` is
used up.
"""

from collections.abc import Generator, Iterable
from logging import getLogger
from typing import Final, NamedTuple, TypeAlias

from oncelog.broker.storage.log_segment import LogSegment
from oncelog.broker.storage.segment_read import ReadRequest
from oncelog.protocol.records.compression import iter_decompressed
from oncelog.protocol.records.record_batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, CorruptRecord, read_header
from oncelog.protocol.records.record_walk import FoundRecord, WorkBudget, find_timestamp
from oncelog.protocol.schema import Buffer

_MAX_DECOMPRESSED_BYTES: Final = 256 << 20
_CHUNK: Final = 128 << 10
_CHUNK_UNITS: Final = 50
_SEGMENT_UNITS: Final = 10

_log = getLogger(__name__)


class FoundOffset(NamedTuple):
    """The record that a search found."""

    timestamp: int
    offset: int
    leader_epoch: int
    """Of its batch; -1 if that has none."""


Search: TypeAlias = Generator[ReadRequest | None, Buffer | None, FoundOffset | None]


def find_by_timestamp(segments: Iterable[LogSegment], timestamp: int, start_offset: int, budget: WorkBudget) -> Search:
    """Find the first record at or after ``start_offset`` that is not older than ``timestamp``."""
    for segment in list(segments):
        budget.left -= _SEGMENT_UNITS
        if budget.left <= 0:
            yield None
        if segment.max_timestamp().timestamp >= timestamp:
            not_before = max(segment.indexes.time.lookup(timestamp).offset, start_offset)
            found = yield from _find_in_segment(segment, timestamp, not_before, start_offset, budget)
            if found is not None:
                return found
    return None


def find_max_timestamp(segments: Iterable[LogSegment], budget: WorkBudget) -> Search:
    """Find the first record with the largest timestamp of all; None if none has one."""
    segment = max(segments, key=lambda segment: segment.max_timestamp().timestamp)
    largest, last_offset = segment.max_timestamp()
    if largest == NO_TIMESTAMP:
        return None
    return (yield from _find_in_segment(segment, largest, last_offset, 0, budget))


def _find_in_segment(
    segment: LogSegment, timestamp: int, not_before: int, start_offset: int, budget: WorkBudget
) -> Search:
    """Search the batches that have ``not_before`` or later offsets for a record at or after ``start_offset``."""
    size, position, wanted = segment.size, segment.indexes.offset.lookup(not_before), _CHUNK
    while position < size:
        buffer = yield ReadRequest(segment.file, min(wanted, size - position), position)
        budget.left -= _CHUNK_UNITS
        if buffer is None or len(buffer) < min(wanted, size - position):
            raise CorruptRecord(f"the file of segment {segment.base_offset} is shorter than the segment")
        at, wanted = 0, _CHUNK
        while len(buffer) - at >= HEADER_SIZE:
            header = read_header(buffer, at)
            if at + header.size > len(buffer):
                wanted = max(wanted, header.size if at == 0 else 0)
                break
            budget.left -= 1
            if header.last_offset >= not_before and header.max_timestamp >= timestamp:
                found = yield from _find_in_batch(buffer, at, header, timestamp, start_offset, budget)
                if found is not None:
                    return found
            at += header.size
            if budget.left <= 0:
                yield None
        if at == 0 and position + wanted > size:
            raise CorruptRecord(f"segment {segment.base_offset} ends inside the batch at {position}")
        position += at
    return None


def _find_in_batch(
    buffer: Buffer, at: int, header: BatchHeader, timestamp: int, start_offset: int, budget: WorkBudget
) -> Search:
    """Search one batch. Of one that is broken inside, its first offset stands for all."""
    payload = memoryview(buffer)[at + HEADER_SIZE : at + header.size]
    try:
        blocks = iter_decompressed(header.compression, payload, max_bytes=_MAX_DECOMPRESSED_BYTES)
        record = yield from find_timestamp(blocks, header, timestamp, start_offset, budget)
    except ValueError as error:
        _log.warning("the batch at offset %d cannot be decoded: %s", header.base_offset, error)
        record = FoundRecord(header.base_offset, header.max_timestamp) if header.base_offset >= start_offset else None
    if record is None:
        return None
    return FoundOffset(record.timestamp, record.offset, header.partition_leader_epoch)
