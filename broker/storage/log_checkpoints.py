"""``LogCheckpoints``: the offsets of all logs that a data directory keeps in files of its own.

A checkpoint is written in the background, off the loop. A truncation below what is checkpointed rewrites the files
before it changes a log, because an offset that is too high would count again once the log has grown over it. So is an
offset of a partition that was deleted, before a partition of that name is created again.

The high watermarks are also evidence. Everything below them was in the log, and they name a partition only while its
directory is there: they are rewritten before a log is cut below its own, and before a directory is renamed to be
removed or set aside. So, as long as the machine runs, a log that ends below its checkpointed high watermark, or whose
directory is missing, has lost records, however its last process ended. The recovery points are as good only after a
clean shutdown; then they are the ends of all logs. Files in the directory of a partition prove less: a kill in the
middle of a truncation leaves leader epochs and producer snapshots that begin above the log's end.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from oncelog.broker.storage.checkpoints import (
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    OffsetCheckpoint,
)
from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.disk_errors import is_transient
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.protocol.topic_partition import TopicPartition

Offsets = dict[TopicPartition, int]

_ANY_OFFSET: Final = 2**63


class LogCheckpoint:
    """One checkpoint: its file, what that is known to say, and what it should say now."""

    __slots__ = ("_file", "_offsets", "_on_written", "_possible")

    def __init__(
        self, file: OffsetCheckpoint, offsets: Callable[[], Offsets], on_written: Callable[[Offsets], None]
    ) -> None:
        self._file = file
        self._offsets = offsets
        self._on_written = on_written
        self._possible: tuple[Offsets, ...] = ()
        """What the file may say: one of two while it is being replaced; empty if that is not known."""

    def read(self) -> Offsets:
        """Return what the file says; nothing if it is missing or unusable."""
        offsets = self._file.read() or {}
        self._possible = (offsets,)
        return offsets

    def write(self, *, sync: bool = True) -> None:
        """Replace the file unless it is up to date; ``sync``: so that a power loss does not undo it."""
        offsets = self._offsets()
        if self._possible != (offsets,):
            self._file.write(offsets, sync=sync)
            self._possible = (offsets,)
        self._on_written(offsets)

    async def write_off_loop(self) -> None:
        """Replace the file unless it is up to date, off the loop; give way to a ``write`` meanwhile."""
        offsets = self._offsets()
        if self._possible == (offsets,):
            return
        self._possible = (self._possible[0], offsets) if len(self._possible) == 1 else ()
        self._on_written(offsets)  # The file may say so from now on: a truncation below must rewrite it.
        await self._file.write_off_loop(offsets)
        if len(self._possible) != 1:
            self._possible = (offsets,)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Make sure that the file has no offset of a log that had this name before."""
        if not self._possible or any(topic_partition in offsets for offsets in self._possible):
            self.write()

    def highest(self, topic_partition: TopicPartition) -> int:
        """Return the highest offset that the file may have of a log."""
        if not self._possible:
            return _ANY_OFFSET
        return max(offsets.get(topic_partition, 0) for offsets in self._possible)

    def names(self) -> set[TopicPartition]:
        """Return the logs of which the file, which was read, may have an offset."""
        return {name for offsets in self._possible for name in offsets}

    def names_any(self, topic_partitions: Iterable[TopicPartition]) -> bool:
        """Return whether the file may have an offset of one of these logs."""
        return not self._possible or any(name in offsets for name in topic_partitions for offsets in self._possible)

    def rewrite(self, *, sync: bool = True) -> None:
        """Replace the file. Where a full disk has no room for it, it goes: what follows may be what makes room.

        Raise ``OSError``.
        """
        try:
            self.write(sync=sync)
        except OSError as error:
            if not is_transient(error):
                raise
            self.remove()

    def correct(self) -> None:
        """Replace the file if an offset in it is above its log's, or of no log: else it counts once the log has grown.

        Raise ``OSError``.
        """
        present = self._offsets()
        if any(self.highest(name) > present.get(name, -1) for name in self.names()):
            self.rewrite()

    def remove(self) -> None:
        """Remove the file, for which no room is needed."""
        self._file.remove()
        self._possible = ({},)


class CheckpointedOffsets(NamedTuple):
    """What the checkpoints say of one log; 0 where they say nothing."""

    recovery_point: int
    log_start_offset: int
    cleaned_offset: int
    high_watermark: int


class LogCheckpoints:
    """The checkpoints of one data directory."""

    def __init__(self, disk: Disk, log_dir: str, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        self._logs = logs
        files = [
            OffsetCheckpoint(disk, log_dir, name)
            for name in (
                RECOVERY_POINT_CHECKPOINT,
                LOG_START_CHECKPOINT,
                CLEANER_CHECKPOINT,
                REPLICATION_CHECKPOINT,
            )
        ]
        self.recovery_points = LogCheckpoint(files[0], self._recovery_points, self._note_recovery_points)
        self.log_starts = LogCheckpoint(files[1], self._log_starts, _ignore)
        self.cleaned_offsets = LogCheckpoint(files[2], self._cleaned_offsets, _ignore)
        self.high_watermarks = LogCheckpoint(files[3], self._high_watermarks, _ignore)
        self._all = self.recovery_points, self.log_starts, self.cleaned_offsets, self.high_watermarks

    def read(self) -> Callable[[TopicPartition], CheckpointedOffsets]:
        """Read the files. Return what they say of a partition's log."""
        files = [checkpoint.read() for checkpoint in self._all]
        return lambda topic_partition: CheckpointedOffsets(*(file.get(topic_partition, 0) for file in files))

    def write(self) -> None:
        """Replace the files that are not up to date, but for that of the high watermarks."""
        self.recovery_points.write()
        self.log_starts.write()
        self.cleaned_offsets.write()

    def forget(self, topic_partition: TopicPartition) -> None:
        """Make sure that no file has an offset of a log that had this name before."""
        for checkpoint in self._all:
            checkpoint.forget(topic_partition)

    def release(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Make sure that no high watermark is on disk of logs whose directories are about to be taken away.

        One write does it for several. It need not last longer than the machine runs: after that all logs count as
        damaged. Raise ``OSError``.
        """
        names = [name for name in topic_partitions if name in self._logs]
        for name in names:
            self._logs[name].is_leaving = True
        if self.high_watermarks.names_any(names):
            self.high_watermarks.rewrite(sync=False)

    def lower_high_watermark(self, topic_partition: TopicPartition, offset: int) -> None:
        """Make sure that no high watermark above an offset is on disk of a log that has a lower one now.

        Raise ``OSError``.
        """
        if self.high_watermarks.highest(topic_partition) > offset:
            self.high_watermarks.rewrite()

    def correct(self) -> None:
        """Let no file have a high watermark or a recovery point beyond its log, which may have lost its end.

        Raise ``OSError``.
        """
        self.recovery_points.correct()
        self.high_watermarks.correct()

    def missing(self, *, ends_are_noted: bool) -> Offsets:
        """Return what the files say of logs that must be there and are not: the offsets where they ended at least."""
        witnesses = [self.high_watermarks, self.recovery_points] if ends_are_noted else [self.high_watermarks]
        names = {name for witness in witnesses for name in witness.names() if name not in self._logs}
        return {name: max(witness.highest(name) for witness in witnesses) for name in sorted(names)}

    def _recovery_points(self) -> Offsets:
        return {name: log.recovery_point for name, log in self._logs.items()}

    def _note_recovery_points(self, offsets: Offsets) -> None:
        for topic_partition, offset in offsets.items():
            self._logs[topic_partition].flush_state.checkpointed_recovery_point = offset

    def _log_starts(self) -> Offsets:
        """Return the log start offsets of the logs that do not begin where their first segment begins."""
        return {
            name: log.log_start_offset
            for name, log in self._logs.items()
            if log.log_start_offset > log.segments.first.base_offset
        }

    def _cleaned_offsets(self) -> Offsets:
        return {name: log.cleaned_offset for name, log in self._logs.items() if log.cleaned_offset > 0}

    def _high_watermarks(self) -> Offsets:
        return {name: log.high_watermark for name, log in self._logs.items() if not (log.failed or log.is_leaving)}


def _ignore(offsets: Offsets) -> None:
    pass
