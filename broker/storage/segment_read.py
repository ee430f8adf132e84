"""How batches are read from a segment, without I/O of its own.

A read is a generator that asks for bytes (``ReadRequest``) and is sent them: driven by page-cache reads on the event
loop, or off the loop when the data is cold. It goes to the position from the offset index, walks batch headers to the
batch that contains the offset, and takes everything from there in one read. What it returns begins with a whole batch
and may end with an incomplete one, as in Kafka.
"""

from collections.abc import Generator
from typing import Final, NamedTuple

from oncelog.broker.storage.batch_scan import EXTENT_SIZE, find_base, find_batch
from oncelog.broker.storage.disk import File
from oncelog.broker.storage.log_segment import LogSegment
from oncelog.protocol.schema import Buffer

_WALK_CHUNK: Final = 8192
"""Enough for the headers between two index entries, unless batches are large."""


class ShortRead(Exception):
    """A read got fewer bytes than the segment has there: the rest is not in memory, or not on the disk any more."""


class ReadRequest(NamedTuple):
    """Bytes that a read needs next."""

    file: File
    size: int
    position: int


class FoundBatches(NamedTuple):
    """What a read found in a segment."""

    records: Buffer
    next_offset: int | None
    """All records are below this offset; None: that is where the segment ends."""


def read_segment(
    segment: LogSegment, start_offset: int, max_bytes: int, upper_offset: int | None, min_one_batch: bool
) -> Generator[ReadRequest, Buffer, FoundBatches | None]:
    """Find the batches from the one that contains ``start_offset`` (or the next) on; None if there is none here.

    Batches that begin at ``upper_offset`` or later are left out; None: all of the segment's begin below.
    ``min_one_batch``: return the first batch even if it is larger than ``max_bytes``. Raise ``ShortRead``.
    """
    index = segment.indexes.offset
    position = index.lookup(start_offset)
    size = segment.size  # Batches that are appended while a cold read waits are not part of it.
    left = size - position
    chunk = yield ReadRequest(segment.file, left if left <= max_bytes + _WALK_CHUNK else _WALK_CHUNK, position)
    found = find_batch(chunk, 0, start_offset)
    while not found.size:
        position += found.position
        if position >= size:
            return None
        chunk = yield ReadRequest(segment.file, min(size - position, _WALK_CHUNK), position)
        if len(chunk) < EXTENT_SIZE:
            raise ShortRead
        found = find_batch(chunk, 0, start_offset)
    start = position + found.position
    if found.size > max_bytes:
        if not min_one_batch:
            return FoundBatches(b"", 0)
        max_bytes = found.size
    wanted = min(max_bytes, size - start)
    records: Buffer
    if len(chunk) - found.position >= wanted:
        records = memoryview(chunk)[found.position : found.position + wanted]
    else:
        records = yield ReadRequest(segment.file, wanted, start)
        if len(records) < found.size:
            raise ShortRead
    if upper_offset is not None:
        walk_from = max(0, index.lookup(upper_offset) - start)
        end = find_base(records, walk_from, upper_offset) if walk_from < len(records) else len(records)
        if end < len(records):
            return FoundBatches(memoryview(records)[:end], upper_offset)
    return FoundBatches(records, index.upper_bound_offset(start + len(records)))
