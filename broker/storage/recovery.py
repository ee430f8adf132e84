"""Loading a log from its directory, whatever state a crash left it in.

After a clean shutdown everything on disk is valid and little is read: the latest producer snapshot, and the end of the
last segment. After a crash all that lies below the recovery point is valid, because it was synced before that point
was recorded; the rest is derived from the batches again, one segment after the other:

* A batch is valid if it is whole, its CRC matches, its offsets follow those before, and its leader epoch is not older
  than that of the batch before. (The last two find pieces of an older history that a power loss brought back.)
* At the first invalid batch the log ends: the rest of the segment is cut off, later segments are removed. So are
  later segments that do not begin where the one before ends, unless the gap is one that compaction has left: it lies
  below the offset up to which the log has been cleaned, and so does the segment's base. Earlier releases and Apache
  Kafka note that offset only after a whole cleaning, and leave gaps beyond it when they are killed in between: in a
  compacted log every gap counts as compaction's unless the machine may have lost power (``machine_boot``).
* Offset, time and transaction indexes, producer state and leader epochs follow from the batches that are left.

An index that is missing or cannot be right is derived again as well, wherever it is. There is no state of a directory
that keeps the log from loading; only an ``OSError`` can.

A log that ends before the end that is known of it (``NotedLog.least_end``) has lost records, although every batch that
is left is valid: it was cut where a batch ends, or its files were removed. That is damage like a batch that is torn.

Producer snapshots beyond the recovery point are not trusted after a crash, with one exception: that at the base of the
first segment cannot be derived, because what it sums up has been deleted.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from logging import getLogger
from typing import Final, NamedTuple

from oncelog.broker.storage.batch_scan import ScannedBatch, scan_batches
from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.index_file import CorruptIndex
from oncelog.broker.storage.leader_epoch_cache import LeaderEpochFileCache
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    offset_of,
    offsets_with_suffix,
)
from oncelog.broker.storage.log_segment import LogSegment
from oncelog.broker.storage.producer_snapshots import ProducerSnapshots
from oncelog.broker.storage.producer_state import ProducerStateManager
from oncelog.protocol.records.record_batch import CorruptRecord, crc_is_valid

_log = getLogger(__name__)

_NO_LIMIT: Final = 2**63
_LEFTOVERS: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)


class NotedLog(NamedTuple):
    """What the data directory has noted of a log; the defaults are those of a new one."""

    recovery_point: int = 0
    log_start_offset: int = 0
    cleaned_offset: int = 0
    high_watermark: int = 0
    """The last that was checkpointed; 0 if none was."""
    clean_shutdown: bool = False
    """Whether the log was closed properly."""
    is_end_noted: bool = False
    """Whether the recovery point is the end that the log had when it was closed properly."""
    power_held: bool = False
    """Whether nothing says that the machine has stopped since the log was written."""

    @property
    def least_end(self) -> int:
        """The offset that the log end must have reached."""
        return max(self.high_watermark, self.recovery_point) if self.is_end_noted else self.high_watermark


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """A log as it was found, or made, on disk."""

    segments: list[LogSegment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    cleaned_offset: int
    producer_state: ProducerStateManager
    snapshots: ProducerSnapshots
    epochs: LeaderEpochFileCache


@dataclass(slots=True, kw_only=True)
class LogLoader:
    """Loads one log. Used once."""

    disk: Disk
    directory: str
    config: LogConfig
    wall_clock: Callable[[], int]
    producer_state: ProducerStateManager
    snapshots: ProducerSnapshots
    epochs: LeaderEpochFileCache
    noted: NotedLog
    on_damage: Callable[[str], None]
    """Called before anything damaged is cut off, with the reason."""
    _segments: list[LogSegment] = field(default_factory=list)
    _broken_indexes: set[int] = field(default_factory=set)
    """Base offsets of the segments that lack an index."""
    _epochs_known: bool = False

    def load(self) -> LoadedLog:
        finish_swaps(self.disk, self.directory)
        self._open_segments()
        self._distrust_snapshots()
        self._epochs_known = self.epochs.open()
        self._recover()
        end_offset = self._end_offset()
        self._check_end(self.noted.log_start_offset if end_offset is None else end_offset)
        if end_offset is not None and end_offset < self.noted.log_start_offset:
            _log.warning("Emptying %s: it ends at %d, before its log start offset", self.directory, end_offset)
            self.on_damage(f"{self.directory} ends before its log start offset")
            self._remove_from(0)
            end_offset = None
        if end_offset is None:
            end_offset = self._begin_empty()
        log_start_offset = max(self.noted.log_start_offset, self._segments[0].base_offset)
        self._settle_epochs(log_start_offset, end_offset)
        self.snapshots.remove(offset for offset in self.snapshots.offsets if offset > end_offset)
        self.snapshots.remove_strays(segment.base_offset for segment in self._segments)
        self._advance_producer_state(log_start_offset, end_offset)
        return LoadedLog(
            segments=self._segments,
            log_start_offset=log_start_offset,
            log_end_offset=end_offset,
            recovery_point=end_offset if self.noted.clean_shutdown else min(self.noted.recovery_point, end_offset),
            cleaned_offset=self._cleaned_offset(end_offset),
            producer_state=self.producer_state,
            snapshots=self.snapshots,
            epochs=self.epochs,
        )

    def _open_segments(self) -> None:
        names = frozenset(self.disk.list_dir(self.directory))
        for name in sorted(names):
            if name.endswith(INDEX_SUFFIXES) and f"{name.partition('.')[0]}{LOG_SUFFIX}" not in names:
                self.disk.remove(f"{self.directory}/{name}")
        now_ms = self.wall_clock()
        for base_offset in offsets_with_suffix(sorted(names), LOG_SUFFIX):
            segment = LogSegment(self.disk, self.directory, base_offset, self.config, now_ms=now_ms)
            try:
                segment.open(names)
            except CorruptIndex as error:
                self._broken_indexes.add(base_offset)
                if self.noted.clean_shutdown or base_offset < self.noted.recovery_point:
                    _log.warning("Rebuilding the indexes of %s/%020d: %s", self.directory, base_offset, error)
            self._segments.append(segment)

    def _distrust_snapshots(self) -> None:
        self.snapshots.open()
        if not self.noted.clean_shutdown:
            trusted = max(self.noted.recovery_point, self._segments[0].base_offset if self._segments else 0)
            self.snapshots.remove(offset for offset in self.snapshots.offsets if offset > trusted)

    # Recovery

    def _recover(self) -> None:
        first_unflushed = self._first_unflushed_slot()
        for segment in self._segments[first_unflushed : first_unflushed + 1]:
            self.epochs.truncate_from_end(segment.base_offset)  # The file may be about batches that did not survive.
        for slot, segment in enumerate(self._segments):
            if slot < first_unflushed and segment.base_offset not in self._broken_indexes:
                continue
            if slot > first_unflushed and not self._may_begin_at(segment.base_offset):
                _log.warning(
                    "%s: removing segment %d and all that follow: the segment before ends at %d",
                    self.directory,
                    segment.base_offset,
                    self.producer_state.map_end_offset,
                )
                self.on_damage(f"segments of {self.directory} are missing")
                self._remove_from(slot)
                return
            self._advance_producer_state(self._start_of(slot), segment.base_offset)
            if not self._recover_segment(segment, self._limit_of(slot)) and slot >= first_unflushed:
                self._remove_from(slot + 1)
                return

    def _first_unflushed_slot(self) -> int:
        """Return the position of the segment that contains the recovery point; after a clean shutdown, of none."""
        if self.noted.clean_shutdown:
            return len(self._segments)
        for slot, (_, following) in enumerate(pairwise(self._segments)):
            if following.base_offset > self.noted.recovery_point:
                return slot
        return max(0, len(self._segments) - 1)

    def _may_begin_at(self, base_offset: int) -> bool:
        """Return whether a segment may begin there: at the end of the one before, or after a gap of compaction."""
        end_offset = self.producer_state.map_end_offset
        if base_offset == end_offset:
            return True
        return end_offset < base_offset and (base_offset <= self.noted.cleaned_offset or self._may_have_unnoted_gaps())

    def _may_have_unnoted_gaps(self) -> bool:
        """Return whether a killed cleaning may have left gaps. It may if the topic's clean-up policy is not known."""
        may_compact = self.config.compacts or not self.config.deletes or self.noted.cleaned_offset > 0
        return may_compact and self.noted.power_held

    def _limit_of(self, slot: int) -> int:
        """Return the base offset of the next segment."""
        return self._segments[slot + 1].base_offset if slot + 1 < len(self._segments) else _NO_LIMIT

    def _recover_segment(self, segment: LogSegment, limit: int) -> bool:
        """Derive everything from the segment's batches; False if it had to be cut for what it contains.

        Batches at or beyond ``limit`` are cut off as well: they had been truncated when the next segment was begun.
        """
        segment.reset_indexes()
        state = self.producer_state
        valid_size, epoch, next_offset = 0, self._epoch_before(segment), segment.base_offset
        is_whole = True
        try:
            for batch in segment.scan():
                header = batch.header
                if header.base_offset >= limit:
                    break
                if not crc_is_valid(batch.buffer, batch.at, header):
                    raise CorruptRecord("the CRC does not match")
                if header.base_offset < next_offset or header.last_offset_delta < 0:
                    raise CorruptRecord(f"offset {header.base_offset} where {next_offset} is the least possible")
                if header.last_offset > segment.max_offset:
                    raise CorruptRecord(f"offset {header.last_offset} is too far from the segment's base")
                if 0 <= header.partition_leader_epoch < epoch:
                    raise CorruptRecord(f"leader epoch {header.partition_leader_epoch} after {epoch}")
                epoch = max(epoch, header.partition_leader_epoch)
                next_offset = header.next_offset
                segment.note_batch(valid_size, header.size, header.last_offset, header.max_timestamp)
                valid_size += header.size
                self.epochs.learn(header.partition_leader_epoch, header.base_offset)
                self._replay(batch, segment)
        except CorruptRecord as error:
            _log.warning(
                "%s: cutting segment %d at byte %d: %s", self.directory, segment.base_offset, valid_size, error
            )
            is_whole = next_offset == limit  # Then it is what was cut off before, too.
            if not is_whole:
                self.on_damage(f"{self.directory}: segment {segment.base_offset}: {error}")
        state.map_end_offset = next_offset
        segment.note_largest_timestamp()
        if valid_size < segment.size:
            segment.cut(valid_size)
            segment.file.sync()  # What was cut off must not come back under what will be written there.
        return is_whole

    def _replay(self, batch: ScannedBatch, segment: LogSegment) -> None:
        """Replay a batch; of deleted ones only those of known producers: they may end an open transaction."""
        state, header = self.producer_state, batch.header
        if header.next_offset > self.noted.log_start_offset or header.producer_id in state.producers:
            state.replay(batch, segment.indexes.transactions)

    def _epoch_before(self, segment: LogSegment) -> int:
        epoch = self.epochs.epoch_for_offset(segment.base_offset - 1) if self._epochs_known else None
        return -1 if epoch is None else epoch

    def _remove_from(self, slot: int) -> None:
        """Remove segments; nothing of them may come back once the log has grown over their offsets again."""
        removed = self._segments[slot:]
        del self._segments[slot:]
        for segment in removed:
            segment.close()
            for path in segment.paths():
                if self.disk.exists(path):
                    self.disk.remove(path)
        if removed:
            self.disk.sync_dir(self.directory)

    # The end

    def _end_offset(self) -> int | None:
        """Return the log end offset; None if there are no segments."""
        if not self._segments:
            return None
        active = self._segments[-1]
        try:
            return active.prepare_appends()
        except (CorruptRecord, CorruptIndex):
            # A clean shutdown, yet the end cannot be read: another program changed the file. Treat it as a crash.
            _log.warning("%s: recovering the last segment, which is damaged", self.directory)
            self._advance_producer_state(self._start_of(len(self._segments) - 1), active.base_offset)
            self._recover_segment(active, _NO_LIMIT)
            return active.prepare_appends()

    def _check_end(self, end_offset: int) -> None:
        """Report a log that has lost its end. It has nothing that could be cut off."""
        least_end = self.noted.least_end
        if end_offset < least_end:
            lost = f"{self.directory} ends at offset {end_offset}, before offset {least_end}, which it had reached"
            _log.warning("%s: acknowledged records may be missing", lost)
            self.on_damage(lost)

    def _cleaned_offset(self, end_offset: int) -> int:
        """Return the offset up to which the log is cleaned; 0 if the checkpoint lies beyond the log's end."""
        if self.noted.cleaned_offset <= end_offset:
            return min(self.noted.cleaned_offset, self._segments[-1].base_offset)
        _log.warning(
            "%s ends at %d, before its cleaner checkpoint %d: it will be cleaned from its start",
            self.directory,
            end_offset,
            self.noted.cleaned_offset,
        )
        return 0

    def _begin_empty(self) -> int:
        """Make the first segment of a log that has none."""
        segment = LogSegment(
            self.disk, self.directory, self.noted.log_start_offset, self.config, now_ms=self.wall_clock()
        )
        segment.create()
        if self.noted.least_end > self.noted.log_start_offset:
            # The log was lost and is copied anew. Without this segment, a loss of power soon after would leave a log
            # that begins later, as if retention had deleted what it lacks.
            self.disk.sync_dir(self.directory)
        self._segments.append(segment)
        self.epochs.clear()
        self.producer_state.clear(self.noted.log_start_offset)
        self.snapshots.clear()
        return self.noted.log_start_offset

    def _settle_epochs(self, log_start_offset: int, end_offset: int) -> None:
        was_read = self._first_unflushed_slot() == 0
        if not self._epochs_known and not was_read and end_offset > self._segments[0].base_offset:
            _log.warning(
                "%s: reading the leader epochs from all batches: leader-epoch-checkpoint is missing or unusable",
                self.directory,
            )
            self.epochs.truncate_from_end(0)
            for segment in self._segments:
                for batch in segment.scan():
                    self.epochs.learn(batch.header.partition_leader_epoch, batch.header.base_offset)
        self.epochs.truncate_from_end(end_offset)
        self.epochs.truncate_from_start(log_start_offset)
        self.epochs.unsynced |= not self.noted.clean_shutdown

    def _start_of(self, slot: int) -> int:
        """Return the log start offset as far as it is known before the segments from ``slot`` on are recovered."""
        first = self._segments[0].base_offset if self._segments else 0
        return min(max(self.noted.log_start_offset, first), self._segments[slot].base_offset)

    def _advance_producer_state(self, log_start_offset: int, end_offset: int) -> None:
        advance_producer_state(self.producer_state, self.snapshots, self._segments, log_start_offset, end_offset)


def advance_producer_state(
    state: ProducerStateManager,
    snapshots: ProducerSnapshots,
    segments: list[LogSegment],
    log_start_offset: int,
    end_offset: int,
) -> None:
    """Bring the state to ``end_offset``: from the best snapshot, or from where it is if that is closer."""
    best = max((offset for offset in snapshots.offsets if log_start_offset <= offset <= end_offset), default=-1)
    if not max(best, log_start_offset) <= state.map_end_offset <= end_offset:
        snapshots.restore(state, log_start_offset, end_offset)
    for slot, segment in enumerate(segments):
        following = segments[slot + 1].base_offset if slot + 1 < len(segments) else end_offset
        if state.map_end_offset >= following or segment.base_offset >= end_offset:
            continue
        for batch in segment.scan_from(state.map_end_offset):
            if batch.header.base_offset >= end_offset:
                break
            state.replay(batch, None)
    state.map_end_offset = end_offset


def finish_swaps(disk: Disk, directory: str) -> None:
    """Remove what was temporary, and finish the replacement of segments by cleaned ones that a crash interrupted.

    ``.cleaned`` files may be incomplete: they go, and with them ``.swap`` files of the same or a higher base offset.
    Other ``.swap`` files are complete and synced: the segments whose offsets they cover go, and they take their names.
    """
    names = disk.list_dir(directory)
    least_cleaned = min((offset_of(name) or 0 for name in names if name.endswith(CLEANED_SUFFIX)), default=None)
    swaps: list[str] = []
    for name in names:
        if name.endswith(_LEFTOVERS):
            disk.remove(f"{directory}/{name}")
        elif name.endswith(SWAP_SUFFIX):
            if least_cleaned is not None and (offset_of(name) or 0) >= least_cleaned:
                disk.remove(f"{directory}/{name}")
            else:
                swaps.append(name)
    logs = [name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    if logs:
        _remove_replaced(disk, directory, logs)
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    if swaps:
        disk.sync_dir(directory)


def _next_offset(disk: Disk, path: str) -> int:
    """Return the offset behind the last batch of a segment's file."""
    file = disk.open(path)
    end = offset_of(path.rpartition("/")[2]) or 0
    try:
        for batch in scan_batches(file, file.size()):
            end = batch.header.next_offset
    except CorruptRecord:
        _log.warning("%s is damaged", path)
    finally:
        file.close()
    return end


def _remove_replaced(disk: Disk, directory: str, swap_logs: list[str]) -> None:
    bases = [offset_of(name) or 0 for name in swap_logs]
    covered_end = max(_next_offset(disk, f"{directory}/{name}") for name in swap_logs)
    for name in disk.list_dir(directory):
        offset = offset_of(name)
        if offset is not None and min(bases) <= offset < covered_end and not name.endswith(SWAP_SUFFIX):
            if name.endswith((LOG_SUFFIX, *INDEX_SUFFIXES)):
                disk.remove(f"{directory}/{name}")
