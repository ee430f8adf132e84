"""``LocalLog``: the segments of one partition on disk, between the log start offset and the log end offset.

It knows batches and files, not producers, watermarks or leadership: those are ``PartitionLog``'s.

What ``read`` finds in memory it returns; else it returns a ``ColdRead``, to be awaited with ``read_cold``. Reads take
whole batches from the one that contains the offset on (the last one may be cut off), so a fetch that begins inside a
batch skips nothing.

Two offsets say what would survive a power loss:

* ``flushed_offset``: the batches below are on the medium. With flush.messages=1 it bounds the high watermark.
* ``recovery_point``: so is everything that belongs to them (indexes, snapshots, epochs, names). It moves when closed
  segments have been flushed and when the log is closed. Recovery begins there.
"""

from collections.abc import Callable
from logging import getLogger
from typing import NamedTuple

from oncelog.broker.storage.disk_errors import failing_unless_transient, is_transient
from oncelog.broker.storage.flush_state import FlushPlan, FlushState
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_files import DELETED_SUFFIX, LOG_SUFFIX
from oncelog.broker.storage.log_host import LogHost
from oncelog.broker.storage.log_segment import LogSegment
from oncelog.broker.storage.log_segments import LogSegments
from oncelog.broker.storage.recovery import LoadedLog
from oncelog.broker.storage.segment_read import ShortRead
from oncelog.broker.storage.timestamp_search import FoundOffset, Search, find_by_timestamp, find_max_timestamp
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import CorruptRecord
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.schema import Buffer
from oncelog.protocol.topic_partition import TopicPartition

_log = getLogger(__name__)


class FetchedRecords(NamedTuple):
    """What a read found: whole batches, the last of which may be cut off."""

    records: Buffer
    next_offset: int
    """All of them are below; there may be more below that are not among them."""


class ColdRead(NamedTuple):
    """A read whose data is not in memory."""

    start_offset: int
    size: int
    """At most."""
    upper_offset: int
    min_one_batch: bool


class LocalLog:
    """The offsets and contents of one log. Attributes are for reading; only methods change them."""

    def __init__(
        self, host: LogHost, directory: str, topic_partition: TopicPartition, config: LogConfig, loaded: LoadedLog
    ) -> None:
        self._disk = host.disk
        self._space = host.space
        self._wall_clock = host.wall_clock
        self._rng = host.rng
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.segments = LogSegments(loaded.segments)
        self.epochs = loaded.epochs
        self.snapshots = loaded.snapshots
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.flush_state = FlushState(host.disk, directory, loaded.recovery_point)
        self.garbage: list[str] = []
        """Paths of files that are no longer part of the log. ``LogMaintenance`` takes them from here."""
        self.failed = False
        self.failure: OSError | None = None
        self.flush_shortage: OSError | None = None
        """The transient error of the last flush of closed segments; None if that succeeded."""
        self.on_failure: Callable[[LocalLog], None] = _nothing
        """Called once, when the log fails."""
        self.generation = 0
        """Incremented when segments are removed, or when offsets get other records."""
        self.is_taken_away = False
        """Whether its directory was renamed: what is still under way may fail, which is no failure of the log."""

    # Reading

    def read(
        self, start_offset: int, max_bytes: int, *, upper_offset: int, min_one_batch: bool = True
    ) -> FetchedRecords | ColdRead | ErrorCode:
        """Return the batches from the one that contains ``start_offset`` on that begin below ``upper_offset``.

        At most ``max_bytes``, but with ``min_one_batch`` the first batch whatever its size.
        Errors: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        if self.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        log_end_offset = self.log_end_offset
        if not self.log_start_offset <= start_offset <= log_end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        upper_offset = min(upper_offset, log_end_offset)
        steps = self.segments.read(start_offset, max_bytes, upper_offset, log_end_offset, min_one_batch)
        try:
            request = next(steps)
            while True:
                data = request.file.try_read_at(request.size, request.position)
                if data is None:
                    return ColdRead(start_offset, max_bytes, upper_offset, min_one_batch)
                request = steps.send(data)
        except StopIteration as stop:
            return FetchedRecords(*stop.value)
        except ShortRead:
            return ColdRead(start_offset, max_bytes, upper_offset, min_one_batch)
        except OSError as error:
            self.note_error(error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        except CorruptRecord as error:
            return self._damaged(start_offset, error)

    async def read_cold(self, cold: ColdRead) -> FetchedRecords | ErrorCode:
        """Return what ``read`` would, off the loop. Begin again if the log is truncated meanwhile."""
        while True:
            generation = self.generation
            if self.failed:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if not self.log_start_offset <= cold.start_offset <= self.log_end_offset:
                return ErrorCode.OFFSET_OUT_OF_RANGE
            try:
                result: FetchedRecords | ErrorCode = await self._read_off_loop(cold)
            except OSError as error:
                if generation == self.generation:
                    self.note_error(error)
                    return ErrorCode.KAFKA_STORAGE_ERROR
            except (CorruptRecord, ShortRead) as error:
                if generation == self.generation:
                    return self._damaged(cold.start_offset, error)
            else:
                if generation == self.generation:
                    return result

    async def _read_off_loop(self, cold: ColdRead) -> FetchedRecords:
        end_offset = self.log_end_offset
        upper_offset = min(cold.upper_offset, end_offset)
        steps = self.segments.read(cold.start_offset, cold.size, upper_offset, end_offset, cold.min_one_batch)
        try:
            request = next(steps)
            while True:
                request = steps.send(await request.file.read_at_off_loop(request.size, request.position))
        except StopIteration as stop:
            return FetchedRecords(*stop.value)

    def _damaged(self, start_offset: int, error: Exception) -> ErrorCode:
        """Report that the file has no batch where the log should; the rest of the log can be read."""
        _log.error("%s cannot be read at offset %d: %s", self.directory, start_offset, error)
        return ErrorCode.CORRUPT_MESSAGE

    def aborted_transactions(self, start_offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of the aborted transactions that overlap [start, upper)."""
        return [
            (aborted.producer_id, aborted.first_offset)
            for aborted in self.segments.aborted_transactions(start_offset, upper_offset)
        ]

    def size_between(self, start_offset: int, end_offset: int) -> int:
        """Estimate the bytes between two offsets; not 0 if there are any records."""
        if end_offset <= start_offset:
            return 0
        if end_offset >= self.log_end_offset:
            active = self.segments.active
            if start_offset >= active.base_offset:
                return max(1, active.size - active.indexes.offset.lookup(start_offset))
        return max(1, self.segments.size_between(start_offset, end_offset))

    def offset_for_timestamp(self, timestamp: int, budget: WorkBudget) -> Search:
        """Search for the first record that is not older."""
        return self._search(lambda: find_by_timestamp(self.segments, timestamp, self.log_start_offset, budget))

    def max_timestamp_offset(self, budget: WorkBudget) -> Search:
        """Search for the first record with the largest timestamp."""
        return self._search(lambda: find_max_timestamp(self.segments, budget))

    def _search(self, new_search: Callable[[], Search]) -> Search:
        """Carry out a search, and begin it again if the log loses segments in one of its pauses."""
        while not self.failed:
            generation, search, data = self.generation, new_search(), None
            try:
                while generation == self.generation:
                    request = search.send(data)
                    data = yield request
            except StopIteration as stop:
                found: FoundOffset | None = stop.value
                return found
            except OSError as error:
                if generation == self.generation:
                    self.note_error(error)
                    return None
            except CorruptRecord as error:
                if generation == self.generation:
                    self._damaged(self.log_start_offset, error)
                    return None
        return None

    # Segments

    @property
    def size(self) -> int:
        """Return the bytes of all segments."""
        return self.segments.size

    def create_segment(self, base_offset: int, *, name_suffix: str = "") -> LogSegment:
        """Create an empty segment, which is not part of the log yet. Raise ``OSError``."""
        jitter_ms = self.config.segment_jitter_ms
        segment = LogSegment(
            self._disk,
            self.directory,
            base_offset,
            self.config,
            now_ms=self._wall_clock(),
            jitter_ms=self._rng.randrange(jitter_ms) if self._rng is not None and jitter_ms > 0 else 0,
            name_suffix=name_suffix,
        )
        segment.create()
        self.flush_state.names_changed()
        return segment

    def discard(self, segments: list[LogSegment]) -> None:
        """Rename the files of segments that are no longer part of the log. Reads under way have them open."""
        self.generation += 1
        for segment in segments:
            segment.close()
            for path in segment.paths():
                if self._disk.exists(path):
                    self._disk.rename(path, path + DELETED_SUFFIX)
                    self.garbage.append(path + DELETED_SUFFIX)
        self.flush_state.names_changed()

    def release(self) -> None:
        """Close the files."""
        self.generation += 1
        for segment in self.segments:
            segment.close()

    def release_idle(self) -> None:
        """Release memory and files of the closed segments that were not read since the last call."""
        for segment in self.segments.closed:
            if segment.base_offset < self.recovery_point:
                segment.release_if_idle()

    def update_config(self, config: LogConfig) -> None:
        """Apply other settings of the topic."""
        self.config = config
        for segment in self.segments:
            segment.update_config(config)

    # Flushing

    @property
    def flushed_offset(self) -> int:
        """Return the offset below which the batches are on the medium."""
        return self.flush_state.flushed_offset

    @property
    def recovery_point(self) -> int:
        """Return the offset below which the batches and all that belongs to them are on the medium."""
        return self.flush_state.recovery_point

    async def flush_off_loop(self) -> None:
        """Sync the batches that the log has now."""
        if self.failed:
            return
        try:
            files = [segment.file.dup() for segment in self.segments.from_offset(self.flushed_offset)]
            plan = self.flush_state.plan(self.log_end_offset)
            plan.files += files
            await self.flush_state.carry_out_off_loop(plan)
        except OSError as error:  # If records count only when they are flushed, none can be written meanwhile.
            self.note_error(error, of_write=self.config.flush_interval_messages == 1)
            await self.flush_state.back_off()

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether ``flush_closed_segments_off_loop`` has something to do."""
        return self.recovery_point < self.segments.active.base_offset

    async def flush_closed_segments_off_loop(self) -> None:
        """Sync the closed segments and all that belongs to them, so that recovery need not read them."""
        if self.failed or not self.has_unflushed_segments:
            return
        try:
            await self.snapshots.encode_frozen()
            if self.failed:
                return
            await self.flush_state.carry_out_off_loop(self.plan_full_flush(self.segments.active.base_offset))
            self.flush_shortage = None
        except OSError as error:
            self.note_error(error)
            self.flush_shortage = None if self.failed else error

    def flush(self) -> None:
        """Sync everything, here and now. Raise a transient ``OSError``: then it is still to be synced."""
        if self.failed:
            return
        with failing_unless_transient(self.mark_failed):
            self.segments.active.note_largest_timestamp()  # It may be rolled without another append.
            self.flush_state.carry_out(self.plan_full_flush(self.log_end_offset))

    def plan_full_flush(self, end_offset: int) -> FlushPlan:
        """Return a flush of the segments below an offset that ends one, and of what is needed to trust them."""
        self.snapshots.write_frozen(self.flush_state.written)
        return self.flush_state.plan_full(end_offset, self.epochs, self.segments)

    # Failing

    def note_error(self, error: OSError, *, of_write: bool = False) -> None:
        """Note that an operation failed and left the log as it was: the log has failed, unless the error passes.

        ``of_write``: nothing can be appended, or nothing that counts. If that lasts for want of descriptors, another
        broker must lead the log.
        """
        if self.is_taken_away:
            return
        if is_transient(error):
            self._space.note(error, self.directory)
            if of_write:
                self._space.files.note(error, self.topic_partition, self.segments.active.path(LOG_SUFFIX))
        else:
            self.mark_failed(error)

    def mark_failed(self, error: OSError) -> None:
        """Stop appending, reading and acknowledging, and report the failure."""
        if self.failure is not None:
            return
        self.failed = True
        self.failure = error
        _log.error("The log in %s failed: %s", self.directory, error)
        self.on_failure(self)


def _nothing(log: LocalLog) -> None:
    """Ignore the failure."""
