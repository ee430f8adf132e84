"""``OpenFiles``: logs that take no writes because the process may open no more files (RLIMIT_NOFILE).

A write fails for that reason when its log must begin a segment. The log is intact, and the write can be retried. For a
moment that is all; but where nothing is closed, the log takes no write for ever. So a log is *refusing* once it has
refused writes for 5 s, during which no file could be opened, and until 16 files can be opened at once. Meanwhile the
controller has other brokers lead it (``oncelog.coordinator.controller.full_disks``). Logs that need no new file go on:
where all brokers come close to their limits, each partition moves only when it must.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog.broker.storage.disk import Disk, File
from oncelog.broker.storage.disk_errors import OUT_OF_DESCRIPTORS
from oncelog.broker.storage.recheck_pause import RecheckPause
from oncelog.protocol.topic_partition import TopicPartition

_LASTING_MS: Final = 5_000
_ENOUGH_FILES: Final = 16

_log = logging.getLogger(__name__)


class _Refused(NamedTuple):
    path: str
    """Of a file of the log, which is opened to see whether files can be."""
    since_ms: int


class OpenFiles:
    """The logs of one data directory that could not open a file to write to."""

    __slots__ = ("_disk", "_pause", "_refused", "_wall_clock", "on_change", "refusing")

    def __init__(self, disk: Disk, wall_clock: Callable[[], int]) -> None:
        self._disk = disk
        self._wall_clock = wall_clock
        self._refused: dict[TopicPartition, _Refused] = {}
        """The logs that refused a write since files could be opened."""
        self._pause = RecheckPause()
        self.refusing: frozenset[TopicPartition] = frozenset()
        """The logs that have refused writes for long."""
        self.on_change: Callable[[], None] = _nothing
        """Called after ``refusing`` has changed."""

    def note(self, error: OSError, topic_partition: TopicPartition, path: str) -> None:
        """Note that a write to a log failed; ``path`` is a file of the log."""
        if error.errno in OUT_OF_DESCRIPTORS:
            known = self._refused.get(topic_partition)
            self._refused[topic_partition] = _Refused(path, self._wall_clock() if known is None else known.since_ms)

    def check(self) -> None:
        """Check whether files can be opened again, and which logs have refused writes for long."""
        now_ms = self._wall_clock()
        self._refused = {log: each for log, each in self._refused.items() if self._disk.exists(each.path)}
        if self._can_open(_ENOUGH_FILES if self.refusing else 1):
            if not self.refusing or self._pause.is_over(now_ms):
                self._refused.clear()
        lasting = frozenset(
            log
            for log, each in self._refused.items()
            if log in self.refusing or not 0 <= now_ms - each.since_ms < _LASTING_MS
        )
        if lasting != self.refusing:
            self._change(lasting, now_ms)

    def _can_open(self, count: int) -> bool:
        """Return whether so many files can be opened at once, if a log needs one."""
        files = list[File]()
        try:
            for path in [each.path for each in self._refused.values()][:1] * count:
                files.append(self._disk.open(path))
        except OSError as error:
            return error.errno not in OUT_OF_DESCRIPTORS
        finally:
            for file in files:
                file.close()
        return True

    def _change(self, refusing: frozenset[TopicPartition], now_ms: int) -> None:
        if not self.refusing:
            self._pause.begin(now_ms)
            _log.error(
                "No file can be opened, so %d logs take no writes, that of %s among them; other in-sync replicas lead "
                "them, where there are any. Raise the limit of open files (RLIMIT_NOFILE, ulimit -n), or move "
                "partitions to other brokers",
                len(refusing),
                min(refusing),
            )
        elif not refusing:
            self._pause.end(now_ms)
            _log.warning("Files can be opened again: all logs take writes")
        self.refusing = refusing
        self.on_change()


def _nothing() -> None:
    """Ignore the change."""
