"""Appending to a log and reading from it, as leader and as follower."""

from random import Random

import pytest

from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import AppendInfo, AppendOrigin, ColdRead, FetchedRecords, PartitionLog
from oncelog.broker.storage.recovery import NotedLog
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_batch import CRC_POSITION, crc_is_valid, patch_offset_and_epoch, read_header
from oncelog.protocol.schema import Buffer
from tests.unit.broker.batches import batch, marker
from tests.unit.broker.storage.logs import (
    DIRECTORY,
    TP,
    append,
    content,
    end_txn,
    headers,
    log_host,
    max_timestamp_offset,
    must_append,
    new_disk,
    offset_for_timestamp,
    open_log,
    producers,
    read,
)

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


@pytest.fixture
def log() -> PartitionLog:
    return open_log(new_disk())


def fill(log: PartitionLog, count: int, size: int = 20) -> None:
    for number in range(count):
        must_append(log, batch(b"%d" % number * size))


# As leader


def test_offsets_and_epoch_are_stamped_outside_the_crc(log: PartitionLog) -> None:
    first = must_append(log, batch(b"a", b"b"), epoch=3)
    second = must_append(log, batch(b"c"), epoch=3)
    assert first == AppendInfo(0, 1, 1000, -1, 0, False)
    assert (second.base_offset, second.last_offset, log.log_end_offset) == (2, 2, 3)
    fetched = read(log, 0)
    assert [(header.base_offset, header.partition_leader_epoch) for header in headers(fetched.records)] == [
        (0, 3),
        (2, 3),
    ]
    assert crc_is_valid(fetched.records, 0, headers(fetched.records)[0])
    assert fetched.next_offset == 3
    assert log.epochs.latest_epoch == 3


def test_retry_gets_its_original_offset(log: PartitionLog) -> None:
    """B34."""
    must_append(log, batch(b"x"))
    for sequence in range(5):
        must_append(log, batch(b"a", producer_id=7, epoch=0, sequence=sequence))
    end = log.log_end_offset
    again = must_append(log, batch(b"a", producer_id=7, epoch=0, sequence=2))
    assert (again.base_offset, again.last_offset, again.duplicate) == (3, 3, True)
    assert append(log, batch(b"a", producer_id=7, epoch=0, sequence=7)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, batch(b"a", producer_id=7, epoch=-1, sequence=7)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.log_end_offset == end


def test_log_append_time_is_returned(log: PartitionLog) -> None:
    data = batch(b"a", timestamp=5000)
    header = read_header(data)._replace(attributes=0x08)
    info = log.append_as_leader(data, header, 0, AppendOrigin.CLIENT)
    assert isinstance(info, AppendInfo)
    assert (info.log_append_time, info.max_timestamp) == (5000, 5000)


def test_segment_is_rolled_when_it_is_full() -> None:
    log = open_log(new_disk(), SMALL)
    fill(log, 30)
    assert len(log.segments) > 2
    assert all(segment.size <= 1000 for segment in log.segments)
    assert len(content(log)) == 30


def test_batch_larger_than_a_segment_has_one_of_its_own() -> None:
    log = open_log(new_disk(), SMALL)
    fill(log, 1)
    must_append(log, batch(b"x" * 3000))
    fill(log, 1)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]


def test_segment_is_rolled_when_records_are_younger_than_its_first_by_segment_ms() -> None:
    log = open_log(new_disk(), LogConfig(segment_ms=100))
    for timestamp in (1000, 1100, 900, 1101):
        must_append(log, batch(timestamp=timestamp))
    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_age_of_a_segment_is_known_after_a_restart() -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig(segment_ms=100))
    must_append(log, batch(timestamp=1000))
    log.close()
    log = open_log(disk, LogConfig(segment_ms=100), clean_shutdown=True)
    must_append(log, batch(timestamp=1100))
    must_append(log, batch(timestamp=1101))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_segment_without_timestamps_is_rolled_by_the_clock() -> None:
    now = [0]
    log = PartitionLog.open(log_host(new_disk(), lambda: now[0]), DIRECTORY, TP, LogConfig(segment_ms=100), NotedLog())
    for _ in range(2):
        must_append(log, batch(timestamp=-1))
    now[0] = 101
    must_append(log, batch(timestamp=-1))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_segment_is_rolled_when_its_index_is_full() -> None:
    log = open_log(new_disk(), LogConfig(index_interval_bytes=0, segment_index_bytes=40))
    fill(log, 20)
    assert len(log.segments) > 2
    assert all(len(segment.indexes.offset) <= 5 for segment in log.segments)
    assert len(content(log)) == 20


# Reading


@pytest.mark.parametrize("size", [1, 400, 9000])
def test_read_begins_with_the_batch_that_contains_the_offset(size: int) -> None:
    """B79: a fetch that starts in the middle of a batch returns the batch; no record is skipped."""
    log = open_log(new_disk(), LogConfig(segment_bytes=30_000))
    for _ in range(20):
        must_append(log, batch(*[b"x" * size] * 3))
    for offset in range(60):
        first = headers(read(log, offset, 100).records)[0]
        assert first.base_offset == offset - offset % 3


def test_reads_stop_before_the_upper_offset(log: PartitionLog) -> None:
    fill(log, 50)
    for upper in (0, 1, 17, 49, 50, 99):
        fetched = read(log, 0, upper=upper)
        assert [header.base_offset for header in headers(fetched.records)] == list(range(min(upper, 50)))
        assert fetched.next_offset == min(upper, 50)


def test_reads_are_limited_in_size(log: PartitionLog) -> None:
    fill(log, 50)
    size = read_header(batch(b"10" * 20)).size
    fetched = read(log, 10, 3 * size + 5)
    assert len(fetched.records) == 3 * size + 5, "the last batch may be cut off"
    assert [header.base_offset for header in headers(fetched.records)] == [10, 11, 12]
    assert fetched.next_offset >= 13


def test_first_batch_is_returned_whatever_its_size(log: PartitionLog) -> None:
    must_append(log, batch(b"x" * 50_000))
    must_append(log, batch(b"y" * 50_000))
    assert len(headers(read(log, 1, 100).records)) == 1
    assert log.read(1, 100, upper_offset=2, min_one_batch=False) == FetchedRecords(b"", 1)


def test_offsets_that_the_log_does_not_have(log: PartitionLog) -> None:
    fill(log, 5)
    log.update_high_watermark(5)
    assert log.advance_log_start_offset(2) is ErrorCode.NONE
    assert log.read(1, 100, upper_offset=5) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(6, 100, upper_offset=9) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(5, 100, upper_offset=9) == FetchedRecords(b"", 5)


def test_reading_goes_on_in_the_next_segment() -> None:
    log = open_log(new_disk(), SMALL)
    fill(log, 40)
    assert [offset for offset, _, _ in content(log)] == list(range(40))
    boundary = log.segments[1].base_offset
    assert read(log, boundary - 1).next_offset == boundary
    assert read(log, boundary).next_offset > boundary


async def test_cold_data_is_read_off_the_loop() -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    fill(log, 40)
    warm = [read(log, offset, 300) for offset in range(40)]
    disk.cold = lambda: True
    for offset in range(40):
        cold = log.read(offset, 300, upper_offset=40)
        assert isinstance(cold, ColdRead)
        assert await log.read_cold(cold) == warm[offset]


async def test_data_that_is_partly_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 200, size=200)
    file = type(log.segments.active.file)
    whole = file.try_read_at

    def only_a_part(self: object, size: int, offset: int) -> Buffer | None:
        data = whole(self, size, offset)  # type: ignore[arg-type]
        return None if data is None else data[: size // 3]

    monkeypatch.setattr(file, "try_read_at", only_a_part)
    for offset in range(0, 200, 7):
        found = log.read(offset, 5000, upper_offset=200)
        fetched = await log.read_cold(found) if isinstance(found, ColdRead) else found
        assert isinstance(fetched, FetchedRecords)
        assert headers(fetched.records)[0].base_offset == offset


async def test_cold_read_sees_a_truncation_that_happened_meanwhile() -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    fill(log, 40)

    async def truncate() -> None:
        disk.delay = None
        log.truncate_to(5)
        must_append(log, batch(b"new"), epoch=9)

    disk.delay = truncate
    fetched = await log.read_cold(ColdRead(4, 1000, 40, True))
    assert isinstance(fetched, FetchedRecords)
    assert [(header.base_offset, header.partition_leader_epoch) for header in headers(fetched.records)] == [
        (4, 0),
        (5, 9),
    ]
    fill(log, 10)
    disk.delay = truncate
    assert await log.read_cold(ColdRead(7, 1000, 40, True)) is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_cold_read_survives_retention() -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig(segment_bytes=1000, retention_bytes=1))
    fill(log, 40)
    log.update_high_watermark(40)
    log.flush()

    async def expire() -> None:
        disk.delay = None
        assert log.delete_expired_segments(0) > 0

    disk.delay = expire
    assert await log.read_cold(ColdRead(3, 100, 40, True)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert not log.failed


# Transactions


def test_last_stable_offset(log: PartitionLog) -> None:
    must_append(log, batch())
    must_append(log, batch(producer_id=1, epoch=0, sequence=0, transactional=True))
    must_append(log, batch(producer_id=2, epoch=0, sequence=0, transactional=True))
    log.update_high_watermark(3)
    assert log.last_stable_offset == 1
    end_txn(log, marker(1, commit=True))
    assert log.last_stable_offset == 1, "the marker is not replicated"
    log.update_high_watermark(4)
    assert log.last_stable_offset == 2
    end_txn(log, marker(2, commit=False))
    log.update_high_watermark(5)
    assert log.last_stable_offset == log.high_watermark == 5
    must_append(log, batch(producer_id=1, epoch=0, sequence=1, transactional=True))
    assert log.last_stable_offset == 5, "never beyond the high watermark"


def test_aborted_transactions_of_a_range() -> None:
    """B38, B48: the list is complete for what a read below the last stable offset returns, over segments too."""
    log = open_log(new_disk(), SMALL)
    for number in range(6):
        must_append(log, batch(b"x" * 300, producer_id=number, epoch=0, sequence=0, transactional=True))
    for number in range(6):
        end_txn(log, marker(number, commit=number % 2 == 0))
        fill(log, 3, size=100)
    log.update_high_watermark(log.log_end_offset)
    assert len(log.segments) > 3
    assert log.aborted_transactions(0, log.last_stable_offset) == [(1, 1), (3, 3), (5, 5)]
    assert log.aborted_transactions(3, 5) == [(1, 1), (3, 3)]
    last_marker = 6 + 4 * 5
    assert log.aborted_transactions(last_marker, last_marker + 1) == [(5, 5)]
    assert log.aborted_transactions(last_marker + 1, log.log_end_offset) == []


def test_markers_are_fenced(log: PartitionLog) -> None:
    must_append(log, batch(producer_id=1, epoch=3, sequence=0, transactional=True))
    coordinator = AppendOrigin.COORDINATOR
    assert append(log, marker(1, 2, commit=True), 0, coordinator) is ErrorCode.INVALID_PRODUCER_EPOCH
    end_txn(log, marker(1, 3, commit=True, coordinator_epoch=5))
    old = marker(1, 3, commit=False, coordinator_epoch=4)
    assert append(log, old, 0, coordinator) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.log_end_offset == 2


def test_control_batch_without_a_marker_is_refused(log: PartitionLog) -> None:
    broken = marker(1, commit=True)
    broken[-1] = 99
    assert append(log, broken, 0, AppendOrigin.COORDINATOR) is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0


def test_marker_of_an_empty_transaction_is_in_no_index(log: PartitionLog) -> None:
    end_txn(log, marker(1, commit=False))
    log.update_high_watermark(1)
    assert log.aborted_transactions(0, 1) == []
    assert log.last_stable_offset == 1


# As follower


def batches_of(log: PartitionLog, start: int = 0) -> bytes:
    data, offset = b"", start
    while offset < log.log_end_offset:
        fetched = read(log, offset)
        data += bytes(fetched.records)
        offset = fetched.next_offset
    return data


def leader_log() -> PartitionLog:
    leader = open_log(new_disk(), SMALL)
    for number in range(8):
        epoch = 1 if number < 4 else 4
        must_append(leader, batch(b"x" * 100, producer_id=9, epoch=0, sequence=number, transactional=True), epoch)
        if number % 3 == 2:
            end_txn(leader, marker(9, commit=number != 5), epoch)
        must_append(leader, batch(b"y" * 50), epoch)
    return leader


def test_follower_becomes_what_its_leader_is() -> None:
    leader = leader_log()
    follower = open_log(new_disk(), LogConfig(segment_bytes=700, index_interval_bytes=100))
    info = follower.append_as_follower(batches_of(leader))
    assert isinstance(info, AppendInfo)
    assert (info.base_offset, info.last_offset) == (0, leader.log_end_offset - 1)
    assert content(follower) == content(leader)
    assert producers(follower) == producers(leader)
    assert follower.epochs.entries == leader.epochs.entries
    for log in (leader, follower):
        log.update_high_watermark(log.log_end_offset)
    assert follower.last_stable_offset == leader.last_stable_offset
    assert follower.aborted_transactions(0, 99) == leader.aborted_transactions(0, 99) != []
    assert len(follower.segments) > len(leader.segments)


def test_batch_that_is_cut_off_is_left_out() -> None:
    leader = leader_log()
    data = batches_of(leader)
    follower = open_log(new_disk())
    while follower.log_end_offset < leader.log_end_offset:
        before = follower.log_end_offset
        assert isinstance(follower.append_as_follower(batches_of(leader, before)[:400]), AppendInfo)
        assert follower.log_end_offset > before
    assert batches_of(follower) == data
    assert follower.append_as_follower(b"") == AppendInfo(18, 17, -1, -1, 0, False)


def test_follower_takes_no_corrupt_batch() -> None:
    data = bytearray(batches_of(leader_log()))
    data[CRC_POSITION] ^= 1
    follower = open_log(new_disk())
    assert follower.append_as_follower(data) is ErrorCode.CORRUPT_MESSAGE
    assert (follower.log_end_offset, follower.size) == (0, 0)


def test_follower_takes_no_batch_of_a_later_epoch_than_its_fetch() -> None:
    leader = leader_log()
    follower = open_log(new_disk())
    follower.append_as_follower(batches_of(leader), leader_epoch=3)
    assert follower.log_end_offset == leader.epochs.entries[1].start_offset
    assert follower.epochs.latest_epoch == 1


def test_follower_takes_no_offsets_again() -> None:
    leader = leader_log()
    follower = open_log(new_disk())
    follower.append_as_follower(batches_of(leader))
    assert follower.append_as_follower(batches_of(leader)) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_gaps_that_compaction_left_are_taken_over() -> None:
    first, second = batch(b"a", b"b"), batch(b"c")
    patch_offset_and_epoch(first, 0, 5, 0)
    patch_offset_and_epoch(second, 0, 100, 0)
    follower = open_log(new_disk())
    follower.append_as_follower(bytes(first + second))
    assert follower.log_end_offset == 101
    assert [offset for offset, _, _ in content(follower)] == [5, 6, 100]
    assert headers(read(follower, 50).records)[0].base_offset == 100


def test_offsets_too_far_apart_for_one_segment() -> None:
    first, second = batch(b"a"), batch(b"b")
    patch_offset_and_epoch(second, 0, 2**33, 0)
    follower = open_log(new_disk())
    follower.append_as_follower(bytes(first + second))
    assert [segment.base_offset for segment in follower.segments] == [0, 2**33]
    assert [offset for offset, _, _ in content(follower)] == [0, 2**33]


def test_log_that_begins_inside_a_batch() -> None:
    """A leader's records were deleted up to the middle of a batch; its follower begins with an empty log there."""
    data = batch(b"a", b"b", b"c")
    patch_offset_and_epoch(data, 0, 10, 0)
    follower = open_log(new_disk())
    follower.truncate_fully_and_start_at(11)
    assert isinstance(follower.append_as_follower(bytes(data)), AppendInfo)
    assert (follower.log_start_offset, follower.high_watermark, follower.log_end_offset) == (11, 11, 13)
    assert headers(read(follower, 11).records)[0].base_offset == 10


# Time


def test_offsets_by_time() -> None:
    log = open_log(new_disk(), SMALL)
    for number in range(40):
        must_append(log, batch(b"x" * 20, b"y", timestamp=1000 + 10 * number))
    for target, offset in ((0, 0), (1000, 0), (1001, 2), (1250, 50), (1390, 78)):
        found = offset_for_timestamp(log, target)
        assert found is not None
        assert (found.offset, found.leader_epoch) == (offset, 0)
    assert offset_for_timestamp(log, 1391) is None
    latest = max_timestamp_offset(log)
    assert latest is not None
    assert (latest.timestamp, latest.offset) == (1390, 78)
    log.update_high_watermark(log.log_end_offset)
    log.advance_log_start_offset(31)
    found = offset_for_timestamp(log, 0)
    assert found is not None
    assert found.offset == 31


def test_offsets_by_time_when_time_goes_back() -> None:
    """B47."""
    log = open_log(new_disk(), SMALL)
    random = Random(3)
    timestamps = [random.randrange(1000, 2000) for _ in range(60)]
    for timestamp in timestamps:
        must_append(log, batch(b"x" * 20, timestamp=timestamp))
    for target in range(1000, 2001, 37):
        expected = next((offset for offset, timestamp in enumerate(timestamps) if timestamp >= target), None)
        found = offset_for_timestamp(log, target)
        assert (None if found is None else found.offset) == expected
    latest = max_timestamp_offset(log)
    assert latest is not None
    assert latest.offset == timestamps.index(max(timestamps))


def test_read_of_an_empty_log_finds_nothing(log: PartitionLog) -> None:
    assert offset_for_timestamp(log, 0) is None
    assert max_timestamp_offset(log) is None


def test_batch_that_is_broken_inside_stops_no_search(log: PartitionLog) -> None:
    broken = batch(b"a", timestamp=1500)
    broken[61] ^= 0xFF
    header = read_header(broken)
    log.append_as_leader(broken, header, 0, AppendOrigin.CLIENT)
    found = offset_for_timestamp(log, 1200)
    assert found is not None
    assert (found.timestamp, found.offset) == (1500, 0)


def test_sizes_between_offsets() -> None:
    log = open_log(new_disk(), LogConfig(segment_bytes=1000, index_interval_bytes=0))
    fill(log, 40)
    assert log.size_between(5, 5) == 0
    assert log.size_between(39, 40) > 0
    assert abs(log.size_between(0, 40) - log.size) <= log.size // 10
    assert abs(log.size_between(10, 30) - log.size // 2) <= log.size // 10


def test_settings_that_change_take_effect(log: PartitionLog) -> None:
    fill(log, 10)
    log.update_config(LogConfig(segment_bytes=500))
    fill(log, 20)
    assert len(log.segments) > 2
