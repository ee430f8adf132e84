"""``LogSegment``: one ``.log`` file of a partition, and the indexes that tell where in it to look.

A segment holds the batches from its base offset up to the next segment's. Only the last one of a log is appended to.
The bytes of the ``.log`` file are the truth: whatever else is here follows from them.

Reading is written as a generator that asks for bytes (``ReadRequest``) and is given them: driven by page-cache reads on
the event loop, or off the loop when the data is cold. It goes to the position from the offset index, walks batch
headers to the batch that contains the offset, and takes everything from there in one read. What it returns begins with
a whole batch and may end with an incomplete one, as in Kafka.
"""

import errno
from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

from oncelog.broker.storage.batch_scan import EXTENT_SIZE, ScannedBatch, Walk, find_base, find_batch, scan_batches
from oncelog.broker.storage.disk import Disk, File
from oncelog.broker.storage.index_file import CorruptIndex
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file,
)
from oncelog.broker.storage.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from oncelog.broker.storage.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from oncelog.broker.storage.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from oncelog.broker.storage.time_index import TimeIndex, TimestampOffset
from oncelog.broker.storage.transaction_index import TransactionIndex
from oncelog.protocol.records.record_batch import HEADER_SIZE, NO_TIMESTAMP, read_header
from oncelog.protocol.schema import Buffer

_WALK_CHUNK: Final = 8192
"""Enough for the headers between two index entries, unless batches are large."""
_NEVER: Final = 2**63 - 1
_ALWAYS: Final = -2


class ShortRead(Exception):
    """A read got fewer bytes than the segment has there: the rest is not in memory, or not on the disk any more."""


class ReadRequest(NamedTuple):
    """Bytes that a read needs next."""

    file: File
    size: int
    position: int


class SegmentRead(NamedTuple):
    """What was found in a segment."""

    records: Buffer
    next_offset: int | None
    """All records are below this offset; None: that is where the segment ends."""


class LogSegment:
    """One segment. Files of segments that are only read are opened when that happens first."""

    __slots__ = (
        "_config",
        "_directory",
        "_disk",
        "_file",
        "_name_suffix",
        "_touched",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "index_is_full",
        "jitter_ms",
        "largest_timestamp",
        "max_offset",
        "offset_index",
        "roll_timestamp",
        "size",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        now_ms: int,
        jitter_ms: int = 0,
        name_suffix: str = "",
    ) -> None:
        """``name_suffix`` ends the names of the files of a segment that is not part of its log yet."""
        self._disk = disk
        self._directory = directory
        self._name_suffix = name_suffix
        self._config = config
        self._file: File | None = None
        self._touched = True
        self.base_offset = base_offset
        self.max_offset = base_offset + MAX_RELATIVE_OFFSET
        self.size = 0
        self.created_ms = now_ms
        self.jitter_ms = jitter_ms
        self.bytes_since_index_entry = 0
        self.index_is_full = False
        self.roll_timestamp = _NEVER
        """A batch that is younger than this begins a new segment, or at least ``should_roll`` must think about it."""
        self.largest_timestamp: TimestampOffset | None = TimestampOffset(NO_TIMESTAMP, base_offset)
        """None: not read yet, ask ``max_timestamp``."""
        self.offset_index = OffsetIndex(disk, self.path(OFFSET_INDEX_SUFFIX), base_offset)
        self.time_index = TimeIndex(disk, self.path(TIME_INDEX_SUFFIX), base_offset)
        self.transaction_index = TransactionIndex(disk, self.path(TRANSACTION_INDEX_SUFFIX), base_offset)

    def create(self) -> None:
        """Make the file; whatever was there under this name goes."""
        self._file = self._disk.open(self.path(LOG_SUFFIX), create=True)
        if self._file.size():
            self._file.truncate(0)
        self.reset_indexes()

    def open(self, names: frozenset[str]) -> None:
        """Take over what is on disk; ``names`` are those in the directory. Raises ``CorruptIndex``: recover then."""
        self.size = self._disk.file_size(self.path(LOG_SUFFIX))
        self.largest_timestamp = None
        if self.size == 0:
            self.reset_indexes()
            return
        self.roll_timestamp = _ALWAYS
        for index in (self.offset_index, self.time_index):
            if self._name(index) not in names:
                raise CorruptIndex(f"{self._name(index)} is missing")
            index.open()
        if self._name(self.transaction_index) in names:
            self.transaction_index.open()

    def path(self, suffix: str) -> str:
        return offset_file(self._directory, self.base_offset, suffix + self._name_suffix)

    def paths(self) -> list[str]:
        """Of all files that a segment may have."""
        return [self.path(suffix) for suffix in SEGMENT_SUFFIXES]

    @property
    def index_bytes(self) -> int:
        """Of the larger one of the two sparse indexes."""
        return max(len(self.offset_index) * OFFSET_ENTRY_SIZE, len(self.time_index) * TIME_ENTRY_SIZE)

    @property
    def file(self) -> File:
        self._touched = True
        return self._file or self._open_file()

    def _open_file(self) -> File:
        self._file = self._disk.open(self.path(LOG_SUFFIX))
        return self._file

    # Appending

    def append(self, buffers: Sequence[Buffer], size: int) -> None:
        """Write at the end. Raises ``OSError``: nothing was written, unless the error is EIO."""
        self._touched = True
        file = self._file or self._open_file()
        taken = file.append(buffers)
        if taken != size:
            try:
                file.truncate(self.size)
            except OSError as error:
                raise OSError(errno.EIO, f"a part of a write cannot be undone: {error}") from error
            raise OSError(errno.ENOSPC, f"only {taken} of {size} bytes were taken")
        self.size += size

    def note_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Let the indexes know of a batch that is in the file."""
        largest = self.largest_timestamp
        if largest is None:
            largest = self.max_timestamp()
        if max_timestamp > largest.timestamp:
            self.largest_timestamp = TimestampOffset(max_timestamp, last_offset)
        if self.bytes_since_index_entry > self._config.index_interval_bytes:
            self._add_index_entries(position, last_offset)
        self.bytes_since_index_entry += size
        if position == 0:
            self._note_first_timestamp(max_timestamp)

    def _add_index_entries(self, position: int, last_offset: int) -> None:
        self.offset_index.append(last_offset, position)
        self.time_index.maybe_append(*self.max_timestamp())
        self.bytes_since_index_entry = 0
        limit = self._config.segment_index_bytes
        self.index_is_full = (len(self.offset_index) + 1) * OFFSET_ENTRY_SIZE > limit or (
            len(self.time_index) + 2  # One is kept free for the entry at the end.
        ) * TIME_ENTRY_SIZE > limit

    def _note_first_timestamp(self, timestamp: int) -> None:
        if timestamp < 0:
            self.roll_timestamp = _ALWAYS  # Then it is the clock that counts.
        else:
            self.roll_timestamp = timestamp + self._config.roll_ms - self.jitter_ms

    def takes(self, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Whether a batch fits into the segment beyond doubt; if not, ``should_roll`` decides."""
        return (
            max_timestamp <= self.roll_timestamp
            and self.size + size <= self._config.segment_bytes
            and not self.index_is_full
            and last_offset <= self.max_offset
        )

    def should_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch must go to a new segment."""
        if last_offset > self.max_offset or self.index_is_full:
            return True
        if self.size == 0:
            return False
        if self.size + size > self._config.segment_bytes:
            return True
        if self.roll_timestamp == _ALWAYS:
            self._note_first_timestamp(self.first_timestamp())
        if self.roll_timestamp != _ALWAYS:
            return max_timestamp > self.roll_timestamp
        return now_ms - self.created_ms > self._config.roll_ms - self.jitter_ms

    def update_config(self, config: LogConfig) -> None:
        self._config = config
        if self.size:
            self.roll_timestamp = _ALWAYS

    def note_largest_timestamp(self) -> None:
        """Put the largest timestamp into the time index: what retention goes by once the segment is closed."""
        self.time_index.maybe_append(*self.max_timestamp())

    # Reading

    def read(
        self, start_offset: int, max_bytes: int, *, upper_offset: int | None, min_one_batch: bool
    ) -> Generator[ReadRequest, Buffer, SegmentRead | None]:
        """Batches from the one that contains ``start_offset`` (or the next) on; None if there is none here.

        ``upper_offset``: leave out batches that begin there or later; None if all are below anyway.
        """
        position = self.offset_index.lookup(start_offset)
        size = self.size  # Whatever is appended while a cold read waits is not part of it.
        left = size - position
        chunk = yield ReadRequest(self.file, left if left <= max_bytes + _WALK_CHUNK else _WALK_CHUNK, position)
        found = find_batch(chunk, 0, start_offset)
        while not found.size:
            position += found.position
            if position >= size:
                return None
            chunk = yield ReadRequest(self.file, min(size - position, _WALK_CHUNK), position)
            if len(chunk) < EXTENT_SIZE:
                raise ShortRead
            found = find_batch(chunk, 0, start_offset)
        return (yield from self._take(chunk, position, found, size, max_bytes, upper_offset, min_one_batch))

    def _take(
        self,
        chunk: Buffer,
        position: int,
        found: Walk,
        size: int,
        max_bytes: int,
        upper_offset: int | None,
        min_one_batch: bool,
    ) -> Generator[ReadRequest, Buffer, SegmentRead | None]:
        """What a read returns, once the chunk read from ``position`` on has the header of its first batch."""
        start = position + found.position
        if found.size > max_bytes:
            if not min_one_batch:
                return SegmentRead(b"", 0)
            max_bytes = found.size
        wanted = min(max_bytes, size - start)
        records: Buffer
        if len(chunk) - found.position >= wanted:
            records = memoryview(chunk)[found.position : found.position + wanted]
        else:
            records = yield ReadRequest(self.file, wanted, start)
            if len(records) < found.size:
                raise ShortRead
        if upper_offset is not None:
            walk_from = max(0, self.offset_index.lookup(upper_offset) - start)
            end = find_base(records, walk_from, upper_offset) if walk_from < len(records) else len(records)
            if end < len(records):
                return SegmentRead(memoryview(records)[:end], upper_offset)
        return SegmentRead(records, self.offset_index.upper_bound_offset(start + len(records)))

    def scan(self, position: int = 0) -> Iterator[ScannedBatch]:
        """All batches from a position on. Raises ``CorruptRecord`` at what is none."""
        return scan_batches(self.file, self.size, position)

    def scan_from(self, offset: int) -> Iterator[ScannedBatch]:
        """The batches that have ``offset`` or later ones."""
        for batch in self.scan(self.offset_index.lookup(offset)):
            if batch.header.last_offset >= offset:
                yield batch

    def next_offset(self) -> int:
        """Behind the last record; reads what comes after the last index entry."""
        end = self.base_offset
        for batch in self.scan(self.offset_index.last_entry()[1]):
            end = batch.header.next_offset
        return end

    def end_before(self, offset: int) -> int:
        """Behind the last record below ``offset``, which no batch may contain; the base offset if there is none."""
        end = self.base_offset
        for batch in self.scan(self.offset_index.lookup(offset - 1)):
            if batch.header.last_offset >= offset:
                break
            end = batch.header.next_offset
        return end

    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp, and the last offset of its batch; (NO_TIMESTAMP, base offset) if there is none."""
        if self.largest_timestamp is None:
            self.largest_timestamp = self.time_index.last_entry
        return self.largest_timestamp

    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch; NO_TIMESTAMP if there is none."""
        return read_header(self.file.read_at(HEADER_SIZE, 0)).max_timestamp if self.size else NO_TIMESTAMP

    def position_of(self, offset: int) -> int:
        """About where an offset is: the position of an indexed batch before it."""
        return self.offset_index.lookup(offset)

    # Recovery and truncation

    def prepare_appends(self) -> int:
        """Get ready to be a log's last segment: what an append adds to is found out. Returns the next offset.

        Raises ``CorruptIndex`` or ``CorruptRecord``.
        """
        if self.size == 0:
            return self.base_offset
        self.offset_index.check(self.size)
        position = self.offset_index.last_entry()[1]
        largest, end = self.time_index.last_entry, self.base_offset
        for batch in self.scan(position):
            end = batch.header.next_offset
            if batch.header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(batch.header.max_timestamp, batch.header.last_offset)
        self.largest_timestamp = largest
        self.bytes_since_index_entry = self.size - position
        self.index_is_full = False
        return end

    def reset_indexes(self) -> None:
        """Forget what the indexes say, to derive it again with ``note_batch``."""
        self.offset_index.reset()
        self.time_index.reset()
        self.transaction_index.reset()
        self.largest_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self.bytes_since_index_entry = 0
        self.index_is_full = False
        self.roll_timestamp = _NEVER if self.size == 0 else _ALWAYS

    def cut(self, size: int) -> None:
        """End the file there; what the indexes say of the rest is the caller's business."""
        self.file.truncate(size)
        self.size = size

    def first_batch_with(self, offset: int) -> ScannedBatch | None:
        """The first batch that has ``offset`` or later ones."""
        return next(self.scan_from(offset), None)

    def truncate_at(self, batch: ScannedBatch, now_ms: int) -> None:
        """Remove a batch and all that follow."""
        self.cut(batch.position)
        if self.size == 0:
            self.created_ms = now_ms
            self.reset_indexes()
            return
        for index in (self.offset_index, self.time_index, self.transaction_index):
            index.truncate_to(batch.header.base_offset)
        self.prepare_appends()

    # Files

    def write_indexes(self) -> list[File]:
        """Put the indexes into their files; the caller syncs and closes what is returned."""
        files = [self.offset_index.write(), self.time_index.write()]
        transaction_file = self.transaction_index.write()
        return files if transaction_file is None else [*files, transaction_file]

    def release_if_idle(self) -> None:
        """Give back memory and file descriptor unless the segment was read since this was last asked."""
        if not self._touched:
            self.offset_index.release()
            self.time_index.release()
            self.close()
        self._touched = False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _name(self, index: OffsetIndex | TimeIndex | TransactionIndex) -> str:
        return index.file.path.rpartition("/")[2]


def remove_segments(disk: Disk, directory: str, segments: list[LogSegment]) -> None:
    """Remove segments that their log will grow over again; they must not come back."""
    for segment in segments:
        segment.close()
        for path in segment.paths():
            if disk.exists(path):
                disk.remove(path)
    if segments:
        disk.sync_dir(directory)
