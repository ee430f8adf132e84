"""``LogCleanerManager``: decides which log is cleaned next.

Of the logs that are worth a pass (``cleanable.py``), the one with the highest ratio of dirty bytes is first. A log
whose pass was aborted, by a truncation for instance, is tried again in the next round. A log that is
corrupt, or raises an unexpected exception, is *uncleanable* until the next start; the others are still cleaned.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from oncelog.broker.process.containment import Containment
from oncelog.broker.storage.cleanable import find_cleanable
from oncelog.broker.storage.cleaner import LogCleaner, set_aside
from oncelog.broker.storage.disk_errors import is_transient
from oncelog.broker.storage.partition_log import PartitionLog


class LogCleanerManager:
    """Chooses among the logs of one data directory."""

    def __init__(
        self, logs: Callable[[], Iterable[PartitionLog]], cleaner: LogCleaner, wall_clock: Callable[[], int]
    ) -> None:
        self._logs = logs
        self._cleaner = cleaner
        self._wall_clock = wall_clock

    async def clean(self, save: Callable[[], Awaitable[None]]) -> None:
        """Clean what is worth it, the dirtiest first. ``save`` writes the logs' cleaned offsets to the disk."""
        aborted: set[PartitionLog] = set()
        while (log := self._dirtiest(aborted)) is not None:
            if await self._cleaner.clean(log):
                await save()
            else:
                aborted.add(log)

    def _dirtiest(self, aborted: set[PartitionLog]) -> PartitionLog | None:
        found, most = None, -1.0
        for log in self._logs():
            if not log.config.compacts or log.failed or log.uncleanable or log in aborted or len(log.segments) == 1:
                continue
            ratio = self._dirty_ratio(log)
            if ratio is not None and ratio > most:
                found, most = log, ratio
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
