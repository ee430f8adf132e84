"""B124: descriptors run out at any call of an operation on a log, and stay out: the log is intact and goes on later."""

import errno
from random import Random

import pytest

from oncelog.broker.storage.cleaner import LogCleaner
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import AppendInfo, PartitionLog
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.batches import batch
from tests.unit.broker.storage.logs import DIRECTORY, NOW, append, content, must_append, open_log, producers

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=50)
COMPACTED = LogConfig(segment_bytes=400, index_interval_bytes=50, cleanup_policy=frozenset({"compact"}))
CALLS = range(24)
"""Calls that get a descriptor before they run out; the longest operation makes fewer."""
COUNT = 20
_TAKES_A_DESCRIPTOR = frozenset({"open", "sync_dir", "list_dir"})


class FewDescriptors(SimDisk):
    """A disk of a process that may open so many more files, and then none."""

    left: float = float("inf")

    def enter(self, operation: str, path: str) -> None:
        if operation in _TAKES_A_DESCRIPTOR:
            if self.left <= 0:
                raise OSError(errno.EMFILE, f"{operation} {path}")
            self.left -= 1
        super().enter(operation, path)


def grown(
    config: LogConfig, *, has_producer: bool = True, has_snapshots: bool = True
) -> tuple[FewDescriptors, PartitionLog]:
    """A log of several segments whose indexes are on disk, after a restart. No file of a closed segment is open."""
    disk = FewDescriptors()
    disk.make_dirs(DIRECTORY)
    for directory in ("", "/data", DIRECTORY):
        disk.sync_dir(directory)
    log = open_log(disk, config)
    for offset in range(COUNT):
        must_append(log, numbered(offset) if has_producer else batch(b"v" * 50), offset // 5)
    log.close()
    if not has_snapshots:
        for name in disk.list_dir(DIRECTORY):
            if name.endswith(".snapshot"):
                disk.remove(f"{DIRECTORY}/{name}")
    log = open_log(disk, config, recovery_point=COUNT, clean_shutdown=True)
    for _ in range(2):
        log.release_idle()
    return disk, log


def numbered(offset: int) -> bytearray:
    return batch(b"v" * 50, key=b"k", producer_id=1, epoch=0, sequence=offset, timestamp=1_000 + offset)


def assert_goes_on(disk: FewDescriptors, log: PartitionLog, config: LogConfig) -> None:
    """The log takes the next batch of its producer, and a killed broker finds all of it."""
    disk.left = float("inf")
    end = log.log_end_offset
    assert not log.failed
    known = producers(log)
    next_sequence = known[1][1] + 1 if 1 in known else end
    assert isinstance(append(log, numbered(next_sequence), 9), AppendInfo)
    before, state = content(log), producers(log)
    disk.crash("process", Random(0))
    again = open_log(disk, config, log_start_offset=log.log_start_offset)
    assert (again.log_end_offset, content(again), producers(again)) == (end + 1, before, state)


@pytest.mark.parametrize("left", CALLS)
@pytest.mark.parametrize("end", [0, 3, 7, 11, 19])
@pytest.mark.parametrize(("has_producer", "has_snapshots"), [(True, True), (True, False), (False, True)])
def test_truncation_without_descriptors_is_not_begun_or_is_completed(
    has_producer: bool, has_snapshots: bool, end: int, left: int
) -> None:
    disk, log = grown(SMALL, has_producer=has_producer, has_snapshots=has_snapshots)
    disk.left = left
    log.truncate_to(end)
    assert log.log_end_offset in (end, COUNT)
    assert not log.failed
    disk.left = float("inf")
    log.truncate_to(end)
    assert log.log_end_offset == end
    assert {offset for offset, _, _ in content(log)} == set(range(end))
    assert_goes_on(disk, log, SMALL)


@pytest.mark.parametrize("left", CALLS)
@pytest.mark.parametrize("start", [0, 7, 20, 30])
def test_full_truncation_without_descriptors_is_not_begun_or_is_completed(start: int, left: int) -> None:
    disk, log = grown(SMALL)
    disk.left = left
    log.truncate_fully_and_start_at(start)
    assert (log.log_start_offset, log.log_end_offset) in ((start, start), (0, COUNT))
    assert not log.failed
    disk.left = float("inf")
    log.truncate_fully_and_start_at(start)
    assert (content(log), producers(log)) == ([], {})
    assert_goes_on(disk, log, SMALL)


def test_refused_full_truncation_leaves_no_file() -> None:
    disk, log = grown(SMALL)
    before = disk.list_dir(DIRECTORY)

    def cannot_be_written(_: PartitionLog) -> None:
        raise OSError(errno.EMFILE, "recovery-point-offset-checkpoint")

    log.flush_state.checkpointed_recovery_point = COUNT
    log.on_checkpoints_lowered = cannot_be_written
    log.truncate_fully_and_start_at(3)
    assert (log.failed, log.log_end_offset, disk.list_dir(DIRECTORY)) == (False, COUNT, before)


async def test_directory_that_could_not_be_synced_is_synced_by_the_next_flush() -> None:
    disk, log = grown(SMALL)
    await log.flush_off_loop()
    disk.fail("sync_dir", error=errno.EMFILE)
    log.truncate_to(3)
    assert (log.failed, log.log_end_offset) == (False, 3)
    syncs = disk.calls["sync_dir"]
    await log.flush_off_loop()
    assert disk.calls["sync_dir"] > syncs
    disk.crash("power", Random(0))
    assert open_log(disk, SMALL, recovery_point=3).log_end_offset == 3


@pytest.mark.parametrize("left", CALLS)
def test_append_without_descriptors_is_refused_or_is_complete(left: int) -> None:
    disk, log = grown(SMALL)
    disk.left = left
    for sequence in range(COUNT, COUNT + 10):
        if not isinstance(append(log, numbered(sequence), 4), AppendInfo):
            break
    assert_goes_on(disk, log, SMALL)


@pytest.mark.parametrize("left", CALLS)
def test_retention_without_descriptors_deletes_what_it_can(left: int) -> None:
    disk, log = grown(SMALL)
    log.update_high_watermark(COUNT)
    log.update_config(LogConfig(segment_bytes=400, index_interval_bytes=50, retention_ms=1))
    disk.left = left
    log.delete_expired_segments(10**12)
    assert_goes_on(disk, log, SMALL)


@pytest.mark.parametrize("left", range(60))
async def test_cleaning_without_descriptors_is_given_up_or_is_complete(left: int) -> None:
    disk, log = grown(COMPACTED)
    log.update_high_watermark(COUNT)
    before = content(log)
    disk.left = left
    await LogCleaner(disk, wall_clock=lambda: NOW).clean(log)
    assert not log.failed
    disk.left = float("inf")
    found = content(log)
    assert found[-1] == before[-1]
    assert set(found) <= set(before)
    assert_goes_on(disk, log, COMPACTED)
