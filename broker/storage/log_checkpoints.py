"""``LogCheckpoints``: the offsets of all logs that a data directory keeps in files of its own.

A checkpoint is written in the background, off the loop. A truncation below what is checkpointed rewrites the files
before it changes a log, because an offset that is too high would count again once the log has grown over it. So is an
offset of a partition that was deleted, before a partition of that name is created again.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from oncelog.broker.storage.checkpoints import (
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    OffsetCheckpoint,
)
from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.protocol.topic_partition import TopicPartition

Offsets = dict[TopicPartition, int]


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

    def write(self) -> None:
        """Replace the file unless it is up to date."""
        offsets = self._offsets()
        if self._possible != (offsets,):
            self._file.write(offsets)
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


class CheckpointedOffsets(NamedTuple):
    """What the checkpoints say of one log; 0 where they say nothing."""

    recovery_point: int
    log_start_offset: int
    cleaned_offset: int


class LogCheckpoints:
    """The checkpoints of one data directory."""

    def __init__(self, disk: Disk, log_dir: str, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        self._logs = logs
        files = [
            OffsetCheckpoint(disk, log_dir, name)
            for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, CLEANER_CHECKPOINT)
        ]
        self.recovery_points = LogCheckpoint(files[0], self._recovery_points, self._note_recovery_points)
        self.log_starts = LogCheckpoint(files[1], self._log_starts, _ignore)
        self.cleaned_offsets = LogCheckpoint(files[2], self._cleaned_offsets, _ignore)

    def read(self) -> Callable[[TopicPartition], CheckpointedOffsets]:
        """Read the files. Return what they say of a partition's log."""
        files = self.recovery_points.read(), self.log_starts.read(), self.cleaned_offsets.read()
        return lambda topic_partition: CheckpointedOffsets(*(file.get(topic_partition, 0) for file in files))

    def write(self) -> None:
        """Replace the files that are not up to date."""
        self.recovery_points.write()
        self.log_starts.write()
        self.cleaned_offsets.write()

    def forget(self, topic_partition: TopicPartition) -> None:
        """Make sure that no file has an offset of a log that had this name before."""
        for checkpoint in (self.recovery_points, self.log_starts, self.cleaned_offsets):
            checkpoint.forget(topic_partition)

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


def _ignore(offsets: Offsets) -> None:
    pass
