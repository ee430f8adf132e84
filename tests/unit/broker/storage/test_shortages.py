"""What a log does when the disk is full or no file can be opened: it refuses, is as it was, and goes on later."""

import errno
from random import Random

import pytest

from oncelog.broker.storage.disk_space import DiskSpace
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.open_files import OpenFiles
from oncelog.broker.storage.partition_log import AppendInfo, PartitionLog
from oncelog.broker.storage.recovery import NotedLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import read_header
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.sim_disk import SimDisk, SimFile
from tests.unit.broker.batches import batch, marker
from tests.unit.broker.storage.logs import (
    DIRECTORY,
    TP,
    append,
    content,
    end_txn,
    log_host,
    must_append,
    new_disk,
    open_log,
    producers,
    read,
)

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
SHORTAGES = [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE]


def idempotent(sequence: int, *, producer_id: int = 1, epoch: int = 0, transactional: bool = False) -> bytearray:
    return batch(b"v" * 50, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=transactional)


def assert_intact(disk: SimDisk, log: PartitionLog, end_offset: int) -> None:
    """The log has not failed, has every batch below an offset, and so has the one that a killed broker finds."""
    assert not log.failed
    assert [offset for offset, _, _ in content(log)] == list(range(end_offset))
    before = producers(log)
    disk.crash("process", Random(0))
    again = open_log(disk, SMALL)
    assert [offset for offset, _, _ in content(again)] == list(range(end_offset))
    assert producers(again) == before


@pytest.mark.parametrize("known", [True, False])
def test_batches_behind_one_that_met_a_shortage_are_refused_like_it(known: bool) -> None:
    """B34: out of order would have librdkafka begin anew with batches of other partitions that were appended."""
    disk = new_disk()
    log = open_log(disk, SMALL)
    first = 0
    if known:
        must_append(log, idempotent(0))
        first = 1
    disk.fail("append", ".log", error=errno.ENOSPC, times=1)
    under_way = [idempotent(first + index) for index in range(3)]
    assert [append(log, each) for each in under_way] == [STORAGE_ERROR] * 3
    assert all(isinstance(append(log, idempotent(first + index)), AppendInfo) for index in range(3))
    assert append(log, idempotent(first + 5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_second_refused_batch_is_not_appended_before_the_first() -> None:
    """B34: batches that find too few in-sync replicas are refused one by one."""
    log = open_log(new_disk(), SMALL)
    for sequence in range(2):
        log.producer_state.refuse(read_header(idempotent(sequence)))
    assert append(log, idempotent(1)) is STORAGE_ERROR
    assert all(isinstance(append(log, idempotent(sequence)), AppendInfo) for sequence in range(2))


def test_refused_batch_of_an_older_epoch_replaces_no_newer_refusal() -> None:
    """B34: the older epoch is that of a producer that was fenced."""
    log = open_log(new_disk(), SMALL)
    log.producer_state.refuse(read_header(idempotent(0, epoch=5)))
    log.producer_state.refuse(read_header(idempotent(7, epoch=4)))
    assert append(log, idempotent(1, epoch=5)) is STORAGE_ERROR
    assert all(isinstance(append(log, idempotent(sequence, epoch=5)), AppendInfo) for sequence in range(2))


@pytest.mark.parametrize("replicated", [True, False])
def test_appended_batch_of_an_older_epoch_removes_no_newer_refusal(replicated: bool) -> None:
    """B34: the producer of the older epoch was fenced, but its batch is in order here. The newer epoch is unknown."""
    log = open_log(new_disk(), SMALL)
    log.producer_state.refuse(read_header(idempotent(0, epoch=5)))
    if replicated:
        elsewhere = open_log(new_disk(), SMALL)
        must_append(elsewhere, idempotent(0, epoch=4))
        assert isinstance(log.append_as_follower(bytes(read(elsewhere, 0).records)), AppendInfo)
    else:
        must_append(log, idempotent(0, epoch=4))
    assert append(log, idempotent(1, epoch=5)) is STORAGE_ERROR
    assert all(isinstance(append(log, idempotent(sequence, epoch=5)), AppendInfo) for sequence in range(2))


def test_appended_batch_of_a_newer_epoch_removes_an_older_refusal() -> None:
    """The refused batch can come no more; a batch of that epoch is fenced, and holds up no other."""
    log = open_log(new_disk(), SMALL)
    log.producer_state.refuse(read_header(idempotent(0, epoch=4)))
    must_append(log, idempotent(0, epoch=5))
    assert append(log, idempotent(1, epoch=4)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert append(log, idempotent(2, epoch=5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_refused_batch_that_was_written_elsewhere_meanwhile_holds_up_nothing() -> None:
    """Another broker led for a while: the batch came back from there, and its producer went on."""
    disk = new_disk()
    log = open_log(disk, SMALL)
    must_append(log, idempotent(0))
    disk.fail("append", ".log", error=errno.ENOSPC, times=1)
    assert append(log, idempotent(1)) is STORAGE_ERROR
    elsewhere = open_log(new_disk(), SMALL)
    for sequence in range(3):
        must_append(elsewhere, idempotent(sequence))
    assert isinstance(log.append_as_follower(bytes(read(elsewhere, 1).records)), AppendInfo)
    assert isinstance(append(log, idempotent(3)), AppendInfo)


@pytest.mark.parametrize("known", [True, False])
def test_batches_behind_a_refused_one_without_retry_are_out_of_order_in_the_end(known: bool) -> None:
    """B85: a producer that is not known yet does not begin behind it then, either."""
    disk, clock = new_disk(), [1_000]
    log = PartitionLog.open(log_host(disk, lambda: clock[0]), DIRECTORY, TP, SMALL, NotedLog())
    first = 0
    if known:
        must_append(log, idempotent(0))
        first = 1
    disk.fail("append", ".log", error=errno.ENOSPC, times=1)
    assert append(log, idempotent(first)) is STORAGE_ERROR
    clock[0] += 119_999
    assert append(log, idempotent(first + 1)) is STORAGE_ERROR
    clock[0] += 1
    assert append(log, idempotent(first + 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class TestMoreRefusedProducersThanAreRemembered:
    """B34: 1,000 producers are remembered; the refused batch of another one may still come again."""

    def refuse_many(self, *, known: bool = False) -> tuple[PartitionLog, list[int]]:
        disk, clock = new_disk(), [1_000]
        log = PartitionLog.open(log_host(disk, lambda: clock[0]), DIRECTORY, TP, SMALL, NotedLog())
        if known:
            must_append(log, idempotent(0))
        disk.fail("append", ".log", error=errno.ENOSPC, times=1_001)
        results = [append(log, idempotent(int(known and i == 1), producer_id=i)) for i in range(1, 1_002)]
        assert results == [STORAGE_ERROR] * 1_001
        return log, clock

    @pytest.mark.parametrize("known", [True, False])
    def test_next_batch_of_first_producer_is_not_appended_before_its_refused_one(self, known: bool) -> None:
        log, clock = self.refuse_many(known=known)
        clock[0] += 119_999
        assert append(log, idempotent(1 + known)) is STORAGE_ERROR
        assert all(isinstance(append(log, idempotent(i + known)), AppendInfo) for i in range(3))

    @pytest.mark.parametrize("known", [True, False])
    def test_next_batch_that_is_refused_too_is_not_appended_before_the_first(self, known: bool) -> None:
        log, _ = self.refuse_many(known=known)
        log.producer_state.refuse(read_header(idempotent(1 + known)))
        assert append(log, idempotent(1 + known)) is STORAGE_ERROR
        assert all(isinstance(append(log, idempotent(i + known)), AppendInfo) for i in range(3))

    @pytest.mark.parametrize("next_is_refused", [True, False])
    def test_refused_batch_of_an_older_epoch_hides_no_dropped_refusal(self, next_is_refused: bool) -> None:
        log, _ = self.refuse_many()
        log.producer_state.refuse(read_header(idempotent(0, epoch=5, producer_id=5_000)))
        for producer_id in range(2, 1_002):
            log.producer_state.refuse(read_header(idempotent(0, producer_id=producer_id)))
        log.producer_state.refuse(read_header(idempotent(0, epoch=4, producer_id=5_000)))
        if next_is_refused:
            log.producer_state.refuse(read_header(idempotent(1, epoch=5, producer_id=5_000)))
        assert append(log, idempotent(1, epoch=5, producer_id=5_000)) is STORAGE_ERROR

    @pytest.mark.parametrize("known", [True, False])
    def test_next_batch_is_out_of_order_when_the_refused_one_is_not_retried(self, known: bool) -> None:
        log, clock = self.refuse_many(known=known)
        clock[0] += 120_000
        assert append(log, idempotent(1 + known)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_any_producer_may_begin_anew_meanwhile(self) -> None:
        log, _ = self.refuse_many()
        assert isinstance(append(log, idempotent(0, producer_id=5_000)), AppendInfo)
        assert isinstance(append(log, batch(b"v")), AppendInfo)

    def test_producer_begins_anywhere_when_refusals_are_as_old_as_forgotten_producers(self) -> None:
        log, clock = self.refuse_many()
        clock[0] += log.producer_state.producer_id_expiration_ms
        assert isinstance(append(log, idempotent(7, producer_id=5_000)), AppendInfo)

    def test_producer_that_retries_is_remembered_before_others(self) -> None:
        disk = new_disk()
        log = open_log(disk, SMALL)
        disk.fail("append", ".log", error=errno.ENOSPC, times=1_002)
        for producer_id in (*range(1, 1_001), 1, 1_001):
            assert append(log, idempotent(5, producer_id=producer_id)) is STORAGE_ERROR
        assert isinstance(append(log, idempotent(3, producer_id=1)), AppendInfo)


@pytest.mark.parametrize("error", SHORTAGES)
@pytest.mark.parametrize(("operation", "ending"), [("append", ".log"), ("open", ".log")])
def test_append_that_meets_a_shortage_is_refused_and_succeeds_later(error: int, operation: str, ending: str) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    accepted, refused = 0, 0
    disk.fail(operation, ending, error=error, times=2)
    for _ in range(30):
        result = append(log, idempotent(accepted))
        accepted += isinstance(result, AppendInfo)
        refused += result is STORAGE_ERROR
    assert (accepted, refused) == (28, 2)
    assert len(log.segments) > 1
    assert_intact(disk, log, accepted)


@pytest.mark.parametrize("error", SHORTAGES)
@pytest.mark.parametrize(("operation", "ending"), [("append", ".log"), ("open", ".log")])
def test_replicated_batches_that_meet_a_shortage_are_refused_and_accepted_later(
    error: int, operation: str, ending: str
) -> None:
    disk = new_disk()
    leader, log = open_log(new_disk(), LogConfig()), open_log(disk, SMALL)
    for sequence in range(30):
        must_append(leader, idempotent(sequence))
    disk.fail(operation, ending, error=error, times=2)
    results = []
    while log.log_end_offset < 30:
        found = leader.read(log.log_end_offset, 10_000, upper_offset=30)
        results.append(log.append_as_follower(found.records))  # type: ignore[union-attr]
    assert results[:-1] == [STORAGE_ERROR] * 2
    assert_intact(disk, log, 30)


@pytest.mark.parametrize("error", SHORTAGES)
@pytest.mark.parametrize(
    ("operation", "ending"),
    [
        ("append", ".index"),
        ("open", ".timeindex"),
        ("open", ".txnindex"),
        ("append", ".snapshot.tmp"),
        ("open", ".snapshot.tmp"),
    ],
)
async def test_flush_that_meets_a_shortage_is_not_done_and_done_later(error: int, operation: str, ending: str) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    for sequence in range(6):
        must_append(log, idempotent(sequence, transactional=True))
    end_txn(log, marker(1, commit=False))
    log.roll()
    disk.fail(operation, ending, error=error)
    await log.flush_closed_segments_off_loop()
    assert (log.failed, log.recovery_point) == (False, 0)
    await log.flush_closed_segments_off_loop()
    assert log.recovery_point == 7
    before = producers(log)
    disk.crash("power", Random(0))
    again = open_log(disk, SMALL, recovery_point=7)
    assert [offset for offset, _, _ in content(again)] == list(range(7))
    assert producers(again) == before
    assert again.aborted_transactions(0, 7) == [(1, 0)]


async def test_sync_that_fails_for_want_of_space_fails_the_log() -> None:
    """Who allocates late says so at the sync: what was acknowledged before may be lost."""
    disk = new_disk()
    log = open_log(disk)
    must_append(log, idempotent(0))
    disk.fail("sync", ".log", error=errno.ENOSPC)
    await log.flush_off_loop()
    assert log.failed


@pytest.mark.parametrize("error", SHORTAGES)
def test_truncation_that_meets_a_shortage_before_it_began_changes_nothing(error: int) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    for sequence in range(20):
        must_append(log, idempotent(sequence))
    log.flush_state.checkpointed_recovery_point = 20

    def cannot_be_written(_: PartitionLog) -> None:
        raise OSError(error, "recovery-point-offset-checkpoint")

    log.on_checkpoints_lowered = cannot_be_written
    log.truncate_to(5)
    log.truncate_fully_and_start_at(3)
    assert (log.failed, log.log_end_offset) == (False, 20)
    log.on_checkpoints_lowered = lambda _: None
    log.truncate_to(5)
    assert_intact(disk, log, 5)


@pytest.mark.parametrize("error", SHORTAGES)
def test_full_truncation_needs_no_room_for_the_epochs(error: int) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    must_append(log, idempotent(0))
    log.epochs.save()
    disk.fail("append", "leader-epoch-checkpoint.tmp", error=error)
    log.truncate_fully_and_start_at(3)
    assert (log.failed, log.log_end_offset, log.epochs.entries) == (False, 3, [])
    log.close()
    again = open_log(disk, SMALL, recovery_point=3)
    assert (again.log_end_offset, again.epochs.entries) == (3, [])


@pytest.mark.parametrize("error", SHORTAGES)
def test_read_that_meets_a_shortage_is_refused_and_succeeds_later(error: int) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    for sequence in range(20):
        must_append(log, idempotent(sequence))
    log.release_idle()
    log.segments.first.close()
    disk.fail("open", ".log", error=error)
    assert log.read(0, 100, upper_offset=20) is STORAGE_ERROR
    assert not log.failed
    assert log.read(0, 100, upper_offset=20) is not STORAGE_ERROR


class TestDiskSpace:
    def test_full_disk_is_full_until_enough_is_free(self) -> None:
        disk = SimDisk(capacity=1000)
        disk.make_dirs("/data")
        changes: list[bool] = []
        space = DiskSpace(disk, "/data", lambda: now)
        space.on_change = lambda: changes.append(space.is_full)
        now = 1_000_000
        disk.open("/data/x", create=True).append([bytes(990)])
        for _ in range(2):
            space.note(OSError(errno.ENOSPC, "full"), "t-0")
        now += 5_000
        space.check()
        assert changes == [True]
        disk.open("/data/x").truncate(940)
        space.check()
        assert changes == [True, False]

    def test_disk_that_fills_up_again_soon_is_looked_at_later_each_time(self) -> None:
        disk = SimDisk()
        disk.make_dirs("/data")
        space = DiskSpace(disk, "/data", lambda: now)
        now, pauses = 1_000_000, []
        for _ in range(9):
            space.note(OSError(errno.ENOSPC, "full"), "t-0")
            began = now
            while space.is_full:
                now += 500
                space.check()
            pauses.append(now - began)
        assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]
        now += 120_000
        space.note(OSError(errno.ENOSPC, "full"), "t-0")
        now += 1_000
        space.check()
        assert not space.is_full

    def test_clock_that_was_set_back_does_not_keep_the_disk_full(self) -> None:
        disk = SimDisk()
        disk.make_dirs("/data")
        space = DiskSpace(disk, "/data", lambda: now)
        now = 1_000_000_000
        space.note(OSError(errno.ENOSPC, "full"), "t-0")
        now -= 600_000
        space.check()
        assert not space.is_full

    def test_want_of_descriptors_does_not_make_the_disk_full(self) -> None:
        space = DiskSpace(SimDisk(), "/data", lambda: 0)
        space.note(OSError(errno.EMFILE, "Too many open files"), "t-0")
        assert not space.is_full


class _FewFiles(SimDisk):
    left = 1_000
    """Files that may still be opened."""

    def open(self, path: str, *, create: bool = False) -> SimFile:
        if not self.left:
            raise OSError(errno.EMFILE, "Too many open files")
        self.left -= 1
        return super().open(path, create=create)


class TestOpenFiles:
    """B84: which logs take no writes because no file can be opened."""

    def refused(self) -> tuple[_FewFiles, OpenFiles, list[int], list[frozenset[TopicPartition]]]:
        disk, now, changes = _FewFiles(), [1_000_000], list[frozenset[TopicPartition]]()
        disk.make_dirs("/data")
        disk.open("/data/0.log", create=True).close()
        files = OpenFiles(disk, lambda: now[0])
        files.on_change = lambda: changes.append(files.refusing)
        return disk, files, now, changes

    def note(self, files: OpenFiles, error: int = errno.EMFILE) -> None:
        files.note(OSError(error, "refused"), TP, "/data/0.log")

    def pass_seconds(self, files: OpenFiles, now: list[int], seconds: int) -> None:
        for _ in range(seconds):
            now[0] += 1_000
            files.check()

    def test_log_refuses_once_no_file_could_be_opened_for_long(self) -> None:
        disk, files, now, changes = self.refused()
        disk.fail("open", ".log", error=errno.EMFILE, times=1_000)
        self.note(files)
        self.pass_seconds(files, now, 4)
        self.note(files)
        assert changes == []
        self.pass_seconds(files, now, 1)
        assert changes == [frozenset({TP})]
        disk.make_room()
        self.pass_seconds(files, now, 1)
        assert changes == [frozenset({TP}), frozenset()]

    @pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOSPC])
    def test_log_does_not_refuse_while_files_can_be_opened(self, error: int) -> None:
        _, files, now, changes = self.refused()
        for _ in range(100):
            self.note(files, error)
            self.pass_seconds(files, now, 1)
        assert changes == []

    def test_log_refuses_until_several_files_can_be_opened_at_once(self) -> None:
        disk, files, now, changes = self.refused()
        disk.fail("open", ".log", error=errno.EMFILE, times=5)
        self.note(files)
        self.pass_seconds(files, now, 5)
        disk.left = 15
        self.pass_seconds(files, now, 1)
        assert changes == [frozenset({TP})]
        disk.left = 16
        self.pass_seconds(files, now, 1)
        assert changes[1:] == [frozenset()]

    def test_log_that_refuses_again_soon_does_so_for_longer_each_time(self) -> None:
        disk, files, now, changes = self.refused()
        lasted = []
        for _ in range(5):
            disk.fail("open", ".log", error=errno.EMFILE, times=1_000)
            self.note(files)
            self.pass_seconds(files, now, 5)
            disk.make_room()
            began = now[0]
            while files.refusing:
                self.pass_seconds(files, now, 1)
            lasted.append(now[0] - began)
        assert lasted == [1_000, 2_000, 4_000, 8_000, 16_000]
        assert len(changes) == 10

    def test_log_that_was_deleted_refuses_no_more(self) -> None:
        disk, files, now, changes = self.refused()
        disk.fail("open", ".log", error=errno.EMFILE, times=1_000)
        self.note(files)
        self.pass_seconds(files, now, 5)
        disk.remove("/data/0.log")
        self.pass_seconds(files, now, 1)
        assert changes == [frozenset({TP}), frozenset()]
