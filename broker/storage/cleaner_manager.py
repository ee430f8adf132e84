"""``LogCleanerManager``: decides which log is cleaned next.

Of the logs that are worth a pass (``cleanable.py``), the one with the highest ratio of dirty bytes is first. A log
whose pass was aborted, by a truncation for instance, is tried again in the next round. A log that is
corrupt, or raises an unexpected exception, is *uncleanable* until the next start; the others are still cleaned.

Cleaning needs room before it makes any: for the indexes of closed segments, which are not cleaned before they are
flushed, and for the segments that it writes. So a disk that compacted topics have filled needs an operator. A warning
says so as long as a log cannot be cleaned for want of room.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from logging import getLogger
from typing import Final

from oncelog.broker.process.containment import Containment
from oncelog.broker.storage.cleanable import find_cleanable
from oncelog.broker.storage.cleaner import LogCleaner, set_aside
from oncelog.broker.storage.disk_errors import is_out_of_space, is_transient
from oncelog.broker.storage.partition_log import PartitionLog

_WARNING_INTERVAL_MS: Final = 300_000
"""Least time between two warnings that logs cannot be cleaned."""
_NAMED_LOGS: Final = 5
"""Logs that a warning names; it counts the others."""

_log = getLogger(__name__)


class LogCleanerManager:
    """Chooses among the logs of one data directory."""

    def __init__(
        self,
        logs: Callable[[], Iterable[PartitionLog]],
        cleaner: LogCleaner,
        wall_clock: Callable[[], int],
        log_dir: str,
    ) -> None:
        self._logs = logs
        self._cleaner = cleaner
        self._wall_clock = wall_clock
        self._log_dir = log_dir
        self._warned_ms: int | None = None

    async def clean(self, save: Callable[[], Awaitable[None]]) -> None:
        """Clean what is worth it, the dirtiest first. ``save`` writes the logs' cleaned offsets to the disk."""
        aborted: set[PartitionLog] = set()
        self._cleaner.figures.highest_dirty_ratio = None
        try:
            while (log := self._dirtiest(aborted)) is not None:
                if await self._cleaner.clean(log):
                    await save()
                else:
                    aborted.add(log)
        finally:
            self._cleaner.figures.last_round_ms = self._wall_clock()
            self._warn_of_shortage(aborted)

    def _warn_of_shortage(self, aborted: set[PartitionLog]) -> None:
        """Log which logs cannot be cleaned because the disk is full, or no file can be opened, unless that was said."""
        shortages = {
            str(log.topic_partition): error
            for log in self._logs()
            if log.config.compacts and not (log.failed or log.uncleanable)
            if (error := (log.cleaning_shortage if log in aborted else None) or log.flush_shortage) is not None
        }
        now_ms = self._wall_clock()
        if not shortages or (self._warned_ms is not None and now_ms - self._warned_ms < _WARNING_INTERVAL_MS):
            return
        self._warned_ms = now_ms
        names = list(shortages)
        others = f" and {len(names) - _NAMED_LOGS} others" if len(names) > _NAMED_LOGS else ""
        _log.warning(
            "The cleaner cannot clean %s%s in log.dirs (%s): %s. %s: cleaning then goes on by itself",
            ", ".join(names[:_NAMED_LOGS]),
            others,
            self._log_dir,
            *_cause_and_remedy(shortages[names[0]]),
        )

    def _dirtiest(self, aborted: set[PartitionLog]) -> PartitionLog | None:
        found, most = None, -1.0
        for log in self._logs():
            if not log.config.compacts or log.failed or log.uncleanable or log in aborted or len(log.segments) == 1:
                continue
            ratio = self._dirty_ratio(log)
            if ratio is not None and ratio > most:
                found, most = log, ratio
        if self._cleaner.figures.highest_dirty_ratio is None:
            self._cleaner.figures.highest_dirty_ratio = max(0.0, most)
        return found

    def _dirty_ratio(self, log: PartitionLog) -> float | None:
        """Return the dirty ratio of a log; None if it is too low for a pass, or cannot be determined."""
        with Containment(partial(set_aside, log)):
            try:
                cleanable = find_cleanable(log, self._wall_clock())
            except OSError as error:
                if not is_transient(error):
                    log.mark_failed(error)
            else:
                return cleanable.dirty_ratio if cleanable.is_worth_it(log.config.min_cleanable_ratio) else None
        return None


def _cause_and_remedy(error: OSError) -> tuple[str, str]:
    if is_out_of_space(error):
        return "the disk is full, and compaction needs room before it makes any", "Free space or enlarge the volume"
    return str(error), "Raise the limit of open files (ulimit -n)"
