"""``LogSegment``: one ``.log`` file of a partition, and the indexes that tell where in it to look.

A segment holds the batches from its base offset up to the next segment's. Only the last one of a log is appended to.
The bytes of the ``.log`` file are the truth: whatever else is here follows from them.
"""

import errno
from collections.abc import Iterator, Sequence
from typing import Final

from oncelog.broker.storage.batch_scan import ScannedBatch, scan_batches
from oncelog.broker.storage.disk import Disk, File
from oncelog.broker.storage.disk_errors import OUT_OF_DESCRIPTORS
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_files import (
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    offset_file,
)
from oncelog.broker.storage.offset_index import MAX_RELATIVE_OFFSET
from oncelog.broker.storage.segment_indexes import SegmentIndexes
from oncelog.broker.storage.time_index import TimestampOffset
from oncelog.protocol.records.record_batch import HEADER_SIZE, NO_TIMESTAMP, read_header
from oncelog.protocol.schema import Buffer

_NEVER: Final = 2**63 - 1
_ALWAYS: Final = -2


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
        "indexes",
        "jitter_ms",
        "largest_timestamp",
        "max_offset",
        "roll_timestamp",
        "size",
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
        """Make an empty segment, without files; ``name_suffix``: of a segment that is not part of its log yet."""
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
        """``should_roll`` decides about a batch with a later timestamp."""
        self.largest_timestamp: TimestampOffset | None = TimestampOffset(NO_TIMESTAMP, base_offset)
        """None: not read yet; call ``max_timestamp``."""
        self.indexes = SegmentIndexes(disk, self.path, base_offset)

    def create(self) -> None:
        """Make an empty file, also if there was one of this name."""
        self._file = self._disk.open(self.path(LOG_SUFFIX), create=True)
        if self._file.size():
            self._file.truncate(0)
        self.reset_indexes()

    def open(self, names: frozenset[str]) -> None:
        """Take over what is on disk; ``names`` are those in the directory. Raise ``CorruptIndex``: recover then."""
        self.size = self._disk.file_size(self.path(LOG_SUFFIX))
        self.largest_timestamp = None
        if self.size == 0:
            self.reset_indexes()
            return
        self.roll_timestamp = _ALWAYS
        self.indexes.open(names)

    def path(self, suffix: str) -> str:
        return offset_file(self._directory, self.base_offset, suffix + self._name_suffix)

    def paths(self) -> list[str]:
        """Return the paths of all files that a segment may have."""
        return [self.path(suffix) for suffix in SEGMENT_SUFFIXES]

    @property
    def file(self) -> File:
        """Return the ``.log`` file, opened if need be."""
        self._touched = True
        if self._file is None:
            self._file = self._disk.open(self.path(LOG_SUFFIX))
        return self._file

    def drop_name_suffix(self) -> None:
        """Give the files the names that they have as part of a log. Raise ``OSError``. It opens no file."""
        before = [(suffix, self.path(suffix)) for suffix in SEGMENT_SUFFIXES]
        self.close()
        self._name_suffix = ""
        for suffix, path in before:
            if self._disk.exists(path):
                self._disk.rename(path, self.path(suffix))
        self.indexes.move(self.path)

    # Appending

    def append(self, buffers: Sequence[Buffer], size: int) -> None:
        """Write at the end. Raise ``OSError``: nothing was written, unless the error is EIO."""
        file = self._file or self.file
        taken = file.append(buffers)
        if taken != size:
            try:
                file.truncate(self.size)
            except OSError as error:
                raise OSError(errno.EIO, f"a partial write cannot be undone: {error}") from error
            raise OSError(errno.ENOSPC, f"only {taken} of {size} bytes were written")
        self.size += size

    def note_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Add a batch that is in the file to the indexes."""
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
        self.indexes.offset.append(last_offset, position)
        self.indexes.time.maybe_append(*self.max_timestamp())
        self.bytes_since_index_entry = 0
        self.index_is_full = self.indexes.sparse_entries_exceed(self._config.segment_index_bytes)

    def _note_first_timestamp(self, timestamp: int) -> None:
        if timestamp < 0:
            self.roll_timestamp = _ALWAYS  # Then it is the clock that counts.
        else:
            self.roll_timestamp = timestamp + self._config.roll_ms - self.jitter_ms

    def takes(self, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Return whether a batch certainly fits into the segment; if not, ``should_roll`` decides."""
        return (
            max_timestamp <= self.roll_timestamp
            and self.size + size <= self._config.segment_bytes
            and not self.index_is_full
            and last_offset <= self.max_offset
        )

    def should_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Return whether a batch must go to a new segment."""
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
        self.indexes.time.maybe_append(*self.max_timestamp())

    # Reading

    def scan(self, position: int = 0) -> Iterator[ScannedBatch]:
        """Yield all batches from a position on. Raise ``CorruptRecord`` at bytes that are no batch."""
        return scan_batches(self.file, self.size, position)

    def scan_from(self, offset: int) -> Iterator[ScannedBatch]:
        """Yield the batches that have ``offset`` or later ones."""
        for batch in self.scan(self.indexes.offset.lookup(offset)):
            if batch.header.last_offset >= offset:
                yield batch

    def max_timestamp(self) -> TimestampOffset:
        """Return the largest timestamp and the last offset of its batch; else (NO_TIMESTAMP, base offset)."""
        if self.largest_timestamp is None:
            self.largest_timestamp = self.indexes.time.last_entry
        return self.largest_timestamp

    def first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch; NO_TIMESTAMP if there is none."""
        return read_header(self.file.read_at(HEADER_SIZE, 0)).max_timestamp if self.size else NO_TIMESTAMP

    # Recovery and truncation

    def prepare_appends(self) -> int:
        """Prepare for appends, as the last segment of a log. Return the next offset.

        Raise ``CorruptIndex`` or ``CorruptRecord``.
        """
        if self.size == 0:
            return self.base_offset
        self.indexes.load()  # No append may have to open a file once it is written.
        self.indexes.offset.check(self.size)
        position = self.indexes.offset.last_entry()[1]
        largest, end = self.indexes.time.last_entry, self.base_offset
        for batch in self.scan(position):
            end = batch.header.next_offset
            if batch.header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(batch.header.max_timestamp, batch.header.last_offset)
        self.largest_timestamp = largest
        self.bytes_since_index_entry = self.size - position
        self.index_is_full = False
        return end

    def reset_indexes(self) -> None:
        """Remove all index entries, to derive them again with ``note_batch``."""
        self.indexes.reset()
        self.largest_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self.bytes_since_index_entry = 0
        self.index_is_full = False
        self.roll_timestamp = _NEVER if self.size == 0 else _ALWAYS

    def cut(self, size: int) -> None:
        """End the file there; the caller corrects the indexes."""
        self.file.truncate(size)
        self.size = size

    def truncate_at(self, batch: ScannedBatch, now_ms: int) -> None:
        """Remove a batch and all that follow."""
        self.cut(batch.position)
        if self.size == 0:
            self.created_ms = now_ms
            self.reset_indexes()
            return
        self.indexes.truncate_to(batch.header.base_offset)
        self.prepare_appends()

    # Files

    def release_if_idle(self) -> None:
        """Release memory and file descriptor unless the segment was read since the last call."""
        if not self._touched:
            self.indexes.release()
            self.close()
        self._touched = False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def remove_segments(disk: Disk, directory: str, segments: list[LogSegment]) -> None:
    """Remove segments that their log will grow over again; they must not come back.

    The last one goes first: a kill in between leaves a log without a gap. Where the directory cannot be opened for want
    of descriptors, the next flush syncs it.
    """
    for segment in reversed(segments):
        segment.close()
        for path in segment.paths():
            if disk.exists(path):
                disk.remove(path)
    if segments:
        try:
            disk.sync_dir(directory)
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise
