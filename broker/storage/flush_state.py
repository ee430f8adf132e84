"""``FlushState``: how much of a log would survive a power loss, and what is still to be synced.

A flush takes a *plan*, syncs the files in it, on the loop or off it, and reports back. Off the loop the log goes on
meanwhile: whatever comes after the plan was made is the next flush's business, and if the log is truncated, the plan
has promised nothing.
"""

import asyncio
import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from oncelog.broker.storage.disk import Disk, File
from oncelog.broker.storage.leader_epoch_cache import LeaderEpochFileCache
from oncelog.broker.storage.log_segments import LogSegments

_BACKOFF_SECONDS: Final = 0.05


@dataclass(slots=True, kw_only=True)
class FlushPlan:
    """What one flush syncs. Carrying it out closes ``borrowed``."""

    files: list[File] = field(default_factory=list)
    """Handles of the plan's own: a segment may be removed, or closed when idle, before its file has its turn."""
    borrowed: list[File] = field(default_factory=list)
    small_files: set[str]
    directories: tuple[str, ...]
    flushed_offset: int
    """Batches below are on the medium then."""
    is_full: bool
    """So is everything that belongs to them."""
    truncations: int


class FlushState:
    """Owned by one log."""

    __slots__ = (
        "_directory",
        "_disk",
        "_flushing",
        "_truncations",
        "_unsynced_files",
        "_unsynced_names",
        "checkpointed_recovery_point",
        "flushed_offset",
        "has_unsynced_truncation",
        "recovery_point",
        "unflushed_since_ms",
    )

    def __init__(self, disk: Disk, directory: str, recovery_point: int) -> None:
        self._disk = disk
        self._directory = directory
        self._flushing = asyncio.Lock()
        self._truncations = 0
        self._unsynced_files: set[str] = set()
        self._unsynced_names = True
        self.checkpointed_recovery_point = recovery_point
        """What is in the checkpoint file; set by ``LogCheckpoints``."""
        self.flushed_offset = recovery_point
        self.has_unsynced_truncation = False
        """Whether a loss of power may bring back what the log was cut of.

        What is appended meanwhile may reach the medium in part: then batches of the past stand before those of today.
        """
        self.recovery_point = recovery_point
        self.unflushed_since_ms: int | None = None
        """When ``flush.ms`` began to count, by the wall clock; set by ``LogMaintenance``."""

    @property
    def is_settled(self) -> bool:
        """No name and no small file waits to be synced."""
        return not self._unsynced_names and not self._unsynced_files

    def names_changed(self) -> None:
        """Note that a file of the log's directory was created, renamed or removed."""
        self._unsynced_names = True

    def written(self, path: str | None) -> None:
        """Note that a small file was replaced and not synced; None: no file was."""
        if path is not None:
            self._unsynced_files.add(path)
            self._unsynced_names = True

    def truncated(self, base_offset: int) -> None:
        """Note that the log was truncated within the segment with this base offset, or at its start.

        All of that segment counts as unflushed: the next flush must sync its length, and recovery derive its indexes.
        It also syncs the directory, of which segments may have been removed.
        """
        self._truncations += 1
        self._unsynced_names = True
        self.has_unsynced_truncation = True
        self.flushed_offset = min(self.flushed_offset, base_offset)
        self.recovery_point = min(self.recovery_point, base_offset)

    async def back_off(self) -> None:
        """Wait before the retry of a flush that could not be begun."""
        await asyncio.sleep(_BACKOFF_SECONDS)

    def plan(self, flushed_offset: int, *, full: bool = False) -> FlushPlan:
        """Return a flush of the batches below an offset; the caller adds the files that have them."""
        plan = FlushPlan(
            small_files=self._unsynced_files if full else set(),
            directories=(self._directory, self._directory.rpartition("/")[0]) if full or self._unsynced_names else (),
            flushed_offset=flushed_offset,
            is_full=full,
            truncations=self._truncations,
        )
        if full:
            self._unsynced_files = set()
        self._unsynced_names = False
        return plan

    def plan_full(self, end_offset: int, epochs: LeaderEpochFileCache, segments: LogSegments) -> FlushPlan:
        """Return a flush of the segments below an offset that ends one, and of all that is needed to trust them."""
        epochs.save_if_changed()
        if epochs.unsynced:
            epochs.unsynced = False
            self.written(epochs.path)
        below = [segment for segment in segments.from_offset(self.recovery_point) if segment.base_offset < end_offset]
        plan = self.plan(end_offset, full=True)
        try:
            for segment in below:
                plan.files.append(segment.file.dup())
                plan.borrowed += segment.indexes.write()
        except OSError:
            self._give_back(plan)
            _close(plan.borrowed)
            raise
        return plan

    def carry_out(self, plan: FlushPlan) -> None:
        """Sync what a plan names, here and now. Raise ``OSError``: then it is still to be synced."""
        with self._undone_on_error(plan):
            for file in self._files(plan):
                with _sync_error_is_fatal():
                    file.sync()
            for directory in plan.directories:
                self._disk.sync_dir(directory)
        self._finish(plan)

    async def carry_out_off_loop(self, plan: FlushPlan) -> None:
        """Sync what a plan names, off the loop. Raise ``OSError``: then it is still to be synced.

        One at a time: a flush may rely on the names that the one before it syncs.
        """
        with self._undone_on_error(plan):
            async with self._flushing:
                for file in self._files(plan):
                    with _sync_error_is_fatal():
                        await file.sync_off_loop()
                for directory in plan.directories:
                    await self._disk.sync_dir_off_loop(directory)
        self._finish(plan)

    @contextmanager
    def _undone_on_error(self, plan: FlushPlan) -> Iterator[None]:
        """Close the files that a plan borrowed; give back what it was to sync unless all of it was synced."""
        with ExitStack() as undo:
            undo.callback(self._give_back, plan)
            try:
                yield
            finally:
                _close(plan.borrowed)
            undo.pop_all()

    def _files(self, plan: FlushPlan) -> list[File]:
        plan.borrowed += [self._disk.open(path) for path in sorted(plan.small_files) if self._disk.exists(path)]
        return plan.files + plan.borrowed

    def _give_back(self, plan: FlushPlan) -> None:
        self._unsynced_files |= plan.small_files
        self._unsynced_names |= bool(plan.directories)

    def _finish(self, plan: FlushPlan) -> None:
        if plan.truncations != self._truncations:
            return
        self.has_unsynced_truncation = False
        self.flushed_offset = max(self.flushed_offset, plan.flushed_offset)
        if plan.is_full:
            self.recovery_point = max(self.recovery_point, plan.flushed_offset)


@contextmanager
def _sync_error_is_fatal() -> Iterator[None]:
    """Turn any error of an fsync into EIO: the data may be lost, and a later fsync would not report that."""
    try:
        yield
    except OSError as error:
        raise OSError(errno.EIO, f"fsync: {error}") from error


def _close(files: list[File]) -> None:
    for file in files:
        file.close()
