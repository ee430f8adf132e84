"""``DiskSpace``: whether the data directory takes what is written to it, and what has run out if it does not.

A log that could not be written because the volume is full is intact: what did not fit was undone, and can be written
when there is room. So a full disk fails no log and stops no broker. The directory counts as *full* from the first
write that did not fit until enough is free again; as long as that lasts, the controller has others lead
(``oncelog.coordinator.controller.full_disks``).

Enough is what lets a broker work for a while: 64 MiB, or a twentieth of a small volume. A directory that fills up again
soon after is looked at later each time, so that leaderships do not go back and forth.

Running out of file descriptors is said here, too, but is nothing that others must know: the next attempt may succeed.
"""

import logging
from collections.abc import Callable
from typing import Final

from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.disk_errors import is_out_of_space

_ENOUGH_BYTES: Final = 64 << 20
_ENOUGH_SHARE: Final = 20
"""A volume of which one part in so many is free has enough room, too."""
_FIRST_PAUSE_MS: Final = 1_000
_LONGEST_PAUSE_MS: Final = 60_000
_SOON_MS: Final = 60_000
_SAY_AGAIN_MS: Final = 10_000

_log = logging.getLogger(__name__)


class DiskSpace:
    """Shared by all logs of one data directory."""

    __slots__ = ("_disk", "_log_dir", "_not_before_ms", "_pause_ms", "_said_ms", "_wall_clock", "is_full", "on_change")

    def __init__(self, disk: Disk, log_dir: str, wall_clock: Callable[[], int]) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._wall_clock = wall_clock
        self._pause_ms = _FIRST_PAUSE_MS
        self._not_before_ms = 0
        self._said_ms: int | None = None
        self.is_full = False
        self.on_change: Callable[[], None] = _nothing
        """Called after ``is_full`` has changed."""

    def note(self, error: OSError, where: str) -> None:
        """Note that a write failed because something has run out; ``where`` names what was to be written."""
        if not is_out_of_space(error):
            self._say(f"{where} could not be opened: {error}. Raise the limit of open files (ulimit -n)")
        elif not self.is_full:
            self._fill(error, where)

    def check(self) -> None:
        """Check whether a full directory has enough room again."""
        now_ms = self._wall_clock()
        if not self.is_full or now_ms < self._not_before_ms:
            return
        total, usable = self._disk.usage(self._log_dir)
        if usable >= min(_ENOUGH_BYTES, total // _ENOUGH_SHARE):
            _log.warning("There is room in %s again (%d MiB): it is written to", self._log_dir, usable >> 20)
            self.is_full = False
            self._not_before_ms = now_ms  # From here on it is counted how soon it is full again.
            self.on_change()

    def _fill(self, error: OSError, where: str) -> None:
        now_ms = self._wall_clock()
        is_soon = self._not_before_ms and now_ms < self._not_before_ms + _SOON_MS
        self._pause_ms = min(2 * self._pause_ms, _LONGEST_PAUSE_MS) if is_soon else _FIRST_PAUSE_MS
        self._not_before_ms = now_ms + self._pause_ms
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

    def _say(self, message: str) -> None:
        now_ms = self._wall_clock()
        if self._said_ms is None or now_ms - self._said_ms >= _SAY_AGAIN_MS:
            self._said_ms = now_ms
            _log.error("%s", message)


def _nothing() -> None:
    """Ignore the change."""
