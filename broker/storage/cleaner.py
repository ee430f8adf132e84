"""``LogCleaner``: compacts logs, so that they keep the last value of each key.

A pass has two walks. The first goes over the *dirty* segments (those that no pass has seen) and notes the last offset
of each key. The second goes over all closed segments before the same end and writes what ``compaction.Compaction``
retains into new segments, which then take the places of the old ones:

1. ``X.log.cleaned`` and its indexes are written and synced. A crash leaves them behind; loading removes them.
2. They are renamed to ``.swap``, and the names are synced. From here on a crash completes the replacement.
3. The old segments' files become ``.deleted``, and the ``.swap`` files take their names.

Small neighbours are merged as long as size and offsets fit one segment. Each segment that is written ends with a batch,
empty if need be, so that a recovery finds no gap between it and the next.

The CRC of every batch is checked before anything is concluded from it or written after it: what is corrupt must never
get a CRC that says otherwise. A log in which a batch is corrupt, or whose cleaning raises an unexpected exception,
is *uncleanable* until the broker is restarted, as in Kafka; other logs are still cleaned.

Reading is off the loop, and the work is done in slices between which the loop runs. A pass is aborted without effect
when the log loses segments meanwhile (truncation, retention, deletion) or is no longer to be compacted.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from logging import getLogger
from typing import Final, TypeVar

from oncelog.broker.process.containment import Containment
from oncelog.broker.storage.cleanable import Cleanable, find_cleanable
from oncelog.broker.storage.cleaning_figures import CleaningFigures
from oncelog.broker.storage.compaction import Compaction, TransactionTracker, last_offsets, latest_offsets
from oncelog.broker.storage.disk import Disk, File
from oncelog.broker.storage.disk_errors import OUT_OF_DESCRIPTORS, is_transient
from oncelog.broker.storage.log_files import CLEANED_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX
from oncelog.broker.storage.log_segment import LogSegment
from oncelog.broker.storage.offset_index import MAX_RELATIVE_OFFSET
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.protocol.records.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    CorruptRecord,
    crc_is_valid,
    iter_batches,
    read_header,
)
from oncelog.protocol.schema import Buffer

_READ_BYTES: Final = 256 << 10
_BATCHES_PER_SLICE: Final = 16
_DEFAULT_MAX_KEYS: Final = 1_000_000

_log = getLogger(__name__)
_T = TypeVar("_T")


class CleaningAborted(Exception):
    """The log changed under the pass."""


class LogCleaner:
    """Cleans one log at a time."""

    def __init__(
        self,
        disk: Disk,
        *,
        wall_clock: Callable[[], int],
        max_keys: int = _DEFAULT_MAX_KEYS,
        figures: CleaningFigures | None = None,
    ) -> None:
        """Note in ``figures`` what is measured; None: in figures of its own."""
        self.figures = figures or CleaningFigures()
        self._disk = disk
        self._wall_clock = wall_clock
        self._max_keys = max_keys

    async def clean(self, log: PartitionLog) -> bool:
        """Make a pass. Return whether the log's cleaned offset has advanced.

        An ``OSError`` fails the log, unless it passes (a full disk) and nothing of the log was touched: that one is
        kept as ``log.cleaning_shortage``. Anything else makes the log uncleanable.
        """
        log.cleaning_shortage = None
        pass_ = _Pass(self._disk, log, self._wall_clock(), self._max_keys)
        end_offset: int | None = None
        began = asyncio.get_running_loop().time()
        with Containment(lambda error: None if pass_.is_obsolete else set_aside(log, error)):
            end_offset = await _run(pass_, log)
        self.figures.pass_seconds = asyncio.get_running_loop().time() - began
        pass_.measure(self.figures)
        if end_offset is None or end_offset <= log.cleaned_offset:
            return False
        log.cleaned_offset = end_offset
        return True


async def _run(pass_: "_Pass", log: PartitionLog) -> int | None:
    """Return where a pass ended; None if it was aborted or met an ``OSError``."""
    try:
        return await pass_.run()
    except CleaningAborted:
        pass
    except OSError as error:
        if is_transient(error):
            log.cleaning_shortage = error
        elif not pass_.is_obsolete:
            log.mark_failed(error)
    return None


def set_aside(log: PartitionLog, error: Exception) -> None:
    """Note that a log cannot be cleaned, for a reason that another pass would find again."""
    log.uncleanable = True
    unforeseen = None if isinstance(error, CorruptRecord) else error
    reason = f"{type(error).__name__}: {error}" if unforeseen else error
    _log.error("%s is not cleaned until the broker is restarted: %s", log.directory, reason, exc_info=unforeseen)


class _Pass:
    """One pass over one log."""

    def __init__(self, disk: Disk, log: PartitionLog, now_ms: int, max_keys: int) -> None:
        self._disk = disk
        self._log = log
        self._now_ms = now_ms
        self._first_dirty_offset = log.cleaned_offset
        self._max_keys = max_keys
        self._generation = log.generation
        self._offsets: dict[bytes, int] = {}
        self._bytes_read = self._bytes_kept = 0

    def measure(self, figures: CleaningFigures) -> None:
        """Note what the pass has done."""
        figures.buffer_utilization = len(self._offsets) / self._max_keys
        if self._bytes_read:
            figures.recopied_ratio = self._bytes_kept / self._bytes_read

    @property
    def is_obsolete(self) -> bool:
        log = self._log
        return log.generation != self._generation or log.failed or not log.config.compacts

    async def run(self) -> int:
        """Clean what can be cleaned. Return the offset at which that ends."""
        log = self._log
        cleanable = find_cleanable(log, self._now_ms)
        if not cleanable.segments:
            return self._first_dirty_offset
        start = cleanable.segments[0].base_offset
        aborted = log.segments.aborted_transactions(start, cleanable.end_offset)
        segments, end_offset = await self._note_keys(cleanable, TransactionTracker(aborted))
        compaction = Compaction(
            offsets=self._offsets,
            transactions=TransactionTracker(aborted),
            last_offsets=last_offsets(log.producer_state.producers.values()),
            now_ms=self._now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
        )
        for group in group_segments(segments, end_offset, log.config.segment_bytes, log.config.segment_index_bytes):
            compaction.segment_end_offset = self._end_of(group)
            await self._clean_group(group, compaction)
        return end_offset

    def _end_of(self, group: list[LogSegment]) -> int:
        segments = list(self._log.segments)
        return segments[segments.index(group[-1]) + 1].base_offset

    # First walk

    async def _note_keys(self, cleanable: Cleanable, transactions: TransactionTracker) -> tuple[list[LogSegment], int]:
        """Note the keys of dirty segments, as many as fit in memory. Return the segments to clean and their end."""
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
            for count, (position, header) in enumerate(_checked_batches(buffer), 1):
                if header.is_control:
                    transactions.end(header)
                elif not transactions.is_aborted(header):
                    await self._note_keys_in(buffer, position, header)
                if count % _BATCHES_PER_SLICE == 0:
                    await self._pause()

    async def _note_keys_in(self, buffer: bytes, position: int, header: BatchHeader) -> None:
        try:
            self._offsets.update(await self._in_steps(latest_offsets(buffer, position, header)))
        except CorruptRecord as error:
            _log.warning(
                "%s: the batch at offset %d cannot be decoded: %s", self._log.directory, header.base_offset, error
            )

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
        changes = False
        try:
            cleaned.create()
            for segment in group:
                self._bytes_read += segment.size
                changes |= await self._clean_into(segment, cleaned, compaction)
            self._bytes_kept += cleaned.size
            if len(group) == 1 and not changes:
                return  # There was nothing to do.
            cleaned.note_largest_timestamp()
            await self._sync(cleaned)
            self._swap(group, cleaned)
        finally:
            self._remove(cleaned)  # What has not been renamed.

    async def _clean_into(self, segment: LogSegment, cleaned: LogSegment, compaction: Compaction) -> bool:
        """Append what is retained of a segment. Return whether that differs from the segment."""
        changes = False
        async for buffer in self._chunks(segment):
            for count, (position, header) in enumerate(_checked_batches(buffer), 1):
                retained = await self._in_steps(compaction.retain(buffer, position, header))
                if retained is not None:
                    changes |= self._append(cleaned, retained) != header
                else:
                    changes = True
                if count % _BATCHES_PER_SLICE == 0:
                    await self._pause()
        for aborted in compaction.retained_aborted:
            cleaned.indexes.transactions.append(aborted)
        compaction.retained_aborted.clear()
        return changes

    @staticmethod
    def _append(cleaned: LogSegment, batch: Buffer) -> BatchHeader:
        header = read_header(batch)
        position = cleaned.size
        cleaned.append((batch,), header.size)
        cleaned.note_batch(position, header.size, header.last_offset, header.max_timestamp)
        return header

    async def _sync(self, cleaned: LogSegment) -> None:
        indexes = cleaned.indexes.write()
        try:
            for file in (cleaned.file, *indexes):
                await file.sync_off_loop()
        finally:
            for file in indexes:
                file.close()
        self._check()

    def _swap(self, group: list[LogSegment], cleaned: LogSegment) -> None:
        """Put a cleaned segment in the place of others, in one step for readers.

        An ``OSError`` fails the log, unless no file can be opened before the others are replaced: that one is raised.
        """
        log, disk = self._log, self._disk
        final = LogSegment(
            disk, log.directory, cleaned.base_offset, log.config, now_ms=self._now_ms, name_suffix=SWAP_SUFFIX
        )
        renamed = {cleaned.path(each): final.path(each) for each in SEGMENT_SUFFIXES if disk.exists(cleaned.path(each))}
        try:
            for source, target in renamed.items():
                disk.rename(source, target)
            try:
                disk.sync_dir(log.directory)
                final.open(frozenset(path.rpartition("/")[2] for path in renamed.values()))
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    for source, target in renamed.items():
                        disk.rename(target, source)
                raise
            log.replace_segments(group, final)
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                raise
            log.mark_failed(error)
            raise CleaningAborted from error
        self._generation = log.generation
        _log.info("%s: cleaned %d segments into one of %d bytes", log.directory, len(group), final.size)

    def _remove(self, cleaned: LogSegment) -> None:
        cleaned.close()
        for path in cleaned.paths():
            if self._disk.exists(path):
                self._disk.remove(path)

    # Slices

    async def _chunks(self, segment: LogSegment) -> AsyncIterator[bytes]:
        """Read the segment, some whole batches at a time."""
        position = 0
        while position < segment.size:
            buffer = await self._read(segment.file, min(_READ_BYTES, segment.size - position), position)
            needed = read_header(buffer).size if len(buffer) >= HEADER_SIZE else HEADER_SIZE
            if needed > len(buffer):
                if needed <= segment.size - position:
                    buffer = await self._read(segment.file, needed, position)
                if len(buffer) < needed:
                    raise CorruptRecord(f"segment {segment.base_offset} ends inside the batch at byte {position}")
            yield buffer
            position += sum(header.size for _, header in iter_batches(buffer))

    async def _read(self, file: File, size: int, position: int) -> bytes:
        buffer = await file.read_at_off_loop(size, position)
        self._check()
        return buffer

    async def _in_steps(self, work: Generator[None, None, _T]) -> _T:
        """Do work on a batch, and let others run between its steps."""
        while True:
            try:
                next(work)
            except StopIteration as stop:
                result: _T = stop.value
                return result
            await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(0)
        self._check()

    def _check(self) -> None:
        if self.is_obsolete:
            raise CleaningAborted


def _checked_batches(buffer: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yield positions and headers of the batches. Raise ``CorruptRecord`` at the first whose CRC does not match."""
    for position, header in iter_batches(buffer):
        if not crc_is_valid(buffer, position, header):
            raise CorruptRecord(f"the CRC of the batch at offset {header.base_offset} does not match")
        yield position, header


def group_segments(
    segments: list[LogSegment], end_offset: int, max_bytes: int, max_index_bytes: int
) -> list[list[LogSegment]]:
    """Group neighbouring segments that fit one segment together."""
    groups: list[list[LogSegment]] = []
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    size = index_size = 0
    for segment, end in zip(segments, ends, strict=True):
        size += segment.size
        index_size += segment.indexes.sparse_bytes
        if (
            groups
            and size <= max_bytes
            and index_size <= max_index_bytes
            and end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size, index_size = segment.size, segment.indexes.sparse_bytes
    return groups
