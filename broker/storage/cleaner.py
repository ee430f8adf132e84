"""``LogCleaner``: keeps compacted logs small by keeping the last value of each key.

A pass has two walks. The first goes over the *dirty* segments (those that no pass has seen) and notes the last offset
of each key. The second goes over all closed segments before the same end and writes what ``compaction.Compaction``
retains into new segments, which then take the places of the old ones:

1. ``X.log.cleaned`` and its indexes are written and synced. A crash leaves them behind; loading removes them.
2. They are renamed to ``.swap``, and the names are synced. From here on a crash completes the replacement.
3. The old segments' files become ``.deleted``, and the ``.swap`` files take their names.

Only what is decided and durable is cleaned: below the high watermark, the last stable offset and the recovery point,
and never the active segment. Small neighbours are merged as long as size and offsets fit one segment.

Reading is off the loop, the work is done in slices between which the loop runs, and whenever the log lost segments
meanwhile (truncation, retention, deletion) the pass ends without a trace.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from logging import getLogger
from typing import Final

from broker.storage.compaction import MAX_DECOMPRESSED_BYTES, Compaction, TransactionTracker, last_offsets
from broker.storage.disk import Disk, File
from broker.storage.log_files import CLEANED_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX
from broker.storage.log_segment import LogSegment
from broker.storage.offset_index import MAX_RELATIVE_OFFSET
from broker.storage.partition_log import PartitionLog
from protocol.records.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    CorruptRecord,
    iter_batches,
    iter_records,
    read_header,
)
from protocol.schema import Buffer

_READ_BYTES: Final = 256 << 10
_BATCHES_PER_SLICE: Final = 16
_DEFAULT_MAX_KEYS: Final = 1_000_000

_log = getLogger(__name__)


class CleaningAborted(Exception):
    """The log changed under the pass."""


@dataclass(frozen=True, slots=True)
class Cleanable:
    """What a pass over a log could do."""

    segments: list[LogSegment]
    end_offset: int
    dirty_bytes: int
    clean_bytes: int

    @property
    def dirty_ratio(self) -> float:
        total = self.dirty_bytes + self.clean_bytes
        return self.dirty_bytes / total if total else 0.0


def find_cleanable(log: PartitionLog, first_dirty_offset: int, now_ms: int) -> Cleanable:
    """The closed segments that may be cleaned, and how dirty they are."""
    limit = min(log.high_watermark, log.last_stable_offset, log.recovery_point)
    lag_ms = log.config.min_compaction_lag_ms
    found: list[LogSegment] = []
    end_offset = log.segments.first.base_offset
    for slot, segment in enumerate(log.segments.closed):
        following = log.segments[slot + 1].base_offset
        if following > limit or (lag_ms > 0 and now_ms - segment.max_timestamp().timestamp < lag_ms):
            break
        found.append(segment)
        end_offset = following
    dirty = sum(segment.size for segment in found if segment.base_offset >= first_dirty_offset)
    return Cleanable(found, end_offset, dirty, sum(segment.size for segment in found) - dirty)


class LogCleaner:
    """Cleans one log at a time."""

    def __init__(self, disk: Disk, *, wall_clock: Callable[[], int], max_keys: int = _DEFAULT_MAX_KEYS) -> None:
        self._disk = disk
        self._wall_clock = wall_clock
        self._max_keys = max_keys

    async def clean(self, log: PartitionLog, first_dirty_offset: int) -> int:
        """Make a pass; returns up to where the log is clean now. An ``OSError`` fails the log."""
        pass_ = _Pass(self._disk, log, self._wall_clock(), first_dirty_offset, self._max_keys)
        try:
            return await pass_.run()
        except CleaningAborted:
            return first_dirty_offset
        except CorruptRecord as error:
            _log.warning("%s is not cleaned: %s", log.directory, error)
            return first_dirty_offset
        except OSError as error:
            if not pass_.is_obsolete:
                log.mark_failed(error)
            return first_dirty_offset


class _Pass:
    """One pass over one log."""

    def __init__(self, disk: Disk, log: PartitionLog, now_ms: int, first_dirty_offset: int, max_keys: int) -> None:
        self._disk = disk
        self._log = log
        self._now_ms = now_ms
        self._first_dirty_offset = first_dirty_offset
        self._max_keys = max_keys
        self._generation = log.generation
        self._offsets: dict[bytes, int] = {}

    @property
    def is_obsolete(self) -> bool:
        return self._log.generation != self._generation or self._log.failed

    async def run(self) -> int:
        log = self._log
        cleanable = find_cleanable(log, self._first_dirty_offset, self._now_ms)
        if not cleanable.segments:
            return self._first_dirty_offset
        start = cleanable.segments[0].base_offset
        aborted = log.segments.aborted_transactions(start, cleanable.end_offset)
        segments, end_offset = await self._note_keys(cleanable, TransactionTracker(aborted))
        compaction = Compaction(
            offsets=self._offsets,
            transactions=TransactionTracker(aborted),
            last_offsets=last_offsets(log.active_producers()),
            first_dirty_offset=self._first_dirty_offset,
            end_offset=end_offset,
            remove_before_ms=self._now_ms - log.config.delete_retention_ms,
        )
        for group in group_segments(segments, end_offset, log.config.segment_bytes, log.config.segment_index_bytes):
            await self._clean_group(group, compaction)
        return end_offset

    # First walk

    async def _note_keys(self, cleanable: Cleanable, transactions: TransactionTracker) -> tuple[list[LogSegment], int]:
        """Note the keys of dirty segments, as many as fit in memory; returns what to clean, and where that ends."""
        ends = [segment.base_offset for segment in cleanable.segments[1:]] + [cleanable.end_offset]
        for slot, segment in enumerate(cleanable.segments):
            if ends[slot] <= self._first_dirty_offset:
                continue
            if slot and len(self._offsets) >= self._max_keys:
                return cleanable.segments[:slot], ends[slot - 1]
            await self._note_keys_of(segment, transactions)
        return cleanable.segments, cleanable.end_offset

    async def _note_keys_of(self, segment: LogSegment, transactions: TransactionTracker) -> None:
        async for buffer in self._chunks(segment):
            for count, (position, header) in enumerate(iter_batches(buffer), 1):
                if header.is_control:
                    transactions.end(header)
                elif not transactions.is_aborted(header):
                    self._note_keys_in(buffer, position, header)
                if count % _BATCHES_PER_SLICE == 0:
                    await self._pause()

    def _note_keys_in(self, buffer: bytes, position: int, header: BatchHeader) -> None:
        try:
            for record in iter_records(buffer, position, header, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES):
                if record.key is not None:
                    self._offsets[record.key] = record.offset
        except CorruptRecord as error:
            _log.warning("%s: the batch at offset %d is broken: %s", self._log.directory, header.base_offset, error)

    # Second walk

    async def _clean_group(self, group: list[LogSegment], compaction: Compaction) -> None:
        """Replace some segments by one."""
        cleaned = LogSegment(
            self._disk,
            self._log.directory,
            group[0].base_offset,
            self._log.config,
            now_ms=self._now_ms,
            name_suffix=CLEANED_SUFFIX,
        )
        try:
            cleaned.create()
            for segment in group:
                await self._clean_into(segment, cleaned, compaction)
            if len(group) == 1 and cleaned.size == group[0].size:
                self._remove(cleaned)  # There was nothing to do.
                return
            cleaned.note_largest_timestamp()
            await self._sync(cleaned)
            self._swap(group, cleaned)
        except BaseException:
            self._remove(cleaned)
            raise
        finally:
            cleaned.close()

    async def _clean_into(self, segment: LogSegment, cleaned: LogSegment, compaction: Compaction) -> None:
        compaction.retained_aborted.clear()
        async for buffer in self._chunks(segment):
            for count, (position, header) in enumerate(iter_batches(buffer), 1):
                retained = compaction.retain(buffer, position, header)
                if retained is not None:
                    self._append(cleaned, retained)
                if count % _BATCHES_PER_SLICE == 0:
                    await self._pause()
        for aborted in compaction.retained_aborted:
            cleaned.transaction_index.append(aborted)

    @staticmethod
    def _append(cleaned: LogSegment, batch: Buffer) -> None:
        header = read_header(batch)
        position = cleaned.size
        if not cleaned.append((batch,), header.size):
            raise OSError("short write")
        cleaned.note_batch(position, header.size, header.last_offset, header.max_timestamp)

    async def _sync(self, cleaned: LogSegment) -> None:
        indexes = cleaned.write_indexes()
        try:
            for file in (cleaned.file, *indexes):
                await file.sync_off_loop()
        finally:
            for file in indexes:
                file.close()
        self._check()

    def _swap(self, group: list[LogSegment], cleaned: LogSegment) -> None:
        """One step, as far as the log's users can see."""
        log, disk = self._log, self._disk
        final = LogSegment(disk, log.directory, cleaned.base_offset, log.config, now_ms=self._now_ms)
        renamed = [suffix for suffix in SEGMENT_SUFFIXES if disk.exists(cleaned.path(suffix))]
        for suffix in renamed:
            disk.rename(cleaned.path(suffix), final.path(suffix) + SWAP_SUFFIX)
        disk.sync_dir(log.directory)
        log.replace_segments(group, final, renamed)
        self._generation = log.generation
        _log.info("%s: %d segments became one of %d bytes", log.directory, len(group), final.size)

    def _remove(self, cleaned: LogSegment) -> None:
        cleaned.close()
        for path in cleaned.paths():
            if self._disk.exists(path):
                self._disk.remove(path)

    # Slices

    async def _chunks(self, segment: LogSegment) -> AsyncIterator[bytes]:
        """The segment's batches, some whole ones at a time."""
        position = 0
        while position < segment.size:
            buffer = await self._read(segment.file, min(_READ_BYTES, segment.size - position), position)
            needed = read_header(buffer).size if len(buffer) >= HEADER_SIZE else len(buffer) + 1
            if needed > len(buffer):
                buffer = await self._read(segment.file, needed, position)
                if len(buffer) < needed:
                    raise CorruptRecord(f"segment {segment.base_offset} ends inside a batch")
            yield buffer
            position += sum(header.size for _, header in iter_batches(buffer))

    async def _read(self, file: File, size: int, position: int) -> bytes:
        buffer = await file.read_at_off_loop(size, position)
        self._check()
        return buffer

    async def _pause(self) -> None:
        await asyncio.sleep(0)
        self._check()

    def _check(self) -> None:
        if self.is_obsolete:
            raise CleaningAborted


def group_segments(
    segments: list[LogSegment], end_offset: int, max_bytes: int, max_index_bytes: int
) -> list[list[LogSegment]]:
    """Neighbours that fit one segment together."""
    groups: list[list[LogSegment]] = []
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    size = index_size = 0
    for segment, end in zip(segments, ends, strict=True):
        size += segment.size
        index_size += segment.index_bytes
        if (
            groups
            and size <= max_bytes
            and index_size <= max_index_bytes
            and end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size, index_size = segment.size, segment.index_bytes
    return groups
