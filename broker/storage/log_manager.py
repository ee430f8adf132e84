"""``LogManager``: the data directory of a broker and all logs in it.

Start: lock the directory, take the clean-shutdown mark away, read the checkpoints, load every partition's directory.
Close: close the logs, write the checkpoints, and only if nothing failed leave the mark.

Between the two it owns what happens to logs beside requests: retention, the flush of closed segments, checkpoints,
expiry of idle producers, cleaning, and the removal of files whose time has come. ``background`` lists these with their
intervals; the broker's supervisor repeats them, also after a failure. What one log raises keeps the others waiting for
nothing: they have their turn first.

A partition that is deleted has its directory renamed at once (``…-delete``), so that its name is free, and removed
later. A replica that does not belong here (any more) is set aside: its directory is renamed (``…-stray``), is not
loaded again, and stays until an operator removes it. Checkpoints that still speak of either are rewritten before a
partition of that name is created again: they are about another log.

Failures: a log whose disk calls fail reports itself (``on_log_failure``). A failure of the directory as a whole, that
is, of a checkpoint, is ``on_directory_failure``. A full disk is neither (``space``). There is one data directory.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from logging import getLogger
from random import Random
from typing import Final

from oncelog.broker.storage import clean_shutdown
from oncelog.broker.storage.checkpoints import (
    CHECKPOINTS,
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    OffsetCheckpoint,
)
from oncelog.broker.storage.cleaner import LogCleaner
from oncelog.broker.storage.cleaner_manager import LogCleanerManager
from oncelog.broker.storage.disk import Disk, Lock
from oncelog.broker.storage.disk_errors import is_passing
from oncelog.broker.storage.disk_space import DiskSpace
from oncelog.broker.storage.garbage import AT_ONCE, Garbage
from oncelog.broker.storage.log_config import NO_LIMIT, LogConfig
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
from oncelog.broker.storage.machine_boot import note_boot, read_boot
from oncelog.broker.storage.meta_properties import (
    InvalidMetaProperties,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.broker.storage.partition_metadata import FILE_NAME as PARTITION_METADATA
from oncelog.broker.storage.partition_metadata import encode_topic_id
from oncelog.broker.storage.producer_state import DEFAULT_PRODUCER_ID_EXPIRATION_MS
from oncelog.broker.storage.readable_log import ReadableLog
from oncelog.protocol.topic_partition import TopicPartition

LOCK_FILE: Final = ".lock"
_LOGS_AT_ONCE: Final = 500
"""Looked at in one turn of the loop."""
_SYNCS_AT_ONCE: Final = 8

_log = getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerConfig:
    """How often things happen, in milliseconds; Kafka's defaults where Kafka has the setting."""

    retention_check_interval_ms: int = 300_000
    flush_check_interval_ms: int = 1_000
    """How soon closed segments are flushed and removed files go."""
    space_check_interval_ms: int = 500
    """How soon it is noticed that a full disk has room again."""
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
        self.log_dir = log_dir
        self.config = config or LogManagerConfig()
        self.previous_broker_epoch: int | None = None
        """From the mark of a clean shutdown; None if there was none, that is, after a crash or at the first start."""
        self.on_log_failure: Callable[[ReadableLog], None] = lambda log: None
        self.on_directory_failure: Callable[[OSError], None] = lambda error: None
        self._disk = disk
        self._log_config = log_config
        self._wall_clock = wall_clock
        self._rng = rng
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._lock: Lock | None = None
        self._garbage = Garbage(disk)
        self._failed = False
        self._boot_noted = False
        self._recovery_points = OffsetCheckpoint(disk, log_dir, RECOVERY_POINT_CHECKPOINT)
        self._log_starts = OffsetCheckpoint(disk, log_dir, LOG_START_CHECKPOINT)
        self._cleaner_offsets = OffsetCheckpoint(disk, log_dir, CLEANER_CHECKPOINT)
        self._written: dict[OffsetCheckpoint, dict[TopicPartition, int]] = {}
        """What each checkpoint file says; absent while that is not certain."""
        self._either: dict[OffsetCheckpoint, tuple[dict[TopicPartition, int], dict[TopicPartition, int]]] = {}
        """What a checkpoint file says if that is not certain: one of two."""
        self._prepared: dict[TopicPartition, OSError | None] = {}
        """Logs that have a directory, or are about to, and are not created; and what went wrong."""
        self.space = DiskSpace(disk, log_dir, wall_clock)
        """Whether the directory is full."""
        self._cleaner = LogCleanerManager(self.__iter__, LogCleaner(disk, wall_clock=wall_clock), wall_clock)

    # Start and end

    def start(self) -> None:
        """Lock the directory and load its logs. Raises ``AlreadyLocked`` or ``OSError``."""
        self.lock()
        try:
            self.load()
        except BaseException:
            self.release()
            raise

    def lock(self) -> None:
        """Make the directory ours before anything in it is read. Raises ``AlreadyLocked`` or ``OSError``."""
        self._make_log_dir()
        self._lock = self._disk.lock(f"{self.log_dir}/{LOCK_FILE}")

    def _make_log_dir(self) -> None:
        """Make the directory, so that its name too outlives a loss of power; who syncs files in it relies on that."""
        if self._disk.exists(self.log_dir) and not self._disk.is_dir(self.log_dir):
            raise NotADirectoryError(errno.ENOTDIR, "it is not a directory", self.log_dir)
        missing = [self.log_dir]
        while not self._disk.exists(missing[-1]) and (parent := _parent(missing[-1])) != missing[-1]:
            missing.append(parent)
        self._disk.make_dirs(self.log_dir)
        for directory in missing[1:]:
            self._disk.sync_dir(directory)

    def load(self) -> None:
        """Load the logs. Their topics' settings must be known by now. Raises ``OSError``."""
        self.previous_broker_epoch = clean_shutdown.take_mark(self._disk, self.log_dir)
        recovery_points = self._read(self._recovery_points)
        log_starts = self._read(self._log_starts)
        cleaned_offsets = self._read(self._cleaner_offsets)
        boot = read_boot(self._disk, self.log_dir)
        power_held = boot in (None, self._disk.identity(self.log_dir))
        config_of = cache(self._log_config)  # A topic has many partitions.
        for name in self._disk.list_dir(self.log_dir):
            path = f"{self.log_dir}/{name}"
            if name.endswith(DELETE_DIRECTORY_SUFFIX):
                self._garbage.add_directory(path, AT_ONCE)
            elif name.endswith(STRAY_DIRECTORY_SUFFIX):
                _log.warning(
                    "%s was set aside and is not used: remove it only once the partition is in sync elsewhere", path
                )
            elif name.endswith(TEMPORARY_SUFFIX) and name.partition(".")[0] in CHECKPOINTS:
                self._disk.remove(path)
            elif (topic_partition := parse_directory_name(name)) is not None and self._disk.is_dir(path):
                self._add(
                    topic_partition,
                    recovery_points.get(topic_partition, 0),
                    log_starts.get(topic_partition, 0),
                    cleaned_offset=cleaned_offsets.get(topic_partition, 0),
                    clean_shutdown=self.previous_broker_epoch is not None,
                    power_held=power_held,
                    config=config_of(topic_partition.topic),
                )
        # An offset that proved wrong must not count again after the log has grown over it.
        self._write(self._cleaner_offsets, self._cleaner_checkpoint_offsets())
        if boot is not None or self.previous_broker_epoch is not None or not self._logs:
            self._note_boot()  # Else when recovery points are beyond the gaps that have just been accepted.
        _log.info("%s: %d logs loaded", self.log_dir, len(self._logs))

    def claim(self, broker_id: int, cluster_id: str | None) -> None:
        """Note whose directory this is. Raises ``InvalidMetaProperties`` if it is somebody else's."""
        found = read_meta_properties(self._disk, self.log_dir)
        wanted = self.check_owner(broker_id, cluster_id)
        if wanted != found:
            write_meta_properties(self._disk, self.log_dir, wanted)

    def check_owner(self, broker_id: int, cluster_id: str | None) -> MetaProperties:
        """Return what the directory is to say. Raises ``InvalidMetaProperties`` if it is somebody else's."""
        found = read_meta_properties(self._disk, self.log_dir)
        if found is not None:
            if found.broker_id not in (None, broker_id):
                raise InvalidMetaProperties(f"{self.log_dir} belongs to broker {found.broker_id}, not {broker_id}")
            if None not in (found.cluster_id, cluster_id) and found.cluster_id != cluster_id:
                raise InvalidMetaProperties(f"{self.log_dir} belongs to cluster {found.cluster_id}, not {cluster_id}")
            cluster_id = cluster_id or found.cluster_id
        wanted = MetaProperties(broker_id=broker_id, cluster_id=cluster_id)
        if found is not None:
            wanted = replace(found, broker_id=broker_id, cluster_id=cluster_id)
        return wanted

    async def settle(self) -> None:
        """Sync all logs, several at once, when nothing is appended any more; ``close`` then finds little to do.

        Disks take many requests at once for one: a thousand logs, one after the other, are seconds.
        """
        logs = iter(self)
        async with asyncio.TaskGroup() as group:
            for _ in range(_SYNCS_AT_ONCE):
                group.create_task(_settle(logs))

    def close(self, broker_epoch: int = clean_shutdown.NO_BROKER_EPOCH) -> None:
        """Close everything. The mark of a clean shutdown is left unless something failed."""
        try:
            for log in self._logs.values():
                log.close()
                self._failed |= log.failed
            self._write(self._recovery_points, self._recovery_point_offsets())
            self._write(self._log_starts, self._log_start_offsets())
            self._write(self._cleaner_offsets, self._cleaner_checkpoint_offsets())
            if not self._failed:
                self._note_boot()
                clean_shutdown.write_mark(self._disk, self.log_dir, broker_epoch)
        except OSError as error:
            _log.error("%s was not closed cleanly: %s", self.log_dir, error)
        finally:
            self.release()

    def release(self) -> None:
        """Let go of files and lock, as the end of the process would."""
        for log in self._logs.values():
            log.release()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # Logs

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self._logs.get(topic_partition)

    async def prepare(self, wanted: Iterable[tuple[TopicPartition, bytes | None]]) -> None:
        """Make the directories and files of logs, by their topic ids, that ``create`` is about to make, off the loop.

        What the disk has no room for now, ``create`` tries again; any other error is raised there.
        """
        new = {partition: topic_id for partition, topic_id in wanted if partition not in self._logs}
        self._prepared.update(dict.fromkeys(new))
        try:
            await self._disk.make_dirs_off_loop(
                {self._directory(partition): _first_files(topic_id) for partition, topic_id in new.items()}
            )
        except OSError as error:
            if not is_passing(error):
                self._prepared.update(dict.fromkeys(new, error))

    def create(self, topic_partition: TopicPartition, config: LogConfig, topic_id: bytes | None) -> PartitionLog:
        """Make an empty log. Raises ``OSError``."""
        assert topic_partition not in self._logs, topic_partition
        self._forget_checkpoints(topic_partition)
        error = self._prepared.pop(topic_partition, None)
        if error is not None:
            raise error
        directory = self._directory(topic_partition)
        if not self._disk.is_dir(directory):
            self._disk.make_dirs(directory)
        log = self._add(topic_partition, 0, 0, clean_shutdown=False, config=config)
        if topic_id is not None:
            log.set_topic_id(topic_id)
        return log

    def _directory(self, topic_partition: TopicPartition) -> str:
        return f"{self.log_dir}/{directory_name(topic_partition)}"

    def delete(self, topic_partition: TopicPartition) -> None:
        """Take a log away; its files go later. Raises ``OSError``."""
        log = self._logs.get(topic_partition)
        if log is not None:
            target = self._rename_away(log, delete_directory_name)
            self._garbage.add_directory(target, self._wall_clock() + log.config.file_delete_delay_ms)
        elif topic_partition in self._prepared:
            del self._prepared[topic_partition]
            source = self._directory(topic_partition)
            if self._disk.is_dir(source):
                target = f"{self.log_dir}/{delete_directory_name(topic_partition, self._unique_id())}"
                self._disk.rename(source, target)
                self._garbage.add_directory(target, self._wall_clock())

    def set_aside(self, topic_partition: TopicPartition) -> str | None:
        """Take a log away and keep its files; return the path of its directory then. Raises ``OSError``."""
        log = self._logs.get(topic_partition)
        return None if log is None else self._rename_away(log, stray_directory_name)

    def _rename_away(self, log: PartitionLog, new_name: Callable[[TopicPartition, str], str]) -> str:
        log.release()
        target = f"{self.log_dir}/{new_name(log.topic_partition, self._unique_id())}"
        self._disk.rename(log.directory, target)
        del self._logs[log.topic_partition]
        return target

    def _unique_id(self) -> str:
        return f"{self._rng.getrandbits(128):032x}"

    def reconfigure(self, config: LogManagerConfig) -> None:
        """Go by other settings from now on. How often things are repeated is up to the caller of ``background``."""
        self.config = config
        for log in self:
            log.producer_state.producer_id_expiration_ms = config.producer_id_expiration_ms

    def update_config(self, topic: str) -> None:
        """The settings of a topic have changed."""
        for log in self:
            if log.topic_partition.topic == topic:
                log.update_config(self._log_config(topic))

    def _add(
        self,
        topic_partition: TopicPartition,
        recovery_point: int,
        log_start_offset: int,
        *,
        cleaned_offset: int = 0,
        clean_shutdown: bool,
        power_held: bool = False,
        config: LogConfig,
    ) -> PartitionLog:
        log = PartitionLog.open(
            self._disk,
            self._directory(topic_partition),
            topic_partition,
            config,
            wall_clock=self._wall_clock,
            rng=self._rng,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            cleaned_offset=cleaned_offset,
            clean_shutdown=clean_shutdown,
            power_held=power_held,
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
            space=self.space,
        )
        log.on_failure = self._log_failed
        log.on_checkpoints_lowered = self._checkpoints_lowered
        self._logs[topic_partition] = log
        return log

    # Failures

    def _log_failed(self, log: ReadableLog) -> None:
        self._failed = True
        self.on_log_failure(log)

    def _directory_failed(self, error: OSError) -> None:
        _log.error("%s failed: %s", self.log_dir, error)
        self._failed = True
        self.on_directory_failure(error)

    # Checkpoints

    def _read(self, checkpoint: OffsetCheckpoint) -> dict[TopicPartition, int]:
        offsets = self._written[checkpoint] = checkpoint.read() or {}
        return offsets

    def _write(self, checkpoint: OffsetCheckpoint, offsets: dict[TopicPartition, int]) -> None:
        if offsets != self._written.get(checkpoint):
            checkpoint.write(offsets)
            self._written[checkpoint] = offsets
        self._note_recovery_points(checkpoint, offsets)

    async def _write_off_loop(self, checkpoint: OffsetCheckpoint, offsets: dict[TopicPartition, int]) -> None:
        if offsets == self._written.get(checkpoint):
            return
        written = self._written.pop(checkpoint, None)
        self._either.pop(checkpoint, None)
        if written is not None:
            self._either[checkpoint] = written, offsets
        # What may be in the file from now on counts as being there, so that a truncation below rewrites it.
        self._note_recovery_points(checkpoint, offsets)
        await checkpoint.write_off_loop(offsets)
        self._written.setdefault(checkpoint, offsets)

    def _note_recovery_points(self, checkpoint: OffsetCheckpoint, offsets: dict[TopicPartition, int]) -> None:
        if checkpoint is self._recovery_points:
            for topic_partition, offset in offsets.items():
                self._logs[topic_partition].flush_state.checkpointed_recovery_point = offset

    def _checkpoints_lowered(self, log: PartitionLog) -> None:
        self._write(self._recovery_points, self._recovery_point_offsets())
        self._write(self._log_starts, self._log_start_offsets())
        self._write(self._cleaner_offsets, self._cleaner_checkpoint_offsets())

    def _note_boot(self) -> None:
        try:
            note_boot(self._disk, self.log_dir)
            self._boot_noted = True
        except OSError as error:
            if not is_passing(error):
                raise

    def _forget_checkpoints(self, topic_partition: TopicPartition) -> None:
        """Make sure that no checkpoint speaks of a log that had this name before."""
        current = (
            (self._recovery_points, self._recovery_point_offsets),
            (self._log_starts, self._log_start_offsets),
            (self._cleaner_offsets, self._cleaner_checkpoint_offsets),
        )
        for checkpoint, offsets in current:
            written = self._written.get(checkpoint)
            said = self._either.get(checkpoint, ()) if written is None else (written,)
            if not said or any(topic_partition in each for each in said):
                self._write(checkpoint, offsets())

    def _recovery_point_offsets(self) -> dict[TopicPartition, int]:
        return {name: log.recovery_point for name, log in self._logs.items()}

    def _log_start_offsets(self) -> dict[TopicPartition, int]:
        """Of the logs that do not begin where their first segment begins."""
        return {
            name: log.log_start_offset
            for name, log in self._logs.items()
            if log.log_start_offset > log.segments.first.base_offset
        }

    def _cleaner_checkpoint_offsets(self) -> dict[TopicPartition, int]:
        return {name: log.cleaned_offset for name, log in self._logs.items() if log.cleaned_offset > 0}

    async def checkpoint_recovery_points(self) -> None:
        await self._write_off_loop(self._recovery_points, self._recovery_point_offsets())
        if not self._boot_noted:
            self._note_boot()

    async def checkpoint_log_starts(self) -> None:
        await self._write_off_loop(self._log_starts, self._log_start_offsets())

    # Background

    def background(self) -> list[tuple[str, int, Callable[[], Awaitable[None]]]]:
        """What must be repeated beside requests until the broker stops: name, interval in ms, and what to do."""
        config = self.config
        work: list[tuple[str, int, Callable[[], Awaitable[None]]]] = [
            ("disk space", config.space_check_interval_ms, self.look_for_space),
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
            work.append(("log cleaner", config.cleaner_backoff_ms, self.clean))
        return [(name, interval_ms, self._watching(act)) for name, interval_ms, act in work]

    def _watching(self, act: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """The same, with the directory given up when an error shows that it is broken."""

        async def watched() -> None:
            try:
                await act()
            except OSError as error:
                if is_passing(error):
                    self.space.note(error, self.log_dir)
                    raise
                self._directory_failed(error)

        return watched

    async def _for_each_log(self, act: Callable[[PartitionLog], Awaitable[None]]) -> None:
        """Do something with every log. The first exception is raised when all have had their turn.

        Most acts find nothing to do and do not wait, so the loop has its turn after each portion of the logs.
        """
        failure: Exception | None = None
        for number, log in enumerate(self, 1):
            if number % _LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._logs.get(log.topic_partition) is not log:
                continue  # It was deleted meanwhile.
            try:
                await act(log)
            except Exception as error:
                error.add_note(f"with the log in {log.directory}")
                failure = failure or error
        if failure is not None:
            raise failure

    async def look_for_space(self) -> None:
        """See whether a full disk has room again."""
        self.space.look()

    async def apply_retention(self) -> None:
        """Delete what is too old or too much; give back the memory of what nobody reads."""

        async def retain(log: PartitionLog) -> None:
            await asyncio.sleep(0)
            log.delete_expired_segments(self._wall_clock())
            log.release_idle()

        await self._for_each_log(retain)

    async def flush_and_remove(self) -> None:
        """Flush closed segments, and logs that are to be flushed by time; remove files that are due."""
        now_ms = self._wall_clock()

        async def flush(log: PartitionLog) -> None:
            if log.garbage:
                self._garbage.add_files(log.garbage, now_ms + log.config.file_delete_delay_ms)
                log.garbage.clear()
            if log.has_unflushed_segments:
                await log.flush_closed_segments_off_loop()
            if log.config.flush_interval_ms < NO_LIMIT:
                await self._flush_by_time(log, now_ms)

        try:
            await self._for_each_log(flush)
        finally:
            await self._garbage.remove_due(now_ms)

    async def _flush_by_time(self, log: PartitionLog, now_ms: int) -> None:
        state = log.flush_state
        if log.flushed_offset == log.log_end_offset:
            state.unflushed_since_ms = None
        elif state.unflushed_since_ms is None:
            state.unflushed_since_ms = now_ms
        elif now_ms - state.unflushed_since_ms >= log.config.flush_interval_ms:
            state.unflushed_since_ms = None
            await log.flush_off_loop()

    async def expire_producers(self) -> None:
        async def expire(log: PartitionLog) -> None:
            await asyncio.sleep(0)
            log.producer_state.expire(self._wall_clock())

        await self._for_each_log(expire)

    async def clean(self) -> None:
        """Clean the compacted logs that are worth it, the dirtiest first."""
        await self._cleaner.clean(self._checkpoint_cleaner_offsets)

    async def _checkpoint_cleaner_offsets(self) -> None:
        await self._write_off_loop(self._cleaner_offsets, self._cleaner_checkpoint_offsets())

    @property
    def uncleanable_count(self) -> int:
        """How many logs the cleaner has set aside."""
        return sum(log.uncleanable for log in self._logs.values())


def _first_files(topic_id: bytes | None) -> dict[str, bytes]:
    """The files of a new log, and what is in them."""
    files = {offset_file_name(0, LOG_SUFFIX): b""}
    return files if topic_id is None else {PARTITION_METADATA: encode_topic_id(topic_id), **files}


async def _settle(logs: Iterator[PartitionLog]) -> None:
    for log in logs:
        try:
            if log.write_end():
                await log.flush_state.carry_out_off_loop(log.plan_full_flush(log.log_end_offset))
        except OSError as error:
            log.mark_failed(error)


def _parent(path: str) -> str:
    head, separator, _ = path.rstrip("/").rpartition("/")
    return head or separator or "."
