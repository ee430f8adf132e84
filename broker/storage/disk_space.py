"""``DiskSpace``: whether the volume of the data directory is full.

A log that could not be written because the volume is full is intact: a write that did not fit is undone, and can be
retried when there is room. So a full disk fails no log and stops no broker. The directory is *full* from the first
write that did not fit until enough is free again: 64 MiB, or a twentieth of a small volume. Meanwhile the controller
moves its leaderships to other brokers (``oncelog.coordinator.controller.full_disks``). If the directory is full again
within a minute, the next check comes later (backoff), so that leaderships do not move back and forth.

A lack of file descriptors is logged here, too, and does not make the directory full: the next attempt may succeed.
If it lasts, single logs take no writes (``files``).
"""

import logging
from collections.abc import Callable
from typing import Final

from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.disk_errors import is_out_of_space
from oncelog.broker.storage.open_files import OpenFiles
from oncelog.broker.storage.recheck_pause import RecheckPause

_ENOUGH_BYTES: Final = 64 << 20
_ENOUGH_SHARE: Final = 20
"""A twentieth of a volume is enough, too."""
_LOG_INTERVAL_MS: Final = 10_000
"""Least time between two errors about descriptors in the log."""

_log = logging.getLogger(__name__)


class DiskSpace:
    """The space of one data directory, shared by all its logs."""

    __slots__ = (
        "_disk",
        "_log_dir",
        "_logged_ms",
        "_pause",
        "_wall_clock",
        "files",
        "is_full",
        "on_change",
    )

    def __init__(self, disk: Disk, log_dir: str, wall_clock: Callable[[], int]) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._wall_clock = wall_clock
        self._pause = RecheckPause()
        self.files = OpenFiles(disk, wall_clock)
        self._logged_ms: int | None = None
        self.is_full = False
        self.on_change: Callable[[], None] = _nothing
        """Called after ``is_full`` has changed."""

    def note(self, error: OSError, where: str) -> None:
        """Note that a write failed because something has run out; ``where`` names what was to be written."""
        if not is_out_of_space(error):
            self._log_rarely(f"{where} could not be opened: {error}. Raise the limit of open files (ulimit -n)")
        elif not self.is_full:
            self._fill(error, where)

    def check(self) -> None:
        """Check whether a full directory has enough room again."""
        now_ms = self._wall_clock()
        if not self.is_full or not self._pause.is_over(now_ms):
            return
        total, usable = self._disk.usage(self._log_dir)
        if usable >= min(_ENOUGH_BYTES, total // _ENOUGH_SHARE):
            _log.warning("The disk of %s has room again (%d MiB): writes are accepted", self._log_dir, usable >> 20)
            self.is_full = False
            self._pause.end(now_ms)
            self.on_change()

    def _fill(self, error: OSError, where: str) -> None:
        self._pause.begin(self._wall_clock())
        self.is_full = True
        _log.error(
            "The disk of %s is full: %s (%s). What does not fit is refused with KAFKA_STORAGE_ERROR, which clients "
            "retry; partitions with other in-sync replicas are led elsewhere. Free space or enlarge the volume: the "
            "broker then goes on by itself",
            self._log_dir,
            error.strerror or error,
            where,
        )
        self.on_change()

    def _log_rarely(self, message: str) -> None:
        now_ms = self._wall_clock()
        if self._logged_ms is None or not 0 <= now_ms - self._logged_ms < _LOG_INTERVAL_MS:
            self._logged_ms = now_ms
            _log.error("%s", message)


def _nothing() -> None:
    """Ignore the change."""
