"""Disks that fail: what a log acknowledges, and what it is afterwards."""

import errno
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from oncelog.broker.storage.disk import LocalDisk
from oncelog.broker.storage.disk_space import DiskSpace
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_host import LogHost
from oncelog.broker.storage.partition_log import AppendInfo, PartitionLog
from oncelog.broker.storage.recovery import NotedLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import patch_offset_and_epoch
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.batches import batch, marker
from tests.unit.broker.storage.logs import NOW, TP, append, content, end_txn, must_append, new_disk, open_log, producers

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


def idempotent(sequence: int, *, transactional: bool = False) -> bytearray:
    return batch(b"v" * 50, producer_id=1, epoch=0, sequence=sequence, transactional=transactional)


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS])
def test_log_after_an_error_acknowledges_nothing(error: int) -> None:
    """B41: after an I/O error no further append to that log is acknowledged."""
    disk = new_disk()
    log = open_log(disk)
    failures: list[object] = []
    log.on_failure = failures.append
    must_append(log, idempotent(0))
    disk.fail("append", ".log", error=error)
    assert append(log, idempotent(1)) is STORAGE_ERROR
    assert append(log, idempotent(1)) is STORAGE_ERROR
    assert log.append_as_follower(idempotent(1)) is STORAGE_ERROR
    assert log.read(0, 100, upper_offset=1) is STORAGE_ERROR
    assert log.advance_log_start_offset(0) is STORAGE_ERROR
    log.truncate_to(0)
    log.truncate_fully_and_start_at(7)
    assert (log.failed, log.log_end_offset) == (True, 1)
    assert failures == [log]
    assert log.failure is not None
    assert log.failure.errno == error
    log.close()
    again = open_log(disk)
    assert [offset for offset, _, _ in content(again)] == [0]


@pytest.mark.parametrize("taken", [0, 1, 60, 61, 100])
def test_short_write_is_undone(taken: int) -> None:
    disk = new_disk()
    log = open_log(disk)
    must_append(log, idempotent(0))
    size = log.size
    disk.shorten_append(".log", taken)
    assert append(log, idempotent(1)) is STORAGE_ERROR
    assert (log.failed, log.log_end_offset, log.size) == (False, 1, size)
    assert disk.file_size(log.segments.active.path(".log")) == size
    retried = must_append(log, idempotent(1))
    assert (retried.base_offset, retried.duplicate) == (1, False)
    assert [offset for offset, _, _ in content(log)] == [0, 1]


def test_short_write_that_cannot_be_undone_fails_the_log() -> None:
    disk = new_disk()
    log = open_log(disk)
    must_append(log, idempotent(0))
    disk.shorten_append(".log", 30)
    disk.fail("truncate", ".log")
    assert append(log, idempotent(1)) is STORAGE_ERROR
    assert log.failed
    disk.crash("process", Random(0))
    again = open_log(disk)
    assert [offset for offset, _, _ in content(again)] == [0]
    assert must_append(again, idempotent(1)).base_offset == 1


def test_full_disk_refuses_appends_and_keeps_the_log() -> None:
    disk = new_disk()
    disk.capacity = 500
    log = open_log(disk)
    results = [append(log, batch(b"v" * 50)) for _ in range(10)]
    accepted = [result for result in results if isinstance(result, AppendInfo)]
    assert 0 < len(accepted) < 10
    assert results == [*accepted, *[STORAGE_ERROR] * (10 - len(accepted))]
    disk.capacity = None
    again = open_log(disk)
    assert len(content(again)) == len(accepted)


def test_short_write_of_replicated_batches() -> None:
    disk = new_disk()
    log = open_log(disk)
    data = batch(b"a" * 100)
    disk.shorten_append(".log", 50)
    assert log.append_as_follower(data) is STORAGE_ERROR
    assert not log.failed
    assert isinstance(log.append_as_follower(data), AppendInfo)
    assert [offset for offset, _, _ in content(log)] == [0]


@pytest.mark.parametrize("operation", ["append", "open", "sync"])
@pytest.mark.parametrize("ending", [".index", ".timeindex", ".txnindex"])
async def test_index_that_cannot_be_written_duplicates_no_offset(operation: str, ending: str) -> None:
    """B40: appends go on or are refused, and what recovery finds is what was acknowledged."""
    disk = new_disk()
    log = open_log(disk, SMALL)
    for sequence in range(6):
        must_append(log, idempotent(sequence, transactional=True))
    end_txn(log, marker(1, commit=False))
    log.roll()
    disk.fail(operation, ending)
    await log.flush_closed_segments_off_loop()
    assert log.failed
    assert append(log, idempotent(6)) is STORAGE_ERROR
    before = producers(log)
    disk.crash("process", Random(0))
    again = open_log(disk, SMALL)
    assert [offset for offset, _, _ in content(again)] == list(range(7))
    assert producers(again) == before
    assert again.aborted_transactions(0, 7) == [(1, 0)]
    assert must_append(again, idempotent(6)).base_offset == 7


def test_roll_that_fails() -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    for sequence in range(4):
        must_append(log, idempotent(sequence))
    before = producers(log)
    disk.fail("open", ".log")
    log.update_config(replace(SMALL, segment_bytes=1))  # The next append begins a segment.
    assert append(log, idempotent(4), epoch=5) is STORAGE_ERROR
    assert log.failed
    disk.crash("process", Random(0))
    again = open_log(disk, SMALL)
    assert again.log_end_offset == 4
    assert producers(again) == before


@pytest.mark.parametrize("operation", ["append", "rename"])
async def test_flush_whose_snapshot_cannot_be_written_fails_the_log(operation: str) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    for sequence in range(12):
        must_append(log, idempotent(sequence))
    before = producers(log)
    disk.fail(operation, ".snapshot.tmp")
    await log.flush_closed_segments_off_loop()
    assert (log.failed, log.recovery_point) == (True, 0)
    disk.crash("process", Random(0))
    assert producers(open_log(disk, SMALL)) == before


def test_read_error_fails_the_log() -> None:
    disk = new_disk()
    log = open_log(disk)
    must_append(log, idempotent(0))
    disk.fail("read", ".log")
    assert log.read(0, 100, upper_offset=1) is STORAGE_ERROR
    assert log.failed


def test_damage_in_the_middle_of_a_segment_is_reported_and_fails_nothing() -> None:
    disk = new_disk()
    log = open_log(disk)
    for sequence in range(5):
        must_append(log, idempotent(sequence))
    log.segments.active.file.write_at(bytes(20), log.size // 5 * 2)
    assert log.read(2, 1000, upper_offset=5) is ErrorCode.CORRUPT_MESSAGE
    assert not log.failed
    assert must_append(log, idempotent(5)).base_offset == 5


# Power


def survivors(disk: SimDisk, seed: int, config: LogConfig, recovery_point: int) -> PartitionLog:
    disk.crash("power", Random(seed))
    return open_log(disk, config, recovery_point=recovery_point)


@pytest.mark.parametrize("seed", range(20))
async def test_flushed_batches_survive_a_power_loss(seed: int) -> None:
    random = Random(seed)
    disk = new_disk()
    config = LogConfig(segment_bytes=700, index_interval_bytes=100, flush_interval_messages=1)
    log = open_log(disk, config)
    flushed = []
    for sequence in range(random.randrange(2, 30)):
        must_append(log, idempotent(sequence))
        if random.random() < 0.3:
            await log.flush_off_loop()
            assert log.flushed_offset == log.log_end_offset
            flushed = content(log)
    again = survivors(disk, seed, config, log.recovery_point)
    assert content(again)[: len(flushed)] == flushed
    assert again.flushed_offset == again.log_end_offset, "or nobody could acknowledge anything before the next append"


async def test_appends_during_a_flush_are_not_covered_by_it() -> None:
    disk = new_disk()
    log = open_log(disk)
    must_append(log, idempotent(0))

    async def append_meanwhile() -> None:
        disk.delay = None
        must_append(log, idempotent(1))

    disk.delay = append_meanwhile
    await log.flush_off_loop()
    assert (log.flushed_offset, log.log_end_offset) == (1, 2)


async def test_flush_that_a_truncation_overtook_promises_nothing() -> None:
    disk = new_disk()
    log = open_log(disk)
    for sequence in range(5):
        must_append(log, idempotent(sequence))

    async def truncate_meanwhile() -> None:
        disk.delay = None
        log.truncate_to(2)
        must_append(log, batch(b"other"), 1)

    disk.delay = truncate_meanwhile
    await log.flush_off_loop()
    assert log.flushed_offset <= 2
    await log.flush_off_loop()
    assert log.flushed_offset == 3


@pytest.mark.parametrize("flush", [PartitionLog.flush_off_loop, PartitionLog.flush_closed_segments_off_loop])
async def test_flush_of_segments_that_are_cut_off_meanwhile_does_not_fail_the_log(
    flush: Callable[[PartitionLog], Awaitable[None]],
) -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig(segment_bytes=1, index_interval_bytes=100))
    for sequence in range(4):
        must_append(log, idempotent(sequence))

    async def cut_off_meanwhile() -> None:
        disk.delay = None
        log.truncate_to(1)

    disk.delay = cut_off_meanwhile
    await flush(log)
    assert not log.failed, log.failure
    await log.flush_off_loop()
    assert (log.flushed_offset, log.log_end_offset) == (1, 1)


async def test_flush_that_fails_fails_the_log() -> None:
    disk = new_disk()
    log = open_log(disk)
    must_append(log, idempotent(0))
    disk.fail("sync", ".log")
    await log.flush_off_loop()
    assert log.failed
    assert log.flushed_offset == 0


async def test_snapshot_is_on_the_medium_before_the_recovery_point_passes_it() -> None:
    """B36: the producer snapshot is synced before recovery trusts that what lies before it need not be read."""
    for seed in range(30):
        disk = new_disk()
        log = open_log(disk, SMALL)
        for sequence in range(12):
            must_append(log, idempotent(sequence))
        log.roll()
        before = producers(log)
        assert log.has_unflushed_segments
        await log.flush_closed_segments_off_loop()
        assert log.recovery_point == log.log_end_offset
        assert not log.has_unflushed_segments
        again = survivors(disk, seed, SMALL, log.recovery_point)
        assert producers(again) == before
        bases = tuple(segment.base_offset for segment in log.segments)
        assert again.snapshots.offsets == bases[1:], "none was lost, and none was torn"


def descend(frames: int, action: Callable[[], object]) -> object:
    return descend(frames - 1, action) if frames else action()


def deepest() -> int:
    """How many frames the stack has room for; nearly."""
    frames = sys.getrecursionlimit()
    while True:
        with suppress(RecursionError):
            descend(frames, int)
            return frames
        frames -= 1


@pytest.mark.parametrize("as_leader", [True, False], ids=["leader", "follower"])
def test_append_that_ends_at_any_call_leaves_a_log_that_is_whole_or_fails(tmp_path: Path, as_leader: bool) -> None:
    """The stack is full at each call of an append in turn: written bytes without their offset would be written over."""
    disk, outcomes, limit = LocalDisk(), set[str](), deepest()
    for room in range(1, 40):
        directory = f"{tmp_path}/{room}"
        disk.make_dirs(directory)
        host = LogHost(disk=disk, wall_clock=lambda: NOW, space=DiskSpace(disk, directory, lambda: NOW))
        log = PartitionLog.open(host, directory, TP, LogConfig(index_interval_bytes=1), NotedLog())
        must_append(log, idempotent(0, transactional=True))
        data = idempotent(1, transactional=True)
        patch_offset_and_epoch(data, 0, 1, 0)
        call = partial(append, log, data) if as_leader else partial(log.append_as_follower, data)
        try:
            descend(limit - room, call)
            outcomes.add("appended")
        except RecursionError:
            outcomes.add("failed" if log.failed else "refused")
        if not log.failed:
            must_append(log, batch(b"next"))
            assert log.size == disk.file_size(log.segments.active.path(".log"))
            assert [offset for offset, _, _ in content(log)] == list(range(log.log_end_offset))
        noted = None if log.failed else producers(log)
        log.close()
        again = PartitionLog.open(host, directory, TP, LogConfig(), NotedLog())
        assert [offset for offset, _, _ in content(again)] == list(range(again.log_end_offset))
        assert noted is None or producers(again) == noted
        again.close()
    assert outcomes == {"appended", "failed", "refused"}
