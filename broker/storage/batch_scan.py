"""Walking the batches of a segment's file by their headers.

``find_batch`` and ``find_base`` walk inside one buffer: a fetch needs the batch that *contains* its offset, and where
to stop. ``scan_batches`` reads a file from a position on, in large pieces, for recovery, replay and time searches.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from oncelog.broker.storage.disk import File
from oncelog.protocol.records.record_batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, CorruptRecord, read_header
from oncelog.protocol.schema import Buffer

EXTENT_SIZE: Final = 27
"""How much of a header says which offsets and bytes the batch covers."""

_EXTENT: Final = Struct(">qi11xi")
_unpack_extent: Final = _EXTENT.unpack_from

_CHUNK: Final = 1 << 20


class Walk(NamedTuple):
    """Where a walk over headers ended."""

    position: int
    """Of the batch that was found; otherwise of the first batch beyond those that were walked."""
    size: int
    """Of that batch; 0 if it was not found."""


def find_batch(buffer: Buffer, position: int, offset: int) -> Walk:
    """Find the first batch from ``position`` on that has ``offset`` or later ones."""
    last = len(buffer) - EXTENT_SIZE
    while position <= last:
        base_offset, length, last_offset_delta = _unpack_extent(buffer, position)
        if length <= 0:
            raise CorruptRecord(f"a batch length of {length}")
        if base_offset + last_offset_delta >= offset:
            return Walk(position, length + LOG_OVERHEAD)
        position += length + LOG_OVERHEAD
    return Walk(position, 0)


def find_base(buffer: Buffer, position: int, offset: int) -> int:
    """Return the position of the first batch from ``position`` on that begins at ``offset`` or later; else the end."""
    last = len(buffer) - EXTENT_SIZE
    while position <= last:
        base_offset, length, _ = _unpack_extent(buffer, position)
        if base_offset >= offset:
            return position
        if length <= 0:
            raise CorruptRecord(f"a batch length of {length}")
        position += length + LOG_OVERHEAD
    return len(buffer)


class ScannedBatch(NamedTuple):
    """A whole batch, and where it is in the file and in the buffer."""

    position: int
    header: BatchHeader
    buffer: Buffer
    at: int


def scan_batches(file: File, size: int, position: int = 0) -> Iterator[ScannedBatch]:
    """Yield the batches of a file that ends at ``size``, from ``position`` on.

    Raise ``CorruptRecord`` at the first bytes that are no whole batch, after the batches before them.
    """
    while position < size:
        buffer = file.read_at(min(_CHUNK, size - position), position)
        at = 0
        while len(buffer) - at >= HEADER_SIZE:
            header = read_header(buffer, at)
            if at + header.size > len(buffer):
                break
            yield ScannedBatch(position + at, header, buffer, at)
            at += header.size
        if at == 0:
            yield _read_batch(file, size, position)
            at = read_header(buffer, 0).size
        position += at


def _read_batch(file: File, size: int, position: int) -> ScannedBatch:
    """Read one batch that does not fit a chunk."""
    header = read_header(file.read_at(HEADER_SIZE, position), 0)
    if position + header.size > size:
        raise CorruptRecord(f"a batch of {header.size} bytes where {size - position} are left")
    buffer = file.read_at(header.size, position)
    if len(buffer) < header.size:
        raise CorruptRecord(f"the file ends inside the batch at {position}")
    return ScannedBatch(position, header, buffer, 0)
