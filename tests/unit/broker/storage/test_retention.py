"""Which segments retention removes, and what stays of those that knew them."""

import errno
import logging
from random import Random

import pytest

from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.broker.storage.retention import ExpiryReason, SegmentAge, expired
from oncelog.protocol.errors import ErrorCode
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.batches import batch, marker
from tests.unit.broker.storage.logs import (
    DIRECTORY,
    append,
    content,
    end_txn,
    must_append,
    new_disk,
    open_log,
    producers,
    read,
)

SEGMENTS = [
    SegmentAge(100, 10, 1000, False),
    SegmentAge(100, 20, 3000, False),
    SegmentAge(100, 30, 2000, False),
    SegmentAge(50, 35, 4000, True),
]
FOREVER = {"retention_ms": -1, "retention_bytes": -1}


def count(config: LogConfig, *, log_start: int = 0, high_watermark: int = 35, now_ms: int = 5000) -> int:
    return len(expired(SEGMENTS, config, log_start_offset=log_start, high_watermark=high_watermark, now_ms=now_ms))


@pytest.mark.parametrize(
    ("retention_ms", "expected"), [(-1, 0), (4000, 0), (3999, 1), (2000, 1), (1999, 3), (1000, 3), (999, 4), (0, 4)]
)
def test_retention_by_time(retention_ms: int, expected: int) -> None:
    assert count(LogConfig(retention_ms=retention_ms, retention_bytes=-1)) == expected


@pytest.mark.parametrize(
    ("retention_bytes", "expected"), [(-1, 0), (350, 0), (251, 0), (250, 1), (150, 2), (50, 3), (0, 4)]
)
def test_retention_by_size(retention_bytes: int, expected: int) -> None:
    assert count(LogConfig(retention_ms=-1, retention_bytes=retention_bytes)) == expected


@pytest.mark.parametrize(("log_start", "expected"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3), (35, 3)])
def test_segments_before_the_log_start_are_deleted(log_start: int, expected: int) -> None:
    for policy in (frozenset({"delete"}), frozenset({"compact"}), frozenset[str]()):
        assert count(LogConfig(cleanup_policy=policy, retention_ms=-1), log_start=log_start) == expected


def test_expired_segments_have_the_first_of_kafkas_reasons() -> None:
    config = LogConfig(retention_ms=1999, retention_bytes=150)
    reasons = expired(SEGMENTS, config, log_start_offset=10, high_watermark=35, now_ms=5000)
    assert reasons == [ExpiryReason.LOG_START, ExpiryReason.SIZE, ExpiryReason.AGE]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (LogConfig(segment_bytes=800, retention_ms=9_500), "its newest record is older than retention.ms=9500"),
        (
            LogConfig(segment_bytes=800, retention_ms=-1, retention_bytes=900),
            "the log is larger than retention.bytes=900",
        ),
    ],
)
def test_expired_segments_are_logged_with_the_reason(
    config: LogConfig, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = aged_log(config)
    with caplog.at_level(logging.INFO, "oncelog.broker.storage.retention"):
        count = log.delete_expired_segments(20_000)
    (line,) = (record.getMessage() for record in caplog.records if record.name == "oncelog.broker.storage.retention")
    assert count > 0
    assert line.startswith(f"{DIRECTORY}: deleting {count} segments with ")
    assert line.endswith(f"from base offset 0 to {line.split(' to ')[1].split(':')[0]}: {reason}")
    caplog.clear()
    with caplog.at_level(logging.INFO, "oncelog.broker.storage.retention"):
        log.delete_expired_segments(0)
    assert not caplog.records


def test_unreplicated_segments_are_not_deleted() -> None:
    config = LogConfig(retention_ms=0)
    assert [count(config, high_watermark=offset) for offset in (0, 9, 10, 29, 30, 34, 35)] == [0, 0, 1, 2, 3, 3, 4]


def test_compacted_logs_keep_their_age() -> None:
    assert count(LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=0, retention_bytes=0)) == 0


def test_empty_active_segment_stays() -> None:
    ages = [SegmentAge(0, 0, 0, True)]
    config = LogConfig(retention_ms=0)
    assert expired(ages, config, log_start_offset=0, high_watermark=0, now_ms=10**9) == []


# In logs


def aged_log(config: LogConfig, disk: SimDisk | None = None) -> PartitionLog:
    log = open_log(disk or new_disk(), config)
    for number in range(20):
        must_append(
            log, batch(b"v" * 100, timestamp=1000 * number, producer_id=5, epoch=0, sequence=number), number // 8
        )
    log.update_high_watermark(log.log_end_offset)
    log.flush()
    return log


def expire(log: PartitionLog, now_ms: int) -> int:
    """Retention, the flusher, and retention again."""
    count = log.delete_expired_segments(now_ms)
    log.flush()
    return count + log.delete_expired_segments(now_ms)


def test_old_segments_go_and_the_log_begins_later() -> None:
    log = aged_log(LogConfig(segment_bytes=800, retention_ms=9_500))
    expired = log.delete_expired_segments(20_000)
    assert expired > 0
    start = log.segments.first.base_offset
    assert log.log_start_offset == start > 0
    assert log.read(0, 100, upper_offset=20) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert read(log, start).records
    assert log.epochs.entries[0].start_offset == start
    assert {path.rpartition(".")[2] for path in log.garbage} == {"deleted"}
    assert len([path for path in log.garbage if path.endswith(".log.deleted")]) == expired


def test_retention_on_a_full_disk_deletes_in_its_first_pass_and_logs_that_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    disk = new_disk()
    log = aged_log(LogConfig(segment_bytes=800, retention_ms=9_500), disk)
    disk.fill()
    assert log.delete_expired_segments(20_000) > 0
    assert log.delete_expired_segments(20_000) == 0
    assert len([record for record in caplog.records if "deleting" in record.getMessage()]) == 1
    epochs, start = log.epochs.entries, log.log_start_offset
    disk.crash("process", Random(0))
    again = open_log(disk, log.config, recovery_point=log.recovery_point)
    assert (again.epochs.entries, again.log_start_offset) == (epochs, start)


@pytest.mark.parametrize("seed", range(8))
def test_epochs_after_retention_and_a_power_loss_begin_where_the_log_begins(seed: int) -> None:
    """Whether the deleted segments come back or not; their epochs are in the file until it is written again."""
    disk = new_disk()
    log = aged_log(LogConfig(segment_bytes=800, retention_ms=9_500), disk)
    before = log.epochs.entries
    assert log.delete_expired_segments(20_000) > 0
    disk.crash("power", Random(seed))
    again = open_log(disk, log.config, recovery_point=log.recovery_point)
    known = {entry.epoch: max(entry.start_offset, again.log_start_offset) for entry in before}
    assert again.epochs.entries[0].start_offset == again.log_start_offset
    assert all(known[entry.epoch] == entry.start_offset for entry in again.epochs.entries)


def test_retention_of_a_whole_log_on_a_full_disk_deletes_all_but_the_active_segment() -> None:
    """To delete that one, too, another one would have to be begun."""
    disk = new_disk()
    log = aged_log(LogConfig(segment_bytes=800, retention_ms=1), disk)
    segments = len(log.segments)
    disk.fail("open", ".log", error=errno.ENOSPC, times=2)
    assert expire(log, 10**9) == segments - 1
    assert not log.failed
    assert expire(log, 10**9) == 1


def test_records_are_deleted_by_request_on_a_full_disk() -> None:
    disk = new_disk()
    log = aged_log(LogConfig(segment_bytes=800), disk)
    disk.fill()
    assert log.advance_log_start_offset(11) is ErrorCode.NONE
    assert log.delete_expired_segments(0) > 0


def test_log_of_which_everything_is_old() -> None:
    log = aged_log(LogConfig(segment_bytes=800, retention_ms=1))
    expire(log, 10**6)
    assert (log.log_start_offset, log.log_end_offset, log.size, len(log.segments)) == (20, 20, 0, 1)
    assert must_append(log, batch(producer_id=5, epoch=0, sequence=20)).base_offset == 20
    assert log.delete_expired_segments(10**6) == 0, "it is not replicated"
    log.update_high_watermark(21)
    assert expire(log, 10**6) == 1


@pytest.mark.parametrize("end", ["none", "clean", "process", "power"])
def test_retention_forgets_no_live_producer(end: str) -> None:
    """B32, B36: its records are gone, yet its sequence and epoch are known, also after any crash."""
    config = LogConfig(segment_bytes=800, retention_ms=1)
    disk = new_disk()
    log = open_log(disk, config)
    for sequence in range(20):
        must_append(log, batch(b"v" * 100, timestamp=1, producer_id=5, epoch=3, sequence=sequence))
    log.update_high_watermark(20)
    expire(log, 10**6)
    assert log.size == 0
    before = producers(log)
    if end == "clean":
        log.close()
        log = open_log(disk, config, recovery_point=20, clean_shutdown=True)
    elif end != "none":
        disk.crash(end, Random(0))  # type: ignore[arg-type]
        log = open_log(disk, config, recovery_point=20)
    assert producers(log) == before
    assert must_append(log, batch(b"v" * 100, producer_id=5, epoch=3, sequence=19)).duplicate
    assert append(log, batch(producer_id=5, epoch=2, sequence=20)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert must_append(log, batch(producer_id=5, epoch=3, sequence=20)).base_offset == 20


def test_producers_survive_whatever_a_power_loss_leaves_of_retention() -> None:
    """B36: no segment goes before the snapshot of what it says about producers is on the medium."""
    for seed in range(60):
        disk, random = new_disk(), Random(seed)
        config = LogConfig(segment_bytes=800, retention_ms=1)
        log = open_log(disk, config)
        for sequence in range(random.randrange(6, 20)):
            must_append(log, batch(b"v" * 100, timestamp=1, producer_id=5, epoch=3, sequence=sequence))
        log.update_high_watermark(log.log_end_offset)
        recovery_point = 0
        for _ in range(random.randrange(4)):
            if random.random() < 0.5:
                with pytest.raises(StopIteration):
                    log.flush_closed_segments_off_loop().send(None)
                recovery_point = log.recovery_point
            else:
                log.delete_expired_segments(10**6)
        flushed = log.flushed_offset
        disk.crash("power", random)
        again = open_log(disk, config, recovery_point=recovery_point)
        assert again.log_end_offset >= flushed
        if again.log_end_offset:
            assert producers(again) == {5: (3, again.log_end_offset - 1, again.log_end_offset - 1, -1, None)}


def test_deleted_records_move_the_log_start() -> None:
    log = aged_log(LogConfig(segment_bytes=800, **FOREVER))  # type: ignore[arg-type]
    assert log.advance_log_start_offset(99) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.advance_log_start_offset(11) is ErrorCode.NONE
    assert log.advance_log_start_offset(3) is ErrorCode.NONE
    assert log.log_start_offset == 11
    assert [offset for offset, _, _ in content(log)] == list(range(11, 20))
    expected = sum(1 for segment in list(log.segments)[1:] if segment.base_offset <= 11)
    assert log.delete_expired_segments(0) == expected > 0
    assert log.epochs.entries[0].start_offset == 11


@pytest.mark.parametrize("clean", [True, False])
def test_deleted_records_stay_deleted(clean: bool) -> None:
    disk = new_disk()
    log = open_log(disk)
    for sequence in range(5):
        must_append(log, batch(producer_id=5, epoch=0, sequence=sequence))
    log.update_high_watermark(5)
    log.advance_log_start_offset(5)
    if clean:
        log.close()
    log = open_log(disk, log_start_offset=5, recovery_point=5 if clean else 0, clean_shutdown=clean)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert bool(producers(log)) is clean, "without a snapshot nothing tells of them any more"


def test_records_of_an_open_transaction_that_are_deleted() -> None:
    log = open_log(new_disk())
    must_append(log, batch(producer_id=1, epoch=0, sequence=0, transactional=True))
    must_append(log, batch())
    must_append(log, batch())
    log.update_high_watermark(3)
    assert log.last_stable_offset == 0
    log.advance_log_start_offset(2)
    assert log.last_stable_offset == 2
    end_txn(log, marker(1, commit=True))
    log.update_high_watermark(4)
    assert log.last_stable_offset == 4


def test_snapshots_of_segments_that_are_gone_go() -> None:
    log = aged_log(LogConfig(segment_bytes=800, retention_ms=9_500))
    log.delete_expired_segments(20_000)
    assert log.snapshots.offsets == tuple(segment.base_offset for segment in log.segments)
    assert log.directory == DIRECTORY
