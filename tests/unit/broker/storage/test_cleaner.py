"""Compaction: what stays, what goes, and that readers and crashes never see anything in between."""

import asyncio
import re
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.storage.cleaner import LogCleaner, find_cleanable, group_segments
from broker.storage.log_config import LogConfig
from broker.storage.log_segment import LogSegment
from broker.storage.partition_log import AppendOrigin, PartitionLog
from protocol.records.compression import Compression
from protocol.records.record_batch import NewRecord, build_batch, iter_records, stamp_crc
from tests.simulation.sim_disk import MachineStopped, SimDisk
from tests.unit.broker.batches import batch, marker
from tests.unit.broker.storage.logs import (
    DIRECTORY,
    NOW,
    append,
    content,
    end_txn,
    headers,
    must_append,
    new_disk,
    open_log,
    producers,
    read,
)

DAY = 24 * 60 * 60 * 1000
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=1500, index_interval_bytes=200)


def compacted_log(disk: SimDisk | None = None) -> PartitionLog:
    return open_log(disk or new_disk(), CONFIG)


def put(log: PartitionLog, key: bytes, value: bytes | None, **fields: int | bool) -> int:
    data = build_batch([NewRecord(NOW, key, value)], **fields)  # type: ignore[arg-type]
    origin = AppendOrigin.CLIENT if "base_sequence" in fields else AppendOrigin.COORDINATOR
    return must_append(log, data, origin=origin).base_offset


async def clean(
    log: PartitionLog, first_dirty: int = 0, *, now_ms: int = NOW, roll: bool = True, disk: SimDisk | None = None
) -> int:
    if roll:
        log.roll()
    await log.flush_closed_segments_off_loop()
    log.update_high_watermark(log.log_end_offset)
    cleaner = LogCleaner(disk or log._disk, wall_clock=lambda: now_ms)  # type: ignore[arg-type]
    return await cleaner.clean(log, first_dirty)


def last_values(log: PartitionLog) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value in content(log) if value is not None}


async def test_the_last_value_of_each_key_stays() -> None:
    log = compacted_log()
    for number in range(60):
        put(log, b"key%d" % (number % 4), b"value%d" % number)
    segments, size = len(log.segments), log.size
    assert segments > 3
    assert await clean(log) == 60
    assert content(log) == [(56 + n, b"key%d" % n, b"value%d" % (56 + n)) for n in range(4)]
    assert log.size < size // 5
    assert log.log_end_offset == 60
    assert put(log, b"key0", b"new") == 60
    await clean(log, 60)
    assert len(log.segments) == 2, "small neighbours are merged"
    assert last_values(log)[b"key0"] == b"new"


async def test_records_are_cut_out_of_batches() -> None:
    log = compacted_log()
    for codec in Compression:
        records = [
            NewRecord(NOW + n, key, b"%s of %d" % (key, codec)) for n, key in enumerate((b"a", b"own%d" % codec, b"b"))
        ]
        must_append(log, build_batch(records, compression=codec))
    put(log, b"a", b"last")
    await clean(log)
    assert content(log) == [
        *((3 * codec + 1, b"own%d" % codec, b"own%d of %d" % (codec, codec)) for codec in range(4)),
        (13, b"own4", b"own4 of 4"),
        (14, b"b", b"b of 4"),
        (15, b"a", b"last"),
    ]
    fetched = read(log, 0)
    first = headers(fetched.records)[0]
    assert (first.base_offset, first.last_offset, first.records_count) == (0, 2, 1)
    assert first.max_timestamp == NOW + 1
    assert [record.timestamp for record in iter_records(fetched.records, 0, first, max_decompressed_bytes=999)] == [
        NOW + 1
    ]


async def test_tombstones_go_when_they_are_old_and_have_survived_a_pass() -> None:
    log = compacted_log()
    put(log, b"a", b"1")
    put(log, b"a", None)
    put(log, b"b", b"1")
    dirty = await clean(log, now_ms=NOW + 3 * DAY)
    assert content(log) == [(1, b"a", None), (2, b"b", b"1")], "old, but this was the first pass over it"
    put(log, b"c", b"1")
    dirty = await clean(log, dirty, now_ms=NOW + DAY)
    assert (1, b"a", None) in content(log), "not old enough"
    dirty = await clean(log, dirty, now_ms=NOW + DAY + 1)
    assert content(log) == [(2, b"b", b"1"), (3, b"c", b"1")]


async def test_the_last_batch_of_the_range_stays_though_empty() -> None:
    log = compacted_log()
    put(log, b"a", b"1")
    put(log, b"a", None)
    dirty = await clean(log, now_ms=NOW)
    log.roll()
    dirty = await clean(log, dirty, now_ms=NOW + 3 * DAY)
    assert content(log) == []
    assert [header.last_offset for header in headers(read(log, 0).records)] == [1]
    assert dirty == 2


async def test_the_last_sequence_of_a_producer_is_never_lost() -> None:
    """B43."""
    disk = new_disk()
    log = compacted_log(disk)
    for sequence in range(5):
        put(log, b"a", b"by producer", producer_id=7, producer_epoch=2, base_sequence=sequence)
    put(log, b"a", b"by another")
    before = producers(log)
    await clean(log)
    assert [value for _, _, value in content(log)] == [b"by another"]
    kept = [header for header in headers(read(log, 0).records) if header.producer_id == 7]
    assert [(header.base_sequence, header.records_count, header.base_offset) for header in kept] == [(4, 0, 4)]
    disk.crash("process", Random(0))
    for name in disk.list_dir(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")
    again = compacted_log(disk)
    assert producers(again) == before
    assert must_append(again, batch(producer_id=7, epoch=2, sequence=4)).duplicate


async def test_the_epoch_of_a_producer_that_has_only_markers_is_never_lost() -> None:
    log = compacted_log()
    end_txn(log, marker(7, 3, commit=True, coordinator_epoch=1))
    put(log, b"a", b"1")
    dirty = await clean(log, now_ms=NOW + 5 * DAY)
    put(log, b"b", b"1")
    await clean(log, dirty, now_ms=NOW + 5 * DAY)
    assert headers(read(log, 0).records)[0].producer_id == 7


def transaction(log: PartitionLog, key: bytes, value: bytes, *, commit: bool, producer_id: int = 9) -> None:
    put(log, key, value, producer_id=producer_id, producer_epoch=0, is_transactional=True)
    end_txn(log, marker(producer_id, commit=commit))


async def test_aborted_records_go_and_shadow_nothing() -> None:
    log = compacted_log()
    put(log, b"a", b"good")
    transaction(log, b"a", b"bad", commit=False)
    transaction(log, b"b", b"good", commit=True)
    await clean(log)
    assert last_values(log) == {b"a": b"good", b"b": b"good"} | {
        key: value for _, key, value in content(log) if key is not None and key.startswith(b"\0")
    }
    assert log.aborted_transactions(0, 99) == [(9, 1)], "its marker is still there, and clients match markers"


async def test_markers_stay_until_their_data_is_gone_for_a_pass() -> None:
    """B44: control records are never removed because of a key; B42: data and markers may be in different segments."""
    log = compacted_log()
    transaction(log, b"a", b"1", commit=True)
    log.roll()
    transaction(log, b"a", b"2", commit=False)
    log.roll()
    transaction(log, b"a", b"3", commit=True, producer_id=8)
    put(log, b"z", b"1")
    later = NOW + 5 * DAY
    dirty = await clean(log, now_ms=later)
    controls = [header.base_offset for header in headers(read(log, 0).records) if header.is_control]
    assert controls == [1, 3, 5], "their data was there in this pass"
    assert log.aborted_transactions(0, 99) == [(9, 2)]
    log.producer_state.expire(later)
    put(log, b"z", b"2")
    dirty = await clean(log, dirty, now_ms=later)
    controls = [header.base_offset for header in headers(read(log, 0).records) if header.is_control]
    assert controls == [3, 5], "the producers are forgotten, but an empty batch of 9 was still there"
    put(log, b"z", b"3")
    dirty = await clean(log, dirty, now_ms=later)
    controls = [header.base_offset for header in headers(read(log, 0).records) if header.is_control]
    assert controls == [5], "its data is the last value of a key"
    assert log.aborted_transactions(0, 99) == []
    assert last_values(log)[b"a"] == b"3"
    put(log, b"z", b"4")
    await clean(log, dirty, now_ms=later)
    assert [header.base_offset for header in headers(read(log, 0).records) if header.is_control] == [5]


async def test_nothing_undecided_or_volatile_is_cleaned() -> None:
    """B45: the cleaner is bounded by the high watermark and the last stable offset."""
    log = compacted_log()
    for number in range(30):
        if number == 10:
            put(log, b"open", b"1", producer_id=3, producer_epoch=0, is_transactional=True)
        put(log, b"a", b"v" * 100)
    log.roll()
    assert find_cleanable(log, 0, NOW).segments == [], "nothing is flushed"
    await log.flush_closed_segments_off_loop()
    assert find_cleanable(log, 0, NOW).segments == [], "the high watermark is at the start"
    log.update_high_watermark(20)
    assert 0 < find_cleanable(log, 0, NOW).end_offset <= 10
    log.update_high_watermark(log.log_end_offset)
    assert 0 < find_cleanable(log, 0, NOW).end_offset <= 10, "the transaction is open"
    end_txn(log, marker(3, commit=True))
    log.update_high_watermark(log.log_end_offset)
    assert find_cleanable(log, 0, NOW).end_offset == 31
    log.update_config(LogConfig(min_compaction_lag_ms=10**9))
    assert find_cleanable(log, 0, NOW).segments == []


async def test_how_dirty_a_log_is() -> None:
    log = compacted_log()
    for number in range(30):
        put(log, b"key%d" % number, b"v" * 100)
    dirty = await clean(log)
    cleanable = find_cleanable(log, dirty, NOW)
    assert (cleanable.dirty_bytes, cleanable.dirty_ratio) == (0, 0.0)
    assert find_cleanable(log, 0, NOW).dirty_ratio == 1.0


async def test_a_batch_that_is_broken_inside_is_left_as_it_is() -> None:
    log = compacted_log()
    put(log, b"a", b"1")
    broken = batch(b"x", key=b"a")
    broken[61] ^= 0xFF
    stamp_crc(broken)
    append(log, broken)
    put(log, b"a", b"2")
    await clean(log)
    assert [header.base_offset for header in headers(read(log, 0).records)] == [1, 2]


async def test_keys_that_do_not_fit_in_memory_wait_for_the_next_pass() -> None:
    log = compacted_log()
    for number in range(100):
        put(log, b"key%d" % (number % 50), b"v" * 50)
    log.roll()
    await log.flush_closed_segments_off_loop()
    log.update_high_watermark(100)
    expected = last_values(log)
    cleaner = LogCleaner(log._disk, wall_clock=lambda: NOW, max_keys=5)
    dirty, passes = 0, 0
    while dirty < 100:
        cleaned_to = await cleaner.clean(log, dirty)
        assert cleaned_to > dirty
        dirty, passes = cleaned_to, passes + 1
    assert passes > 5
    assert last_values(log) == expected
    assert await clean(log, 0, roll=False) == 100
    assert len(content(log)) == 50


def test_groups_fit_a_segment() -> None:
    """B46: merged segments never hold offsets that are too far from their base."""

    def segment(base_offset: int, size: int) -> LogSegment:
        made = LogSegment(SimDisk(), "", base_offset, LogConfig(), now_ms=0)
        made.size = size
        return made

    bases = [0, 10, 20, 2**31 - 5, 2**31 + 5, 2**31 + 10]
    segments = [segment(base, size) for base, size in zip(bases, (40, 40, 40, 10, 10, 90), strict=True)]
    groups = group_segments(segments, 2**31 + 20, 100, 1000)
    assert [[found.base_offset for found in group] for group in groups] == [
        [0, 10],
        [20, 2**31 - 5, 2**31 + 5],
        [2**31 + 10],
    ]
    groups = group_segments(segments[:4] + [segment(2**31 + 5, 1)], 2**32, 1000, 1000)
    assert [[found.base_offset for found in group] for group in groups] == [
        [0, 10, 20],
        [2**31 - 5],
        [2**31 + 5],
    ]


async def test_a_pass_over_a_log_that_changes_ends_without_a_trace() -> None:
    for change in ("truncate", "retention", "delete"):
        disk = new_disk()
        log = compacted_log(disk)
        for number in range(60):
            put(log, b"key%d" % (number % 4), b"value%d" % number)
        calls = 0

        async def disturb(change: str = change, log: PartitionLog = log, disk: SimDisk = disk) -> None:
            nonlocal calls
            calls += 1
            if calls == 12:
                disk.delay = None
                if change == "truncate":
                    log.truncate_to(20)
                elif change == "retention":
                    log.advance_log_start_offset(40)
                    assert log.delete_expired_segments(0) > 0
                else:
                    log.release()

        log.roll()
        await log.flush_closed_segments_off_loop()
        disk.delay = disturb
        assert await clean(log, disk=disk, roll=False) == 0
        assert calls == 12
        assert not log.failed
        assert not [name for name in disk.list_dir(DIRECTORY) if re.search(r"cleaned|swap", name)]


async def test_appends_and_reads_go_on_during_a_pass() -> None:
    disk = new_disk()
    log = compacted_log(disk)
    for number in range(60):
        put(log, b"key%d" % (number % 4), b"value%d" % number)
    appended = 0

    async def work() -> None:
        nonlocal appended
        appended += 1
        put(log, b"key0", b"meanwhile%d" % appended)
        assert last_values(log)[b"key0"] == b"meanwhile%d" % appended
        await asyncio.sleep(0)

    log.roll()
    await log.flush_closed_segments_off_loop()
    disk.delay = work
    assert await clean(log, roll=False) == 60
    assert appended > 3
    assert last_values(log)[b"key1"] == b"value57"


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["put", "delete", "commit", "abort"])), max_size=40),
    st.integers(0, 6000),
    st.sampled_from(["process", "power"]),
    st.integers(0, 2**32),
)
def test_a_crash_during_a_pass_loses_nothing(
    operations: list[tuple[str, str]], units: int, kind: str, seed: int
) -> None:
    """B42, B43, B44: whenever it happens, a reader afterwards finds the last values, producers and aborted ranges."""
    disk = new_disk()
    log = compacted_log(disk)
    expected: dict[bytes, bytes | None] = {}
    sequence = 0
    for number, (name, operation) in enumerate(operations):
        key, value = name.encode(), b"%d" % number + b"x" * 60
        if operation == "put":
            put(log, key, value, producer_id=1, producer_epoch=0, base_sequence=sequence)
            sequence += 1
            expected[key] = value
        elif operation == "delete":
            put(log, key, None)
            expected[key] = None
        else:
            transaction(log, key, value, commit=operation == "commit")
            if operation == "commit":
                expected[key] = value
    log.roll()
    log.flush()
    log.update_high_watermark(log.log_end_offset)
    before, recovery_point, end = producers(log), log.recovery_point, log.log_end_offset
    dirty = 0

    async def passes() -> None:
        nonlocal dirty
        for now_ms in (NOW, NOW + 3 * DAY):
            dirty = await LogCleaner(disk, wall_clock=lambda: now_ms).clean(log, dirty)  # noqa: B023

    disk.stop_after(units)
    try:
        asyncio.run(passes())
    except MachineStopped:
        pass
    disk.crash(kind, Random(seed))  # type: ignore[arg-type]
    again = open_log(disk, CONFIG, recovery_point=recovery_point)
    assert again.log_end_offset == end
    assert producers(again) == before
    assert committed(again) == {key: value for key, value in expected.items() if value is not None}


def committed(log: PartitionLog) -> dict[bytes | None, bytes | None]:
    """What a reader of committed records makes of the log."""
    aborted = {first: producer_id for producer_id, first in log.aborted_transactions(0, log.log_end_offset)}
    fetched = b"".join(bytes(read(log, segment.base_offset).records) for segment in log.segments if segment.size)
    hidden: set[int] = set()
    found: dict[bytes | None, bytes | None] = {}
    position = 0
    for header in headers(fetched):
        hidden |= {producer_id for first, producer_id in aborted.items() if first <= header.last_offset}
        aborted = {first: producer_id for first, producer_id in aborted.items() if first > header.last_offset}
        if header.is_control:
            hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            for record in iter_records(fetched, position, header, max_decompressed_bytes=9999):
                found[record.key] = record.value
        position += header.size
    return {key: value for key, value in found.items() if value is not None}
