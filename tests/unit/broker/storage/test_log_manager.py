"""A data directory: start and end, creation and deletion of logs, checkpoints, and what runs in the background."""

import asyncio
import errno
import sys
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.broker.metrics.cleaner_metrics import cleaner_metrics
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.storage.disk import AlreadyLocked, LocalDisk
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_maintenance import LogMaintenance
from oncelog.broker.storage.log_manager import LogManager, LogManagerConfig
from oncelog.broker.storage.meta_properties import InvalidMetaProperties
from oncelog.broker.storage.partition_log import AppendInfo, AppendOrigin, PartitionLog
from oncelog.protocol.records.record_batch import NewRecord, build_batch
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.sim_disk import MachineStopped, SimDisk
from tests.unit.broker.batches import batch
from tests.unit.broker.metrics.test_monitor import values
from tests.unit.broker.storage.logs import append, content, must_append
from tests.unit.broker.turns import longest_turn
from tests.unit.broker.virtual_time import in_virtual_time

A, B = TopicPartition("a", 0), TopicPartition("b-x", 3)
ID_A, ID_B = b"a" * 16, b"b" * 16
NOW = 1_000_000


class Broker:
    """A log manager on a disk, and what it reported."""

    def __init__(self, disk: SimDisk, config: LogConfig | None = None, **options: int | bool) -> None:
        self.disk = disk
        self.config = config or LogConfig(segment_bytes=700, index_interval_bytes=100)
        self.now_ms = NOW
        self.options = LogManagerConfig(**options)  # type: ignore[arg-type]
        self.manager = self.new_manager()

    def new_manager(self) -> LogManager:
        self.failed_logs: list[object] = []
        self.failures: list[OSError] = []
        manager = LogManager(
            self.disk,
            "/data",
            log_config=lambda topic: self.config,
            wall_clock=lambda: self.now_ms,
            rng=Random(1),
            config=self.options,
        )
        manager.on_log_failure = self.failed_logs.append
        manager.on_directory_failure = self.failures.append
        return manager

    def start(self) -> LogManager:
        self.manager.start()
        return self.manager

    def restart(self) -> LogManager:
        self.manager.close(broker_epoch=42)
        self.manager = self.new_manager()
        return self.start()

    def kill(self) -> LogManager:
        self.disk.crash("process", Random(0))
        self.manager = self.new_manager()
        return self.start()

    def create(self, name: TopicPartition, topic_id: bytes) -> PartitionLog:
        return self.manager.create(name, self.config, topic_id)


@pytest.fixture
def broker() -> Broker:
    broker = Broker(SimDisk())
    broker.start()
    return broker


def fill(log: PartitionLog, count: int = 20, *, pid: int = 7) -> None:
    entry = log.producer_state.producers.get(pid)
    first = 0 if entry is None else entry.last_sequence + 1
    for sequence in range(first, first + count):
        must_append(log, batch(b"v" * 60, producer_id=pid, epoch=0, sequence=sequence))


def log_of(manager: LogManager, name: TopicPartition = A) -> PartitionLog:
    log = manager.get(name)
    assert log is not None
    return log


# Strays


@pytest.mark.parametrize("clean", [True, False])
def test_log_that_is_set_aside_keeps_its_files_and_is_not_loaded_again(broker: Broker, clean: bool) -> None:
    fill(broker.create(A, ID_A))
    size = broker.disk.file_size(f"/data/{A}/{0:020d}.log")
    path = broker.manager.set_aside(A)
    assert path is not None
    assert broker.manager.get(A) is None
    assert broker.manager.set_aside(A) is None
    fill(broker.create(A, ID_B), 3)
    manager = broker.restart() if clean else broker.kill()
    assert [(log.topic_partition, log.topic_id) for log in manager] == [(A, ID_B)]
    assert broker.disk.file_size(f"{path}/{0:020d}.log") == size


# Start and end


def test_empty_directory_loads_no_logs(broker: Broker) -> None:
    assert (len(broker.manager), broker.manager.directory.previous_broker_epoch) == (0, None)
    assert broker.disk.list_dir("/data") == [".lock", "machine-boot"]


@pytest.mark.parametrize("clean", [True, False])
def test_logs_come_back(broker: Broker, clean: bool) -> None:
    fill(broker.create(A, ID_A))
    fill(broker.create(B, ID_B), 3)
    before = {log.topic_partition: content(log) for log in broker.manager}
    manager = broker.restart() if clean else broker.kill()
    assert manager.directory.previous_broker_epoch == (42 if clean else None)
    assert {log.topic_partition: content(log) for log in manager} == before
    assert (log_of(manager).topic_id, log_of(manager, B).topic_id) == (ID_A, ID_B)
    assert log_of(manager).recovery_point == (20 if clean else 0)


def test_mark_of_a_clean_shutdown_counts_once(broker: Broker) -> None:
    broker.create(A, ID_A)
    assert broker.restart().directory.previous_broker_epoch == 42
    assert not broker.disk.exists("/data/.kafka_cleanshutdown")
    assert broker.kill().directory.previous_broker_epoch is None


def test_failed_log_leaves_no_mark(broker: Broker) -> None:
    log = broker.create(A, ID_A)
    fill(log)
    broker.disk.fail("append", ".log")
    append(log, batch())
    assert broker.failed_logs == [log]
    assert broker.restart().directory.previous_broker_epoch is None
    assert log_of(broker.manager).log_end_offset == 20


async def test_failed_log_is_damaged_at_the_next_start(broker: Broker) -> None:
    """B105: a page that could not be written may be gone from the page cache, too."""
    await broker.manager.directory.intact.note_registration(7)
    log = broker.create(A, ID_A)
    fill(log)
    broker.disk.fail("append", ".log")
    append(log, batch())
    assert broker.kill().directory.intact.epochs is None


async def test_log_that_recovery_cuts_is_damaged_although_power_held(broker: Broker) -> None:
    """B105: a kill leaves whole batches; and what is cut off stays missing after the next kill."""
    await broker.manager.directory.intact.note_registration(7)
    fill(broker.create(A, ID_A))
    assert broker.kill().directory.intact.since == 7
    log = log_of(broker.manager)
    name = f"{log.directory}/{log.segments[-1].base_offset:020d}.log"
    file = broker.disk.open(name)
    file.truncate(file.size() - 1)
    assert broker.kill().directory.intact.epochs is None
    assert broker.kill().directory.intact.epochs is None


def test_close_that_fails_leaves_no_mark(broker: Broker) -> None:
    fill(broker.create(A, ID_A))
    broker.disk.fail("append", "recovery-point-offset-checkpoint.tmp")
    assert broker.restart().directory.previous_broker_epoch is None


async def test_settle_syncs_several_logs_at_once_and_leaves_nothing_for_close(broker: Broker) -> None:
    names = [TopicPartition("many", index) for index in range(6)]
    for name in names:
        fill(broker.create(name, ID_A), 3)
    under_way, most = 0, 0

    async def delay() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1

    broker.disk.delay = delay
    await broker.manager.settle()
    assert most == len(names)
    before = broker.disk.calls["sync"]
    broker.manager.close(broker_epoch=42)
    assert broker.disk.calls["sync"] - before <= 4, "checkpoints and the mark"
    broker.disk.crash("power", Random(3))
    assert broker.manager.is_closed_cleanly
    broker.manager = broker.new_manager()
    assert broker.start().directory.previous_broker_epoch == 42
    assert [log_of(broker.manager, name).log_end_offset for name in names] == [3] * len(names)
    assert all(log_of(broker.manager, name).producer_state.producers for name in names)


async def test_log_that_cannot_be_settled_fails_alone_and_there_is_no_mark(broker: Broker) -> None:
    fill(broker.create(A, ID_A))
    fill(broker.create(B, ID_B), 3)
    broker.disk.fail("sync", ".log")
    await broker.manager.settle()
    assert len(broker.failed_logs) == 1
    assert broker.restart().directory.previous_broker_epoch is None


@pytest.mark.parametrize("path_ending", [".snapshot.tmp", ".index", "leader-epoch-checkpoint.tmp"])
async def test_stop_without_room_for_small_files_fails_no_log_and_leaves_no_mark(
    path_ending: str, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Recovery derives these files from the batches. One line says why there is no mark."""
    fill(broker.create(A, ID_A))
    fill(broker.create(B, ID_B), 3)
    before = {log.topic_partition: content(log) for log in broker.manager}
    broker.disk.fail("append", path_ending, error=errno.ENOSPC, times=1_000)
    await broker.manager.settle()
    broker.manager.close(broker_epoch=42)
    assert not broker.failed_logs
    errors = messages(caplog, "ERROR")
    assert len(errors) == 1, errors
    assert "/data was not closed cleanly" in errors[0]
    assert not broker.manager.is_closed_cleanly
    broker.disk.make_room()
    manager = broker.manager = broker.new_manager()
    broker.start()
    assert manager.directory.previous_broker_epoch is None
    assert {log.topic_partition: content(log) for log in manager} == before


def test_start_that_cannot_flush_for_lack_of_room_fails_no_log(broker: Broker) -> None:
    broker.config = replace(broker.config, flush_interval_messages=1)
    fill(broker.create(A, ID_A))
    broker.disk.crash("process", Random(0))
    broker.disk.fail("append", ".index", error=errno.ENOSPC)
    broker.manager = broker.new_manager()
    log = log_of(broker.start())
    assert (log.failed, log.flushed_offset, log.log_end_offset) == (False, 0, 20)
    assert broker.manager.space.is_full
    must_append(log, batch())


def test_directory_locked_by_one_broker_refuses_another(broker: Broker) -> None:
    other = broker.new_manager()
    with pytest.raises(AlreadyLocked):
        other.start()
    broker.manager.close()
    other.start()
    other.close()


def test_load_that_fails_releases_the_lock() -> None:
    broker = Broker(SimDisk())
    broker.disk.make_dirs("/data")
    broker.disk.fail("list_dir", "/data")
    with pytest.raises(OSError, match="list_dir"):
        broker.start()
    assert broker.start().get(A) is None


def test_claim_of_a_directory_of_another_owner_is_refused(broker: Broker) -> None:
    broker.manager.directory.claim(1, None)
    broker.manager.directory.claim(1, "cluster")
    broker.manager.directory.claim(1, None)
    assert broker.disk.read("/data/meta.properties") == b"#\nbroker.id=1\nversion=0\ncluster.id=cluster\n"
    for broker_id, cluster_id in ((2, "cluster"), (1, "other")):
        with pytest.raises(InvalidMetaProperties):
            broker.manager.directory.claim(broker_id, cluster_id)


def test_names_that_are_no_partitions_are_ignored(broker: Broker) -> None:
    broker.disk.make_dirs("/data/lost+found")
    broker.disk.make_dirs("/data/t-0.abc-future")
    broker.disk.write_atomic("/data/notes-1", b"a file")
    broker.disk.write_atomic("/data/recovery-point-offset-checkpoint.3.tmp", b"x")
    broker.disk.write_atomic("/data/somebody-elses.tmp", b"x")
    assert len(broker.restart()) == 0
    names = broker.disk.list_dir("/data")
    assert {"lost+found", "t-0.abc-future", "notes-1", "somebody-elses.tmp"} <= set(names)
    assert "recovery-point-offset-checkpoint.3.tmp" not in names


def test_broken_checkpoints_keep_nothing_from_loading(broker: Broker) -> None:
    log = broker.create(A, ID_A)
    fill(log)
    broker.restart()
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"):
        broker.disk.write_atomic(f"/data/{name}", b"\0\0\0")
    assert log_of(broker.kill()).log_end_offset == 20


# Creation and deletion


async def test_deleted_log_goes_at_once_and_its_files_later(broker: Broker) -> None:
    broker.config = LogConfig(file_delete_delay_ms=1000)
    fill(broker.create(A, ID_A))
    broker.manager.delete(A)
    broker.manager.delete(B)
    assert broker.manager.get(A) is None
    (name,) = [name for name in broker.disk.list_dir("/data") if name.endswith("-delete")]
    assert name.startswith("a-0.")
    await LogMaintenance(broker.manager).flush_and_remove()
    assert broker.disk.exists(f"/data/{name}")
    broker.now_ms += 1000
    await LogMaintenance(broker.manager).flush_and_remove()
    assert not broker.disk.exists(f"/data/{name}")


async def test_directories_left_from_a_deletion_go_after_a_restart(broker: Broker) -> None:
    fill(broker.create(A, ID_A))
    broker.manager.delete(A)
    manager = broker.kill()
    assert manager.get(A) is None
    await LogMaintenance(manager).flush_and_remove()
    assert not [name for name in broker.disk.list_dir("/data") if name.endswith("-delete")]


async def test_new_log_has_nothing_of_one_that_had_its_name(broker: Broker) -> None:
    """Checkpoints are about logs, not names: a log start of 30 would empty a new log of 5 records."""
    log = broker.create(A, ID_A)
    fill(log, 30)
    log.update_high_watermark(30)
    log.advance_log_start_offset(29)
    log.roll()
    await LogMaintenance(broker.manager).flush_and_remove()
    await LogMaintenance(broker.manager).checkpoint_recovery_points()
    await LogMaintenance(broker.manager).checkpoint_log_starts()
    broker.manager.delete(A)
    fill(broker.create(A, ID_B), 5)
    log = log_of(broker.kill())
    assert (log.log_start_offset, log.log_end_offset, log.topic_id) == (0, 5, ID_B)


# Checkpoints


async def test_recovery_points_follow_the_flush_of_closed_segments(broker: Broker) -> None:
    log = broker.create(A, ID_A)
    fill(log)
    assert log.recovery_point == 0
    await LogMaintenance(broker.manager).flush_and_remove()
    assert log.recovery_point == log.segments.active.base_offset > 0
    await LogMaintenance(broker.manager).checkpoint_recovery_points()
    text = broker.disk.read("/data/recovery-point-offset-checkpoint")
    assert text == b"0\n1\na 0 %d\n" % log.recovery_point
    writes = broker.disk.calls["rename"]
    await LogMaintenance(broker.manager).checkpoint_recovery_points()
    assert broker.disk.calls["rename"] == writes, "nothing has changed"


async def test_truncation_below_the_recovery_point_lowers_it_on_disk_first(broker: Broker) -> None:
    log = broker.create(A, ID_A)
    fill(log)
    await LogMaintenance(broker.manager).flush_and_remove()
    await LogMaintenance(broker.manager).checkpoint_recovery_points()
    log.truncate_to(2)
    assert broker.disk.read("/data/recovery-point-offset-checkpoint") == b"0\n1\na 0 0\n"


async def test_checkpoint_that_is_being_written_gives_way_to_a_truncation(broker: Broker) -> None:
    log = broker.create(A, ID_A)
    fill(log)
    await LogMaintenance(broker.manager).flush_and_remove()

    async def truncate() -> None:
        broker.disk.delay = None
        log.truncate_to(2)

    broker.disk.delay = truncate
    await LogMaintenance(broker.manager).checkpoint_recovery_points()
    assert broker.disk.read("/data/recovery-point-offset-checkpoint") == b"0\n1\na 0 0\n"
    fill(log)
    await LogMaintenance(broker.manager).checkpoint_recovery_points()
    assert broker.disk.read("/data/recovery-point-offset-checkpoint") == b"0\n1\na 0 0\n"


async def test_log_starts_are_written_where_they_are_not_plain(broker: Broker) -> None:
    log = broker.create(A, ID_A)
    broker.create(B, ID_B)
    fill(log)
    log.update_high_watermark(20)
    log.advance_log_start_offset(9)
    await LogMaintenance(broker.manager).checkpoint_log_starts()
    assert broker.disk.read("/data/log-start-offset-checkpoint") == b"0\n1\na 0 9\n"
    assert log_of(broker.kill()).log_start_offset == 9


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "append", "flush", "checkpoint", "truncate", "recreate", "restart"]),
            st.integers(0, 1000),
        ),
        max_size=25,
    ),
    st.integers(0, 15_000),
    st.integers(0, 2**32),
)
def test_logs_after_a_power_loss_are_prefixes_with_all_that_was_flushed(
    steps: list[tuple[str, int]], units: int, seed: int
) -> None:
    broker = Broker(SimDisk())
    broker.disk.make_dirs("/data")
    broker.disk.sync_dir("/")
    flushed: list[bytes | None] = []
    broker.start()
    broker.disk.stop_after(units)
    try:
        broker.create(A, ID_A)
        for number, (step, argument) in enumerate(steps):
            log = log_of(broker.manager)
            if step == "append":
                must_append(log, batch(b"%d" % number + b"v" * (argument % 200)), number)
            elif step == "flush":
                asyncio.run(_flush(broker.manager, log))
                flushed = [value for offset, _, value in content(log) if offset < log.flushed_offset]
            elif step == "checkpoint":
                asyncio.run(LogMaintenance(broker.manager).checkpoint_recovery_points())
            elif step == "truncate":
                offset = log.log_end_offset * (argument % 8) // 8
                flushed = flushed[:offset]
                log.truncate_to(offset)
            elif step == "recreate":
                flushed = []
                broker.manager.delete(A)
                broker.create(A, b"%16d" % number)
            else:
                broker.restart()
                flushed = [value for _, _, value in content(log_of(broker.manager))]
    except MachineStopped:
        pass
    broker.disk.crash("power", Random(seed))
    broker.manager = broker.new_manager()
    manager = broker.start()
    log = manager.get(A)
    if flushed:
        assert log is not None
        assert [value for _, _, value in content(log)][: len(flushed)] == flushed
    for log in manager:
        assert isinstance(append(log, batch(b"after"), 10_000), AppendInfo)


async def _flush(manager: LogManager, log: PartitionLog) -> None:
    await LogMaintenance(manager).flush_and_remove()
    await log.flush_off_loop()


# Failures


async def test_flush_of_a_log_that_is_deleted_meanwhile_is_no_failure(broker: Broker) -> None:
    log = broker.create(A, ID_A)
    fill(log)

    async def delete_meanwhile() -> None:
        broker.disk.delay = None
        broker.manager.delete(A)

    broker.disk.delay = delete_meanwhile
    await log.flush_off_loop()
    assert (broker.failed_logs, broker.failures) == ([], [])
    assert broker.restart().directory.previous_broker_epoch == 42, "the directory was not marked as closed cleanly"


async def test_checkpoint_that_cannot_be_written_fails_the_directory(broker: Broker) -> None:
    fill(broker.create(A, ID_A))
    broker.options = LogManagerConfig(recovery_point_checkpoint_interval_ms=1)
    broker.disk.fail("sync", ".tmp", error=errno.EIO)
    await LogMaintenance(broker.manager).flush_and_remove()
    with pytest.raises(OSError, match="sync"):
        await LogMaintenance(broker.manager).checkpoint_recovery_points()


@in_virtual_time
async def test_background_work_reports_what_fails() -> None:
    broker = Broker(SimDisk(), recovery_point_checkpoint_interval_ms=50)
    broker.start()
    fill(broker.create(A, ID_A))
    broker.disk.fail("open", ".tmp", error=errno.EIO)
    await run_background(broker.manager, seconds=0.2)
    assert [error.errno for error in broker.failures] == [errno.EIO]
    assert broker.restart().directory.previous_broker_epoch is None


@in_virtual_time
async def test_background_work_on_a_full_disk_is_repeated_and_the_directory_is_kept() -> None:
    broker = Broker(SimDisk(), recovery_point_checkpoint_interval_ms=50)
    broker.start()
    fill(broker.create(A, ID_A))
    broker.disk.fail("append", ".tmp", error=errno.ENOSPC)
    supervisor = await run_background(broker.manager, seconds=0.2)
    assert supervisor.failures["recovery point checkpoint"] == 1
    assert not supervisor.failing
    assert not broker.failures
    assert broker.restart().directory.previous_broker_epoch is not None


class TestCleanerOnAFullDisk:
    CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100, cleanup_policy=frozenset({"compact"}))

    async def run(self, broker: Broker, maintenance: LogMaintenance, rounds: int, interval_ms: int) -> None:
        for _ in range(rounds):
            broker.now_ms += interval_ms
            await maintenance.flush_and_remove()
            await maintenance.clean()

    @pytest.mark.parametrize("path_ending", [".index", ".log.cleaned"])
    async def test_cleaner_without_room_warns_once_in_a_while_and_cleans_later(
        self, path_ending: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Without its indexes a closed segment is not flushed, and what is not flushed is not cleaned."""
        broker = Broker(SimDisk(), self.CONFIG)
        broker.start()
        for name in (A, B):
            log = broker.create(name, ID_A)
            for number in range(20):
                must_append(log, keyed(number % 2))
            log.update_high_watermark(log.log_end_offset)
        broker.disk.fail("append", path_ending, error=errno.ENOSPC, times=1_000)
        maintenance = LogMaintenance(broker.manager)
        await self.run(broker, maintenance, 20, 15_000)
        warnings = [text for text in messages(caplog, "WARNING") if "cannot clean" in text]
        assert len(warnings) == 1
        assert all(part in warnings[0] for part in ("a-0, b-x-3", "log.dirs", "/data", "Free space"))
        await self.run(broker, maintenance, 20, 15_000)
        warnings = [text for text in messages(caplog, "WARNING") if "clean" in text]
        assert len(warnings) == 2
        assert not broker.failed_logs
        broker.disk.make_room()
        caplog.clear()
        await self.run(broker, maintenance, 50, 15_000)
        assert [log.cleaned_offset > 0 for log in broker.manager] == [True, True]
        assert not messages(caplog, "WARNING")

    async def test_full_disk_warning_names_no_log_that_is_not_compacted(self, caplog: pytest.LogCaptureFixture) -> None:
        broker = Broker(SimDisk())
        broker.start()
        fill(broker.create(A, ID_A))
        broker.disk.fail("append", ".index", error=errno.ENOSPC, times=1_000)
        await self.run(broker, LogMaintenance(broker.manager), 5, 15_000)
        assert not messages(caplog, "WARNING")

    async def test_warning_for_many_logs_names_some_and_the_number_of_the_others(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker = Broker(SimDisk(), self.CONFIG)
        broker.start()
        for index in range(12):
            log = broker.create(TopicPartition("many", index), ID_A)
            for number in range(20):
                must_append(log, keyed(number % 2))
        broker.disk.fail("append", ".index", error=errno.ENOSPC, times=1_000)
        await self.run(broker, LogMaintenance(broker.manager), 1, 15_000)
        (warning,) = messages(caplog, "WARNING")
        assert "many-4 and 7 others" in warning
        assert "many-5" not in warning


def keyed(key: int) -> bytearray:
    return build_batch([NewRecord(NOW, b"%d" % key, b"v" * 60)])


def messages(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == level]


@in_virtual_time
async def test_background_work_with_one_log_that_raises_is_done_for_the_others_and_repeated() -> None:
    config = LogConfig(segment_bytes=700, retention_ms=1, file_delete_delay_ms=500)
    broker = Broker(SimDisk(), config, retention_check_interval_ms=1_000)
    broker.start()
    bad, good = broker.create(A, ID_A), broker.create(B, ID_B)
    for log in (bad, good):
        fill(log)
        log.update_high_watermark(20)
    broker.now_ms += 10**9
    bad.config = None  # type: ignore[assignment] # What is broken inside raises whatever it raises.
    supervisor = await run_background(broker.manager, seconds=30)
    assert good.log_start_offset == 20
    assert supervisor.failures["log retention"] > 1
    assert "AttributeError" in supervisor.failing["log retention"].error
    bad.config = config
    await run_background(broker.manager, seconds=30)
    assert bad.log_start_offset == 20


async def run_background(manager: LogManager, seconds: float) -> Supervisor:
    supervisor = Supervisor()
    for name, interval_ms, act in LogMaintenance(manager).background():
        supervisor.repeat(act, name, interval_ms / 1000)
    await asyncio.sleep(seconds)
    await supervisor.stop()
    return supervisor


# Background


@in_virtual_time
async def test_background_tasks_run_at_their_intervals() -> None:
    broker = Broker(SimDisk(), LogConfig(segment_bytes=700, retention_ms=1, file_delete_delay_ms=500))
    broker.start()
    log = broker.create(A, ID_A)
    fill(log)
    log.update_high_watermark(20)
    broker.now_ms += 10**9
    await run_background(broker.manager, seconds=700)
    assert log.log_start_offset == 20
    assert log.producer_state.producers == {}
    assert broker.disk.read("/data/recovery-point-offset-checkpoint") == b"0\n1\na 0 20\n"
    assert [name for name in broker.disk.list_dir("/data/a-0") if name.endswith(".deleted")]
    broker.now_ms += 500
    await run_background(broker.manager, seconds=2)
    assert [name for name in broker.disk.list_dir("/data/a-0") if name.endswith((".log", ".deleted"))] == [
        f"{20:020}.log"
    ]


@in_virtual_time
async def test_logs_are_flushed_by_time() -> None:
    broker = Broker(SimDisk(), LogConfig(flush_interval_ms=3000))
    broker.start()
    log = broker.create(A, ID_A)
    fill(log, 5)
    for expected in (0, 0, 5):
        broker.now_ms += 1500
        await LogMaintenance(broker.manager).flush_and_remove()
        assert log.flushed_offset == expected


@in_virtual_time
async def test_logs_are_flushed_by_time_although_the_clock_was_set_back() -> None:
    broker = Broker(SimDisk(), LogConfig(flush_interval_ms=3000))
    broker.start()
    log = broker.create(A, ID_A)
    fill(log, 5)
    await LogMaintenance(broker.manager).flush_and_remove()
    broker.now_ms -= 600_000
    for expected in (0, 0, 5):
        await LogMaintenance(broker.manager).flush_and_remove()
        assert log.flushed_offset == expected
        broker.now_ms += 1500


async def test_compacted_logs_are_cleaned_and_where_is_remembered() -> None:
    config = LogConfig(segment_bytes=700, cleanup_policy=frozenset({"compact"}))
    broker = Broker(SimDisk(), config)
    broker.start()
    for name in (A, B):
        log = broker.create(name, ID_A)
        for number in range(60):
            data = build_batch([NewRecord(NOW, b"key%d" % (number % 3), b"value%d" % number)])
            must_append(log, data, origin=AppendOrigin.COORDINATOR)
        log.update_high_watermark(60)
    await LogMaintenance(broker.manager).flush_and_remove()
    before = log_of(broker.manager).size
    await LogMaintenance(broker.manager).clean()
    for name in (A, B):
        assert log_of(broker.manager, name).size < before / 2
    base = log_of(broker.manager).segments.active.base_offset
    text = broker.disk.read("/data/cleaner-offset-checkpoint")
    assert sorted(text.decode().splitlines()) == ["0", "2", f"a 0 {base}", f"b-x 3 {base}"]
    writes = broker.disk.calls["append"]
    await LogMaintenance(broker.manager).clean()
    assert broker.disk.calls["append"] == writes, "it is clean"
    manager = broker.restart()
    await LogMaintenance(manager).clean()
    assert {value for _, _, value in content(log_of(manager))} >= {b"value57", b"value58", b"value59"}


def put(log: PartitionLog, key: bytes, value: bytes | None) -> None:
    must_append(log, build_batch([NewRecord(NOW, key, value)]), origin=AppendOrigin.COORDINATOR)


COMPACT = LogConfig(segment_bytes=700, cleanup_policy=frozenset({"compact"}), min_cleanable_ratio=0.01)


async def clean(broker: Broker, *names: TopicPartition) -> None:
    for name in names:
        log = log_of(broker.manager, name)
        log.roll()
        log.update_high_watermark(log.log_end_offset)
    await LogMaintenance(broker.manager).flush_and_remove()
    await LogMaintenance(broker.manager).clean()


async def test_log_that_cannot_be_cleaned_is_set_aside_and_others_are_cleaned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker(SimDisk(), COMPACT)
    broker.start()
    for name in (A, B):
        log = broker.create(name, ID_A)
        for number in range(60):
            put(log, b"key%d" % (number % 3), b"value%d" % number)
    damaged, whole = log_of(broker.manager, A), log_of(broker.manager, B)
    put(damaged, b"key0", b"more")  # So that it is the dirtier one, and the first.
    damaged.segments.first.file.write_at(b"\x7f", 9)  # In the length of the first batch.
    before = whole.size
    for _ in range(3):
        await clean(broker, A, B)
    assert whole.size < before / 2
    assert (damaged.uncleanable, damaged.failed, whole.uncleanable) == (True, False, False)
    assert broker.manager.uncleanable() == [damaged]
    measured = values(cleaner_metrics(broker.manager, Supervisor()))
    assert measured["kafka_log_logcleanermanager_uncleanable_partitions_count//data"] == 1
    assert measured["kafka_log_logcleanermanager_uncleanable_bytes//data"] > 0
    assert 0 < measured["kafka_log_logcleaner_cleaner_recopy_percent"] < 50
    assert 0 < measured["kafka_log_logcleaner_max_buffer_utilization_percent"] < 1
    assert measured["kafka_log_logcleanermanager_max_dirty_percent"] == 0, "the last round found nothing to do"
    assert measured["kafka_log_logcleanermanager_time_since_last_run_ms"] >= 0
    assert measured["kafka_log_logcleaner_deadthreadcount"] == 0
    lines = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(lines) == 1
    assert "/data/a-0" in lines[0]
    broker.manager.delete(A)
    broker.create(A, ID_B)
    assert broker.manager.uncleanable() == []


async def test_unexpected_exception_of_one_log_sets_it_aside(caplog: pytest.LogCaptureFixture) -> None:
    """A time index that has been cut inside an entry, say: the log cannot even be judged."""
    broker = Broker(SimDisk(), replace(COMPACT, min_compaction_lag_ms=1))
    broker.start()
    for name in (A, B):
        log = broker.create(name, ID_A)
        for number in range(60):
            put(log, b"key%d" % (number % 3), b"value%d" % number)
    await clean(broker)
    manager = broker.restart()
    broken = log_of(manager, A)
    index = broken.segments.first.indexes.time.file.path
    broker.disk.open(index).truncate(5)
    broker.now_ms += 10
    await clean(broker, A, B)
    assert (broken.uncleanable, broken.failed) == (True, False)
    assert log_of(manager, B).cleaned_offset > 0


async def test_truncation_lowers_the_cleaned_offset_on_disk_first() -> None:
    """A crash must not bring back the offset from before: what was written since would count as cleaned."""
    for crashes in (False, True):
        broker = Broker(SimDisk(), COMPACT)
        broker.start()
        log = broker.create(A, ID_A)
        put(log, b"a", b"old")
        for number in range(5):
            put(log, b"b%d" % number, b"1")
        await clean(broker, A)
        log.truncate_to(1)
        put(log, b"a", None)
        log.roll()
        for _ in range(10):
            put(log, b"c", b"1")
        if crashes:
            log = log_of(broker.kill())
        for _ in range(5):
            await clean(broker, A)
            broker.now_ms += 10**9
            put(log, b"c", b"1")
        assert not [value for _, key, value in content(log) if key == b"a" and value is not None]


async def test_truncation_during_a_pass_is_not_undone_by_its_end() -> None:
    broker = Broker(SimDisk(), COMPACT)
    broker.start()
    log = broker.create(A, ID_A)
    put(log, b"a", b"1")
    await clean(broker, A)
    assert log.cleaned_offset == 1
    put(log, b"b", b"1")
    log.roll()
    log.update_high_watermark(2)
    await LogMaintenance(broker.manager).flush_and_remove()

    async def truncate() -> None:
        broker.disk.delay = None
        log.truncate_to(0)

    broker.disk.delay = truncate
    await LogMaintenance(broker.manager).clean()
    assert log.cleaned_offset == 0
    assert log_of(broker.kill()).cleaned_offset == 0


@pytest.mark.parametrize(("checkpointed", "cleaned"), [(2, 2), (3, 3), (5, 3), (6, 3), (7, 0), (1000, 0)])
async def test_checkpointed_cleaned_offset_beyond_the_log_is_forgotten_at_once(checkpointed: int, cleaned: int) -> None:
    broker = Broker(SimDisk(), COMPACT)
    broker.start()
    log = broker.create(A, ID_A)
    for number in range(6):
        put(log, b"key%d" % number, b"1")
        if number == 2:
            log.roll()
    assert log.segments.active.base_offset == 3
    broker.disk.write_atomic("/data/cleaner-offset-checkpoint", b"0\n2\na 0 %d\ngone 0 9\n" % checkpointed)
    manager = broker.kill()
    assert log_of(manager).cleaned_offset == cleaned
    assert broker.disk.read("/data/cleaner-offset-checkpoint") == (
        b"0\n1\na 0 %d\n" % cleaned if cleaned else b"0\n0\n"
    )
    gone = broker.create(TopicPartition("gone", 0), ID_B)
    assert gone.cleaned_offset == 0


@pytest.mark.parametrize(
    ("was_noted", "lost_power", "end_offset"),
    [(True, False, 2), (True, True, 0), (False, False, 2), (False, True, 2)],
)
async def test_gap_of_a_compacted_log_is_accepted_unless_the_machine_lost_power(
    was_noted: bool, lost_power: bool, end_offset: int
) -> None:
    """Earlier releases note no boot, and do leave gaps when they are killed while they clean."""
    broker = Broker(SimDisk(), COMPACT)
    broker.start()
    log = broker.create(A, ID_A)
    put(log, b"a", b"1")
    log.roll()
    put(log, b"b", b"1")
    log.flush()
    log.segments.first.cut(0)
    log.segments.first.file.sync()
    if not was_noted:
        broker.disk.remove("/data/machine-boot")
        broker.disk.sync_dir("/data")
    broker.disk.crash("power" if lost_power else "process", Random(0))
    broker.manager = broker.new_manager()
    assert log_of(broker.start()).log_end_offset == end_offset
    assert broker.disk.exists("/data/machine-boot") == was_noted
    await LogMaintenance(broker.manager).checkpoint_recovery_points()
    assert broker.disk.exists("/data/machine-boot")


async def test_cleaned_offset_is_lowered_whatever_the_cleanup_policy_is_meanwhile() -> None:
    broker = Broker(SimDisk(), COMPACT)
    broker.start()
    log = broker.create(A, ID_A)
    put(log, b"a", b"old")
    put(log, b"b", b"1")
    await clean(broker, A)
    broker.config = LogConfig(segment_bytes=700)
    broker.manager.update_config("a")
    log.truncate_to(1)
    put(log, b"a", None)
    broker.config = COMPACT
    broker.manager.update_config("a")
    assert log.cleaned_offset == 0


async def test_max_compaction_lag_has_a_log_cleaned_however_little_is_dirty() -> None:
    config = replace(COMPACT, min_cleanable_ratio=1.0, segment_bytes=100_000, max_compaction_lag_ms=1000)
    broker = Broker(SimDisk(), config)
    broker.start()
    log = broker.create(A, ID_A)
    put(log, b"a", b"1")
    must_append(log, build_batch([NewRecord(NOW + 1001, b"a", b"2")]), origin=AppendOrigin.COORDINATOR)
    assert len(log.segments) == 2, "a segment takes no appends for longer than the lag"
    log.update_high_watermark(2)
    await LogMaintenance(broker.manager).flush_and_remove()
    broker.now_ms = NOW + 1000
    await LogMaintenance(broker.manager).clean()
    assert log.cleaned_offset == 0
    broker.now_ms = NOW + 1001
    await LogMaintenance(broker.manager).clean()
    assert log.cleaned_offset == 1


async def test_idle_segments_give_back_what_they_hold(broker: Broker) -> None:
    log = broker.create(A, ID_A)
    fill(log)
    await LogMaintenance(broker.manager).flush_and_remove()
    before = content(log)
    for _ in range(2):
        await LogMaintenance(broker.manager).apply_retention()
    assert {segment._file is None for segment in log.segments.closed} == {True}
    assert content(log) == before


def test_settings_of_a_topic_reach_its_logs(broker: Broker) -> None:
    log, other = broker.create(A, ID_A), broker.create(B, ID_B)
    broker.config = LogConfig(segment_bytes=99)
    broker.manager.update_config("a")
    assert (log.config.segment_bytes, other.config.segment_bytes) == (99, 700)


def test_real_directory_is_loaded_and_closed(tmp_path) -> None:
    for expected in (0, 30, 60):
        manager = LogManager(
            LocalDisk(),
            str(tmp_path / "data"),
            log_config=lambda topic: LogConfig(segment_bytes=700),
            wall_clock=lambda: NOW,
            rng=Random(1),
        )
        manager.start()
        log = manager.get(A) or manager.create(A, LogConfig(segment_bytes=700), ID_A)
        assert log.log_end_offset == len(content(log)) == expected
        fill(log, 30)
        manager.close()
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        ".kafka_cleanshutdown",
        ".lock",
        "a-0",
        "machine-boot",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ]


def calls_to_create(broker: Broker, name: TopicPartition) -> int:
    """The Python functions that are called while a log is made."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        broker.manager.create(name, broker.config, ID_A)
    finally:
        sys.setprofile(None)
    return calls


def test_log_manager_with_many_logs_creates_one_at_the_same_cost(broker: Broker) -> None:
    first = calls_to_create(broker, TopicPartition("t", 0))
    for index in range(1, 200):
        broker.manager.create(TopicPartition("t", index), broker.config, ID_A)
    assert calls_to_create(broker, TopicPartition("t", 200)) < first + 20


async def test_logs_with_nothing_to_flush_are_looked_at_in_portions(broker: Broker) -> None:
    for index in range(3_000):
        broker.create(TopicPartition("wide", index), ID_A)
    _, lines = await longest_turn(LogMaintenance(broker.manager).flush_and_remove)
    assert lines < 10_000  # At once it would be 27,000.


async def test_log_deleted_while_others_are_flushed_is_left_alone(broker: Broker) -> None:
    for index in range(1_000):
        broker.create(TopicPartition("wide", index), ID_A)
    last = TopicPartition("wide", 999)
    fill(log_of(broker.manager, last))
    async with asyncio.TaskGroup() as group:
        group.create_task(LogMaintenance(broker.manager).flush_and_remove())
        await asyncio.sleep(0)
        broker.manager.delete(last)
    assert broker.failures == []


async def test_files_that_cannot_be_removed_are_tried_again(broker: Broker) -> None:
    broker.config = LogConfig(file_delete_delay_ms=0)
    broker.create(A, ID_A)
    broker.manager.delete(A)
    (name,) = [name for name in broker.disk.list_dir("/data") if name.endswith("-delete")]
    broker.disk.fail("remove", name, error=errno.EBUSY)
    with pytest.raises(OSError, match="remove"):
        await LogMaintenance(broker.manager).flush_and_remove()
    await LogMaintenance(broker.manager).flush_and_remove()
    assert not broker.disk.exists(f"/data/{name}")
