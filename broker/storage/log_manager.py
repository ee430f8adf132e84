"""``LogManager``: the logs of a data directory.

Start: lock the directory, remove the clean-shutdown mark, read the checkpoints, load the directory of every partition.
Close: close the logs, write the checkpoints, and leave the mark unless something failed. What happens in between beside
requests is in ``LogMaintenance``.

The directory of a partition that is deleted is renamed at once (``…-delete``), so that its name is free, and removed
later. A replica that does not belong here any more is set aside: its directory is renamed (``…-stray``), is not loaded
again, and stays until an operator removes it. Checkpoints that still have offsets of either are rewritten before a
partition of that name is created again: they are about another log.

Failures: a log whose disk calls fail reports itself (``on_log_failure``). A failure of the directory as a whole, that
is, of a checkpoint, is reported through ``on_directory_failure``. A full disk is neither (``space``); but without room
for what a close writes there is no mark, and the next start recovers the logs. There is one data directory.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from logging import getLogger
from random import Random
from typing import Final

from oncelog.broker.storage.checkpoints import CHECKPOINTS
from oncelog.broker.storage.clean_shutdown import NO_BROKER_EPOCH
from oncelog.broker.storage.cleaning_figures import CleaningFigures
from oncelog.broker.storage.data_directory import DataDirectory
from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.disk_errors import failing_unless_transient, is_transient
from oncelog.broker.storage.disk_space import DiskSpace
from oncelog.broker.storage.garbage import AT_ONCE, Garbage
from oncelog.broker.storage.local_log import LocalLog
from oncelog.broker.storage.log_checkpoints import LogCheckpoints
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_files import (
    DELETE_DIRECTORY_SUFFIX,
    LOG_SUFFIX,
    STRAY_DIRECTORY_SUFFIX,
    TEMPORARY_SUFFIX,
    delete_directory_name,
    directory_name,
    offset_file_name,
    parse_directory_name,
    stray_directory_name,
)
from oncelog.broker.storage.log_host import LogHost
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.broker.storage.partition_metadata import FILE_NAME as PARTITION_METADATA
from oncelog.broker.storage.partition_metadata import encode_topic_id
from oncelog.broker.storage.producer_state import DEFAULT_PRODUCER_ID_EXPIRATION_MS
from oncelog.broker.storage.recovery import NotedLog
from oncelog.protocol.topic_partition import TopicPartition

_SYNCS_AT_ONCE: Final = 8

_log = getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerConfig:
    """Intervals in milliseconds; Kafka's defaults where Kafka has the setting."""

    retention_check_interval_ms: int = 300_000
    flush_check_interval_ms: int = 1_000
    """Between two flushes of closed segments, and two removals of files."""
    space_check_interval_ms: int = 500
    """Between two checks whether a full disk has room again."""
    recovery_point_checkpoint_interval_ms: int = 60_000
    log_start_checkpoint_interval_ms: int = 60_000
    cleaner_enable: bool = True
    cleaner_backoff_ms: int = 15_000
    producer_id_expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS
    producer_id_expiration_check_interval_ms: int = 600_000


class LogManager:
    """All logs of one data directory."""

    def __init__(
        self,
        disk: Disk,
        log_dir: str,
        *,
        log_config: Callable[[str], LogConfig],
        wall_clock: Callable[[], int],
        rng: Random,
        config: LogManagerConfig | None = None,
    ) -> None:
        self.disk = disk
        self.log_dir = log_dir
        self.wall_clock = wall_clock
        self.config = config or LogManagerConfig()
        self.on_log_failure: Callable[[LocalLog], None] = lambda log: None
        self.on_directory_failure: Callable[[OSError], None] = lambda error: None
        self._log_config = log_config
        self._rng = rng
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self.is_closed_cleanly = False
        """Whether ``close`` has left the clean-shutdown mark."""
        self._failed = False
        self._prepared: dict[TopicPartition, OSError | None] = {}
        """Logs whose directories are made or being made, and that are not created; and what went wrong."""
        self.directory = DataDirectory(disk, log_dir)
        self.space = DiskSpace(disk, log_dir, wall_clock)
        """Whether the directory is full."""
        self.checkpoints = LogCheckpoints(disk, log_dir, self._logs)
        self.cleaning = CleaningFigures()
        self.garbage = Garbage(disk)
        """Files and directories that are to be removed."""

    # Start and end

    def start(self) -> None:
        """Lock the directory and load its logs. Raise ``AlreadyLocked`` or ``OSError``."""
        with ExitStack() as undo:
            self.directory.lock()
            undo.callback(self.release)
            self.load()
            undo.pop_all()

    def load(self) -> None:
        """Load the logs. The settings of their topics must be known by now. Raise ``OSError``."""
        directory = self.directory
        directory.open()
        power_held = directory.power_held
        offsets_of = self.checkpoints.read()
        config_of = cache(self._log_config)  # A topic has many partitions.
        found = [each for name in self.disk.list_dir(self.log_dir) if (each := self._partition_of(name)) is not None]
        if found and not directory.was_closed_cleanly:
            _log.info("%s was not closed cleanly: checking the ends of %d logs", self.log_dir, len(found))
        for topic_partition in found:
            noted = NotedLog(
                **offsets_of(topic_partition)._asdict(),
                clean_shutdown=directory.was_closed_cleanly,
                is_end_noted=directory.intact.ends_are_noted,
                power_held=power_held,
            )
            self._add(topic_partition, config_of(topic_partition.topic), noted)
        self._note_missing_logs()
        # A cleaned offset that proved wrong must not count again after the log has grown over it.
        self.checkpoints.cleaned_offsets.write()
        # Otherwise the boot is noted when the recovery points are beyond the gaps that have just been accepted.
        if directory.noted_boot is not None or directory.was_closed_cleanly or not self._logs:
            directory.note_boot()
        _log.info("%s: %d logs loaded", self.log_dir, len(self._logs))

    def _note_missing_logs(self) -> None:
        """Report the logs whose directories are gone, unlike those of deleted ones. Then forget them."""
        missing = self.checkpoints.missing(ends_are_noted=self.directory.intact.ends_are_noted)
        for topic_partition, offset in missing.items():
            _log.warning(
                "%s has no directory, although its log had reached offset %d: acknowledged records may be missing",
                topic_partition,
                offset,
            )
        if missing:
            are_missing = "directory of a partition is" if len(missing) == 1 else "directories of partitions are"
            self.directory.intact.note_damage(f"{len(missing)} {are_missing} missing")
        self.checkpoints.correct()

    def _partition_of(self, name: str) -> TopicPartition | None:
        """Return the partition whose log a name in the data directory stands for; tidy up what is left over."""
        path = f"{self.log_dir}/{name}"
        if name.endswith(DELETE_DIRECTORY_SUFFIX):
            self.garbage.add_directory(path, self.wall_clock(), AT_ONCE)
        elif name.endswith(STRAY_DIRECTORY_SUFFIX):
            _log.warning(
                "%s was set aside and is not used: remove it only once the partition is in sync elsewhere", path
            )
        elif name.endswith(TEMPORARY_SUFFIX) and name.partition(".")[0] in CHECKPOINTS:
            self.disk.remove(path)
        elif (topic_partition := parse_directory_name(name)) is not None and self.disk.is_dir(path):
            return topic_partition
        return None

    async def settle(self) -> None:
        """Sync all logs, several at once, when nothing is appended any more; ``close`` then finds little to do.

        Syncing a thousand logs one after the other takes seconds; a disk serves many requests at once as fast as one.
        """
        logs = iter(self)
        async with asyncio.TaskGroup() as group:
            for _ in range(_SYNCS_AT_ONCE):
                group.create_task(_settle(logs))

    def close(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Close everything. Leave the clean-shutdown mark unless something failed, or did not fit on the disk."""
        try:
            self._write_ends()
            if not self._failed:
                self.directory.close_cleanly(broker_epoch)
                self.is_closed_cleanly = True
        except OSError as error:
            _log.error("%s was not closed cleanly: %s. The next start recovers its logs", self.log_dir, error)
        finally:
            self.release()

    def _write_ends(self) -> None:
        """Close the logs and write the checkpoints. Raise the first ``OSError`` after all have been tried."""
        errors: list[OSError] = []
        checkpoints = self.checkpoints.write, self.checkpoints.high_watermarks.write
        for write in (*(log.close for log in self._logs.values()), *checkpoints):
            try:
                write()
            except OSError as error:
                errors.append(error)
        self._failed |= any(log.failed for log in self._logs.values())
        if errors:
            raise errors[0]

    def release(self) -> None:
        """Release files and lock, as the end of the process would."""
        for log in self._logs.values():
            log.release()
        self.directory.unlock()

    # Logs

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition; None if it has none here."""
        return self._logs.get(topic_partition)

    async def prepare(self, wanted: Iterable[tuple[TopicPartition, bytes | None]]) -> None:
        """Make the directories and files of logs, by their topic ids, that ``create`` is about to make, off the loop.

        What the disk has no room for now, ``create`` tries again; it raises any other error.
        """
        new = {partition: topic_id for partition, topic_id in wanted if partition not in self._logs}
        self._prepared.update(dict.fromkeys(new))
        try:
            await self.disk.make_dirs_off_loop(
                {self._path(partition): _first_files(topic_id) for partition, topic_id in new.items()}
            )
        except OSError as error:
            if not is_transient(error):
                self._prepared.update(dict.fromkeys(new, error))

    def create(self, topic_partition: TopicPartition, config: LogConfig, topic_id: bytes | None) -> PartitionLog:
        """Make an empty log. Raise ``OSError``."""
        assert topic_partition not in self._logs, topic_partition
        self.checkpoints.forget(topic_partition)
        error = self._prepared.pop(topic_partition, None)
        if error is not None:
            raise error
        path = self._path(topic_partition)
        if not self.disk.is_dir(path):
            self.disk.make_dirs(path)
        log = self._add(topic_partition, config, NotedLog())
        if topic_id is not None:
            log.set_topic_id(topic_id)
        return log

    def _path(self, topic_partition: TopicPartition) -> str:
        return f"{self.log_dir}/{directory_name(topic_partition)}"

    def delete(self, topic_partition: TopicPartition) -> None:
        """Take a log away; its files are removed later. Raise ``OSError``."""
        log = self._logs.get(topic_partition)
        if log is not None:
            self.checkpoints.release((topic_partition,))
            target = self._rename_away(log, delete_directory_name)
            self.garbage.add_directory(target, self.wall_clock(), log.config.file_delete_delay_ms)
        elif topic_partition in self._prepared:
            del self._prepared[topic_partition]
            source = self._path(topic_partition)
            if self.disk.is_dir(source):
                target = f"{self.log_dir}/{delete_directory_name(topic_partition, self._unique_id())}"
                self.disk.rename(source, target)
                self.garbage.add_directory(target, self.wall_clock(), AT_ONCE)

    def set_aside(self, topic_partition: TopicPartition) -> str | None:
        """Take a log away and keep its files. Return the new path of its directory. Raise ``OSError``."""
        log = self._logs.get(topic_partition)
        if log is None:
            return None
        self.checkpoints.release((topic_partition,))
        return self._rename_away(log, stray_directory_name)

    def _rename_away(self, log: PartitionLog, new_name: Callable[[TopicPartition, str], str]) -> str:
        log.release()
        target = f"{self.log_dir}/{new_name(log.topic_partition, self._unique_id())}"
        self.disk.rename(log.directory, target)
        log.is_taken_away = True
        del self._logs[log.topic_partition]
        return target

    def _unique_id(self) -> str:
        return f"{self._rng.getrandbits(128):032x}"

    def reconfigure(self, config: LogManagerConfig) -> None:
        """Apply other settings. The caller of ``LogMaintenance.background`` applies the intervals."""
        self.config = config
        for log in self:
            log.producer_state.producer_id_expiration_ms = config.producer_id_expiration_ms

    def update_config(self, topic: str) -> None:
        """Apply the present settings of a topic to its logs."""
        for log in self:
            if log.topic_partition.topic == topic:
                log.update_config(self._log_config(topic))

    def _add(self, topic_partition: TopicPartition, config: LogConfig, noted: NotedLog) -> PartitionLog:
        host = LogHost(
            disk=self.disk,
            wall_clock=self.wall_clock,
            space=self.space,
            rng=self._rng,
            on_damage=self.directory.intact.note_damage,
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
        )
        log = PartitionLog.open(host, self._path(topic_partition), topic_partition, config, noted)
        log.on_failure = self._log_failed
        log.on_checkpoints_lowered = lambda _: self.checkpoints.write()
        log.lower_checkpointed_high_watermark = partial(self.checkpoints.lower_high_watermark, topic_partition)
        self._logs[topic_partition] = log
        return log

    def uncleanable(self) -> list[PartitionLog]:
        """Return the logs that the cleaner has set aside."""
        return [log for log in self._logs.values() if log.uncleanable]

    # Failures

    def _log_failed(self, log: LocalLog) -> None:
        self._failed = True
        self.directory.intact.note_damage(f"the log in {log.directory} failed")
        self.on_log_failure(log)

    def fail(self, error: OSError) -> None:
        """Report that the directory as a whole is broken; it will not be marked as closed cleanly."""
        _log.error("The data directory %s failed: %s", self.log_dir, error)
        self._failed = True
        self.directory.intact.note_damage("the data directory failed")
        self.on_directory_failure(error)


def _first_files(topic_id: bytes | None) -> dict[str, bytes]:
    """Return the contents of the files of a new log, by name."""
    files = {offset_file_name(0, LOG_SUFFIX): b""}
    return files if topic_id is None else {PARTITION_METADATA: encode_topic_id(topic_id), **files}


async def _settle(logs: Iterator[PartitionLog]) -> None:
    for log in logs:
        try:
            with failing_unless_transient(log.mark_failed):
                if log.write_end():
                    await log.flush_state.carry_out_off_loop(log.plan_full_flush(log.log_end_offset))
        except OSError as error:
            _log.debug("%s is settled by its close: %s", log.directory, error)
