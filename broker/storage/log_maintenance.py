"""``LogMaintenance``: what happens to the logs of a data directory beside requests.

Retention, the flush of closed segments, checkpoints, expiry of idle producers, cleaning, and the removal of files that
are no longer part of a log. ``background`` lists these tasks with their intervals; the broker's supervisor repeats
them, also after a failure. An exception of one log does not keep the others from their turn.

A checkpoint that cannot be written fails the directory (``LogManager.fail``); a full disk does not.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from oncelog.broker.process.containment import Containment
from oncelog.broker.storage.cleaner import LogCleaner
from oncelog.broker.storage.cleaner_manager import LogCleanerManager
from oncelog.broker.storage.disk_errors import is_transient
from oncelog.broker.storage.log_config import NO_LIMIT
from oncelog.broker.storage.log_manager import LogManager
from oncelog.broker.storage.partition_log import PartitionLog

_LOGS_AT_ONCE: Final = 500
"""Logs that are visited in one turn of the loop."""


class BackgroundTask(NamedTuple):
    """Work that is repeated as long as the broker runs."""

    name: str
    interval_ms: int
    act: Callable[[], Awaitable[None]]


class LogMaintenance:
    """The background tasks of one data directory."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        cleaner = LogCleaner(logs.disk, wall_clock=logs.wall_clock, figures=logs.cleaning)
        self._cleaner = LogCleanerManager(logs.__iter__, cleaner, logs.wall_clock, logs.log_dir)

    def background(self) -> list[BackgroundTask]:
        """Return the tasks, with the intervals of the present configuration."""
        config = self._logs.config
        tasks = [
            ("disk space", config.space_check_interval_ms, self.check_space),
            ("log retention", config.retention_check_interval_ms, self.apply_retention),
            ("log flusher", config.flush_check_interval_ms, self.flush_and_remove),
            (
                "recovery point checkpoint",
                config.recovery_point_checkpoint_interval_ms,
                self.checkpoint_recovery_points,
            ),
            ("log starts", config.log_start_checkpoint_interval_ms, self.checkpoint_log_starts),
            ("producer expiry", config.producer_id_expiration_check_interval_ms, self.expire_producers),
        ]
        if config.cleaner_enable:
            tasks.append(("log cleaner", config.cleaner_backoff_ms, self.clean))
        return [BackgroundTask(name, interval_ms, partial(self._watch, act)) for name, interval_ms, act in tasks]

    async def _watch(self, act: Callable[[], Awaitable[None]]) -> None:
        """Carry out a task; fail the directory if an ``OSError`` shows that it is broken."""
        try:
            await act()
        except OSError as error:
            if is_transient(error):
                self._logs.space.note(error, self._logs.log_dir)
                raise
            self._logs.fail(error)

    async def check_space(self) -> None:
        """Check whether a full disk has room again, and which logs take no writes because no file can be opened.

        The controller may rely on this broker as soon as it reports room. A kill must not make its logs count as
        damaged then, so the present registration is noted first.
        """
        try:
            self._logs.directory.intact.note_again()
        except OSError as error:
            if not is_transient(error):
                self._logs.fail(error)
            else:
                self._logs.space.note(error, self._logs.log_dir)
        else:
            self._logs.space.check()
        self._logs.space.files.check()

    async def apply_retention(self) -> None:
        """Delete expired segments, and release the memory and files of segments that are not read."""

        async def retain(log: PartitionLog) -> None:
            await asyncio.sleep(0)
            log.delete_expired_segments(self._logs.wall_clock())
            log.release_idle()

        await self._for_each_log(retain)

    async def flush_and_remove(self) -> None:
        """Flush closed segments, and logs whose ``flush.ms`` has passed; remove files that are due."""
        now_ms = self._logs.wall_clock()
        garbage = self._logs.garbage

        async def flush(log: PartitionLog) -> None:
            if log.garbage:
                garbage.add_files(log.garbage, now_ms, log.config.file_delete_delay_ms)
                log.garbage.clear()
            if log.has_unflushed_segments:
                await log.flush_closed_segments_off_loop()
            if log.config.flush_interval_ms < NO_LIMIT:
                await _flush_by_time(log, now_ms)

        try:
            await self._for_each_log(flush)
        finally:
            await garbage.remove_due(now_ms)

    async def expire_producers(self) -> None:
        """Forget producers that were idle for ``producer.id.expiration.ms``."""

        async def expire(log: PartitionLog) -> None:
            await asyncio.sleep(0)
            log.producer_state.expire(self._logs.wall_clock(), round(asyncio.get_running_loop().time() * 1000))

        await self._for_each_log(expire)

    async def clean(self) -> None:
        """Clean the compacted logs that are worth it, the dirtiest first."""
        await self._cleaner.clean(self._logs.checkpoints.cleaned_offsets.write_off_loop)

    async def checkpoint_recovery_points(self) -> None:
        """Write the recovery points, and after that, once, the boot in which they were reached."""
        await self._logs.checkpoints.recovery_points.write_off_loop()
        if not self._logs.directory.is_boot_noted:
            self._logs.directory.note_boot()

    async def checkpoint_log_starts(self) -> None:
        """Write the log start offsets."""
        await self._logs.checkpoints.log_starts.write_off_loop()

    async def _for_each_log(self, act: Callable[[PartitionLog], Awaitable[None]]) -> None:
        """Await ``act`` for every log. The first exception is raised when all have had their turn.

        Most acts find nothing to do and do not wait, so the loop has its turn after each portion of the logs.
        """
        failures: list[Exception] = []
        for number, log in enumerate(self._logs, 1):
            if number % _LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._logs.get(log.topic_partition) is log:  # It was not deleted meanwhile.
                with Containment(partial(_note_failure, failures, log)):
                    await act(log)
        if failures:
            raise failures[0]


def _note_failure(failures: list[Exception], log: PartitionLog, error: Exception) -> None:
    error.add_note(f"with the log in {log.directory}")
    failures.append(error)


async def _flush_by_time(log: PartitionLog, now_ms: int) -> None:
    state = log.flush_state
    if log.flushed_offset == log.log_end_offset:
        state.unflushed_since_ms = None
    elif state.unflushed_since_ms is None or state.unflushed_since_ms > now_ms:  # The clock was set back.
        state.unflushed_since_ms = now_ms
    elif now_ms - state.unflushed_since_ms >= log.config.flush_interval_ms:
        state.unflushed_since_ms = None
        await log.flush_off_loop()
