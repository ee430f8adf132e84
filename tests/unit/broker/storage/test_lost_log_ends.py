"""Logs that have lost their end while the machine ran: which count as damaged at the next start, and which must not."""

from collections.abc import Callable
from random import Random

import pytest

from oncelog.broker.storage.intact_logs import IntactEpochs
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_maintenance import LogMaintenance
from oncelog.broker.storage.log_manager import LogManager
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.sim_disk import MachineStopped, SimDisk
from tests.unit.broker.batches import batch
from tests.unit.broker.storage.logs import must_append

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
ID_A, ID_B = b"a" * 16, b"b" * 16
FILE = "/data/replication-offset-checkpoint"
CONFIG = LogConfig(segment_bytes=700, file_delete_delay_ms=0)
END = 20


class Machine:
    """A disk that lasts, and the log manager of the process that runs now."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.disk.make_dirs("/data")
        self.disk.sync_dir("/")
        self.manager = self._new_manager()

    def _new_manager(self) -> LogManager:
        manager = LogManager(
            self.disk, "/data", log_config=lambda topic: CONFIG, wall_clock=lambda: 1_000_000, rng=Random(1)
        )
        manager.start()
        return manager

    def kill(self) -> None:
        self.disk.crash("process", Random(0))

    def start(self) -> IntactEpochs | None:
        self.manager = self._new_manager()
        return self.manager.directory.intact.epochs

    def kill_and_start(self) -> IntactEpochs | None:
        self.kill()
        return self.start()

    def close_and_start(self) -> IntactEpochs | None:
        self.manager.close(broker_epoch=7)
        return self.start()

    def log(self, partition: TopicPartition = A) -> PartitionLog:
        log = self.manager.get(partition)
        assert log is not None
        return log

    async def checkpoint(self) -> None:
        await self.manager.checkpoints.high_watermarks.write_off_loop()


def append(log: PartitionLog, count: int, epoch: int = 0) -> None:
    for _ in range(count):
        must_append(log, batch(b"v" * 60), epoch=epoch)


async def written() -> Machine:
    """Two logs of 20 replicated records, in a few segments, at broker epoch 7; their high watermarks are on disk."""
    machine = Machine()
    await machine.manager.directory.intact.note_registration(7)
    for partition, topic_id in ((A, ID_A), (B, ID_B)):
        log = machine.manager.create(partition, CONFIG, topic_id)
        append(log, END)
        log.update_high_watermark(END)
    await machine.checkpoint()
    assert len(machine.log().segments) > 2
    return machine


def remove_directory(disk: SimDisk) -> None:
    disk.remove_tree("/data/a-0")


def remove_files(disk: SimDisk) -> None:
    for name in disk.list_dir("/data/a-0"):
        disk.remove(f"/data/a-0/{name}")


def cut_last_batch(disk: SimDisk) -> None:
    name = max(name for name in disk.list_dir("/data/a-0") if name.endswith(".log"))
    file = disk.open(f"/data/a-0/{name}")
    sizes = file.size() // (END - int(name.removesuffix(".log")))
    file.truncate(file.size() - sizes)


def remove_last_segment(disk: SimDisk) -> None:
    last = max(name for name in disk.list_dir("/data/a-0") if name.endswith(".log")).removesuffix(".log")
    for name in disk.list_dir("/data/a-0"):
        if name.startswith(last):
            disk.remove(f"/data/a-0/{name}")


LOSSES = [remove_directory, remove_files, cut_last_batch, remove_last_segment]


# What is noticed


@pytest.mark.parametrize("lose", LOSSES)
async def test_log_that_lost_its_end_between_kill_and_start_is_damaged_once(
    lose: Callable[[SimDisk], None], caplog: pytest.LogCaptureFixture
) -> None:
    """B112"""
    machine = await written()
    machine.kill()
    lose(machine.disk)
    assert machine.start() is None
    assert any("a-0" in line and "offset 20" in line for line in caplog.messages), caplog.messages
    assert not any("b-0" in line for line in caplog.messages)
    await machine.manager.directory.intact.note_registration(9)
    assert machine.kill_and_start() == IntactEpochs(9, 9), "what was lost before counts again"


@pytest.mark.parametrize("lose", LOSSES)
async def test_log_that_lost_its_end_after_a_clean_shutdown_is_damaged(lose: Callable[[SimDisk], None]) -> None:
    """B112: a clean shutdown notes the end itself, whatever the high watermark was."""
    machine = await written()
    machine.log().update_high_watermark(0)
    machine.manager.close(broker_epoch=7)
    lose(machine.disk)
    assert machine.start() is None


async def test_directory_that_is_missing_after_a_clean_shutdown_is_damage_without_the_high_watermarks() -> None:
    """B112"""
    machine = await written()
    machine.manager.close(broker_epoch=7)
    machine.disk.remove(FILE)
    remove_directory(machine.disk)
    assert machine.start() is None


@pytest.mark.parametrize("lose", LOSSES)
async def test_start_that_is_killed_after_a_clean_shutdown_hides_no_damage(lose: Callable[[SimDisk], None]) -> None:
    """B112: the mark of the shutdown is gone before the logs are compared with what it proves."""
    for units in range(1_000):
        machine = await written()
        machine.log().update_high_watermark(0)
        machine.manager.close(broker_epoch=7)
        lose(machine.disk)
        machine.disk.stop_after(units)
        try:
            machine.start()
            is_whole = True
        except MachineStopped:
            is_whole = False
        assert machine.kill_and_start() is None, units
        if is_whole:
            return
    raise AssertionError("the start takes more steps")


async def test_registration_at_a_later_epoch_does_not_outlive_the_damage() -> None:
    """B112: the file that says intact is gone before the checkpoint is corrected."""
    for units in range(1_000):
        machine = await written()
        machine.kill()
        remove_directory(machine.disk)
        machine.disk.stop_after(units)
        try:
            machine.start()
            is_whole = True
        except MachineStopped:
            is_whole = False
        assert machine.kill_and_start() is None, units
        if is_whole:
            return
    raise AssertionError("the start takes more steps")


# What must not count


async def test_kill_and_clean_shutdown_damage_nothing() -> None:
    machine = await written()
    append(machine.log(), 3)
    assert machine.kill_and_start() == IntactEpochs(7, 7)
    assert (machine.log().high_watermark, machine.log().log_end_offset) == (END, END + 3)
    assert machine.close_and_start() == IntactEpochs(7, 7)
    assert machine.kill_and_start() == IntactEpochs(7, 7)


async def test_recovery_point_after_the_registration_is_no_evidence() -> None:
    """B112: a deletion leaves it on disk for some seconds."""
    machine = await written()
    machine.close_and_start()
    await machine.manager.directory.intact.note_registration(9)
    machine.manager.delete(A)
    assert machine.kill_and_start() == IntactEpochs(7, 9)


@pytest.mark.parametrize("content", [None, b"", b"0\n9\na 0 20\n", b"0\n2\na 0 9"])
async def test_checkpoint_that_is_missing_or_torn_is_no_damage(content: bytes | None) -> None:
    """It says nothing of the logs, in which nothing is missing."""
    machine = await written()
    machine.kill()
    machine.disk.remove(FILE)
    if content is not None:
        machine.disk.write_atomic(FILE, content)
    assert machine.start() == IntactEpochs(7, 7)


@pytest.mark.parametrize("seed", range(10))
async def test_recovery_point_beyond_a_lost_end_does_not_count_again(seed: int) -> None:
    """What the log has copied since from its leader is not synced, and a power loss may leave holes in it."""
    machine = await written()
    await machine.log().flush_closed_segments_off_loop()
    machine.manager.checkpoints.write()
    machine.kill()
    remove_files(machine.disk)
    machine.start()
    append(machine.log(), END)
    machine.disk.sync_dir("/data/a-0")
    machine.disk.crash("power", Random(seed))
    machine.start()
    offsets = [batch.header.base_offset for segment in machine.log().segments for batch in segment.scan()]
    assert offsets == list(range(machine.log().log_end_offset))


def delete(machine: Machine) -> None:
    machine.manager.delete(A)


def delete_both(machine: Machine) -> None:
    machine.manager.checkpoints.release([A, B])
    machine.manager.delete(A)
    machine.manager.delete(B)


def delete_and_create_again(machine: Machine) -> None:
    machine.manager.delete(A)
    machine.manager.create(A, CONFIG, ID_B)


def set_aside(machine: Machine) -> None:
    machine.manager.set_aside(A)


def truncate(machine: Machine) -> None:
    """An unclean election: the follower cuts off what was replicated."""
    machine.log().truncate_to(2)


def truncate_in_the_last_segment(machine: Machine) -> None:
    machine.log().truncate_to(END - 1)


def begin_anew(machine: Machine) -> None:
    """The leader's log begins beyond the end of this one."""
    machine.log().truncate_fully_and_start_at(100)


def begin_anew_below(machine: Machine) -> None:
    machine.log().truncate_fully_and_start_at(5)


def delete_records(machine: Machine) -> None:
    log = machine.log()
    log.advance_log_start_offset(END)
    log.roll()


def delete_on_full_disk(machine: Machine) -> None:
    machine.disk.fill(0)
    machine.manager.delete(A)


def begin_anew_on_full_disk(machine: Machine) -> None:
    machine.disk.fill(0)
    begin_anew(machine)
    assert not machine.log().failed
    assert machine.log().log_end_offset == 100


@pytest.mark.parametrize(
    "act",
    [
        delete,
        delete_both,
        delete_and_create_again,
        set_aside,
        truncate,
        truncate_in_the_last_segment,
        begin_anew,
        begin_anew_below,
        delete_records,
        delete_on_full_disk,
        begin_anew_on_full_disk,
    ],
)
async def test_log_that_is_shortened_on_purpose_is_not_damaged_by_a_kill_at_any_step(
    act: Callable[[Machine], None],
) -> None:
    """B112"""
    for units in range(2_000):
        machine = await written()
        machine.disk.stop_after(units)
        try:
            act(machine)
            is_whole = True
        except MachineStopped:
            is_whole = False
        machine.disk.make_room()
        assert machine.kill_and_start() == IntactEpochs(7, 7), units
        if is_whole:
            await LogMaintenance(machine.manager).flush_and_remove()
            assert machine.kill_and_start() == IntactEpochs(7, 7)
            return
    raise AssertionError("the action takes more steps")


@pytest.mark.parametrize("act", [delete, truncate, delete_on_full_disk])
async def test_checkpoint_that_is_being_written_gives_way_to_what_shortens_a_log(
    act: Callable[[Machine], None],
) -> None:
    machine = await written()
    machine.log(B).update_high_watermark(END - 1)

    async def act_meanwhile() -> None:
        machine.disk.delay = None
        act(machine)

    machine.disk.delay = act_meanwhile
    await machine.checkpoint()
    machine.disk.make_room()
    assert machine.kill_and_start() == IntactEpochs(7, 7)


async def test_truncation_while_a_lower_high_watermark_is_being_written_rewrites_it() -> None:
    """B112: until it is replaced, the file still has the higher one."""
    machine = await written()
    machine.log().update_high_watermark(5)

    async def truncate_and_stop() -> None:
        machine.log().truncate_to(10)
        raise MachineStopped

    machine.disk.delay = truncate_and_stop
    with pytest.raises(MachineStopped):
        await machine.checkpoint()
    machine.disk.delay = None
    assert machine.kill_and_start() == IntactEpochs(7, 7)


async def test_deletion_on_a_full_disk_removes_the_checkpoint() -> None:
    machine = await written()
    delete_on_full_disk(machine)
    assert not machine.disk.exists(FILE)
    machine.disk.make_room()
    await machine.checkpoint()
    assert machine.disk.read(FILE) == b"0\n1\nb 0 20\n"


async def test_partitions_that_an_earlier_release_left_in_the_checkpoint_do_not_count_after_its_upgrade() -> None:
    """Release 0.2.0 rewrites the checkpoint some seconds after a deletion; but it notes no intact logs either."""
    machine = await written()
    machine.kill()
    machine.disk.remove("/data/intact-logs")
    machine.disk.write_atomic(FILE, b"0\n3\na 0 20\nb 0 20\ngone 0 9\n")
    assert machine.start() is None
    await machine.manager.directory.intact.note_registration(9)
    assert machine.kill_and_start() == IntactEpochs(9, 9)


async def test_loss_of_power_damages_once_and_not_at_the_next_kill() -> None:
    machine = await written()
    machine.disk.sync_dir("/data")
    machine.disk.sync_dir("/data/a-0")
    machine.disk.crash("power", Random(0))
    assert machine.start() is None
    await machine.manager.directory.intact.note_registration(9)
    assert machine.kill_and_start() == IntactEpochs(9, 9)


@pytest.mark.parametrize("seed", range(8))
async def test_lost_log_that_is_copied_anew_does_not_begin_later_after_a_loss_of_power(seed: int) -> None:
    """B112: nothing would show that its first records are missing; retention deletes first segments, too."""
    machine = await written()
    machine.disk.sync_dir("/data")
    machine.kill()
    remove_files(machine.disk)
    machine.start()
    append(machine.log(), END, epoch=1)
    machine.disk.crash("power", Random(seed))
    machine.start()
    assert machine.log().log_start_offset == 0
