"""Compaction: what stays, what goes, and that readers and crashes never see anything in between."""

import asyncio
import re
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.broker.storage.cleanable import find_cleanable
from oncelog.broker.storage.cleaner import LogCleaner, group_segments
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.log_segment import LogSegment
from oncelog.broker.storage.partition_log import AppendInfo, AppendOrigin, PartitionLog
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.record_batch import (
    HEADER_SIZE,
    NewRecord,
    assemble_batch,
    build_batch,
    crc_is_valid,
    iter_batches,
    iter_records,
    read_header,
    stamp_crc,
)
from oncelog.protocol.records.rewriting import iter_record_spans, retain_records
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
    offset_for_timestamp,
    open_log,
    producers,
    read,
)
from tests.unit.protocol.records.walks import completed

DAY = 24 * 60 * 60 * 1000
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=1500, index_interval_bytes=200)


def compacted_log(disk: SimDisk | None = None) -> PartitionLog:
    return open_log(disk or new_disk(), CONFIG)


def put(log: PartitionLog, key: bytes | None, value: bytes | None, **fields: int | bool) -> int:
    data = build_batch([NewRecord(NOW, key, value)], **fields)  # type: ignore[arg-type]
    origin = AppendOrigin.CLIENT if "base_sequence" in fields else AppendOrigin.COORDINATOR
    return must_append(log, data, origin=origin).base_offset


async def clean(log: PartitionLog, *, now_ms: int = NOW, roll: bool = True, disk: SimDisk | None = None) -> int:
    """Make a pass; returns the cleaned offset afterwards."""
    if roll:
        log.roll()
    await log.flush_closed_segments_off_loop()
    log.update_high_watermark(log.log_end_offset)
    cleaner = LogCleaner(disk or log._disk, wall_clock=lambda: now_ms)  # type: ignore[arg-type]
    await cleaner.clean(log)
    return log.cleaned_offset


def last_values(log: PartitionLog) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value in content(log) if value is not None}


async def test_last_value_of_each_key_stays() -> None:
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
    await clean(log)
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


async def test_tombstone_with_old_timestamp_stays_for_delete_retention_from_its_first_cleaning() -> None:
    """KIP-534: the broker's clock counts, and the time until which it stays is written into its batch."""
    log = compacted_log()
    put(log, b"a", b"1")
    put(log, b"a", None)
    put(log, b"b", b"1")
    first_ms = NOW + 100 * DAY
    await clean(log, now_ms=first_ms)
    assert content(log) == [(1, b"a", None), (2, b"b", b"1")]
    found = headers(read(log, 0).records)[0]
    assert (found.has_delete_horizon, found.base_timestamp) == (True, first_ms + DAY)
    assert found.max_timestamp == NOW, "records keep their timestamps"
    for later_ms in (first_ms + 1, first_ms + DAY - 1):
        put(log, b"c", b"%d" % later_ms)
        await clean(log, now_ms=later_ms)
        assert headers(read(log, 0).records)[0] == found, "the horizon is set once"
    put(log, b"c", b"3")
    await clean(log, now_ms=first_ms + DAY)
    assert [key for _, key, _ in content(log)] == [b"b", b"c"]


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
async def test_cleaning_of_a_batch_that_decompresses_to_much_keeps_no_turn_of_the_loop(codec: Compression) -> None:
    """1 MiB is decompressed in a turn, or 64 KiB compressed: codecs do gigabytes a second, or some ten megabytes."""
    log = compacted_log()
    size, turns = 16 << 20, 0
    data = build_batch([NewRecord(NOW, b"a", bytes(size)), NewRecord(NOW, b"b", b"old")], compression=codec)
    must_append(log, data)
    put(log, b"b", b"new")

    async def watch() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        watcher = group.create_task(watch())
        await clean(log)
        watcher.cancel()
    assert headers(read(log, 0).records)[0].records_count == 1
    assert turns > size / (1 << 20) + size / (64 << 10)


async def test_delete_horizon_in_a_batch_of_the_same_size_is_written() -> None:
    """A pass that only sets the horizon has done something, whatever the sizes say."""
    log = compacted_log()
    data = build_batch([NewRecord(NOW, b"a", None)])
    header = read_header(data)
    spans = list(iter_record_spans(bytes(data[61:]), header))
    far = completed(retain_records(header, bytes(data[61:]), spans, delete_horizon_ms=NOW + DAY - 7))
    header = read_header(far)
    must_append(log, assemble_batch(header._replace(attributes=0), far[61:]))
    size = log.size
    await clean(log, now_ms=NOW)
    assert log.size == size
    assert [header.has_delete_horizon for header in headers(read(log, 0).records)] == [True]


async def test_batches_with_a_delete_horizon_are_replicated_recovered_and_found_by_time() -> None:
    disk = new_disk()
    log = compacted_log(disk)
    must_append(log, build_batch([NewRecord(NOW, b"a", None), NewRecord(NOW + 5, b"b", b"1")]))
    put(log, b"c", b"1", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_txn(log, marker(9, commit=False))
    end_txn(log, marker(8, commit=True))
    await clean(log, now_ms=NOW + DAY)
    fetched = read(log, 0).records
    assert [header.has_delete_horizon for header in headers(fetched)] == [True, False, False, True]
    follower = compacted_log()
    assert isinstance(follower.append_as_follower(fetched), AppendInfo)
    disk.crash("process", Random(0))
    for copy in (follower, open_log(disk, CONFIG)):
        assert bytes(read(copy, 0).records) == bytes(fetched)
        assert producers(copy) == producers(log)
        found = offset_for_timestamp(copy, NOW + 1)
        assert found is not None
        assert (found.timestamp, found.offset) == (NOW + 5, 1)


async def test_last_batch_of_the_range_stays_though_empty() -> None:
    log = compacted_log()
    put(log, b"a", b"1")
    put(log, b"a", None)
    await clean(log, now_ms=NOW)
    log.roll()
    put(log, b"b", b"1")
    dirty = await clean(log, now_ms=NOW + 3 * DAY)
    assert content(log) == [(2, b"b", b"1")]
    assert dirty == 3


async def test_records_without_a_key_go_when_a_topic_becomes_compacted() -> None:
    log = open_log(new_disk(), LogConfig())
    must_append(log, build_batch([NewRecord(NOW, None, b"1"), NewRecord(NOW, b"a", b"2"), NewRecord(NOW, None, b"3")]))
    put(log, None, b"4")
    put(log, b"b", b"5")
    log.update_config(CONFIG)
    await clean(log)
    assert content(log) == [(1, b"a", b"2"), (4, b"b", b"5")]


async def test_written_segment_ends_with_a_batch_so_that_recovery_finds_no_gap() -> None:
    """The recovery point is checkpointed once a minute: a crash before that recovers what was cleaned meanwhile."""
    disk = new_disk()
    log = compacted_log(disk)
    put(log, b"first", b"x" * 1300)
    for number in range(3):
        put(log, b"a", b"%d" % number + b"x" * 1300)
    put(log, b"b", b"1")
    before = last_values(log)
    await clean(log)
    disk.crash("process", Random(0))
    again = open_log(disk, CONFIG, recovery_point=0)
    assert again.log_end_offset == 5
    assert last_values(again) == before


async def test_gap_that_compaction_left_between_segments_is_no_end_for_recovery() -> None:
    """As earlier versions and Apache Kafka leave them."""
    disk = new_disk()
    log = compacted_log(disk)
    put(log, b"a", b"1")
    put(log, b"b", b"1")
    log.roll()
    put(log, b"c", b"1")
    log.segments.first.cut(len(build_batch([NewRecord(NOW, b"a", b"1")])))
    disk.crash("process", Random(0))
    assert open_log(disk, CONFIG, cleaned_offset=2).log_end_offset == 3
    assert open_log(disk, CONFIG, cleaned_offset=1).log_end_offset == 1, "the end of a segment is missing"


@pytest.mark.parametrize(
    ("policy", "cleaned_offset", "end_offset"),
    [({"compact"}, 0, 3), ({"compact", "delete"}, 0, 3), (set(), 0, 3), ({"delete"}, 1, 3), ({"delete"}, 0, 0)],
)
async def test_gap_of_a_killed_cleaning_is_no_end_for_recovery_while_power_held(
    policy: set[str], cleaned_offset: int, end_offset: int
) -> None:
    """Earlier versions and Apache Kafka note the cleaned offset only after the cleaning of the whole log."""
    disk = new_disk()
    log = compacted_log(disk)
    put(log, b"a", b"1")
    log.roll()
    put(log, b"b", b"1")
    log.roll()
    put(log, b"c", b"1")
    for segment in list(log.segments)[:2]:
        segment.cut(0)
    disk.crash("process", Random(0))
    config = replace(CONFIG, cleanup_policy=frozenset(policy))
    again = open_log(disk, config, cleaned_offset=cleaned_offset, power_held=True)
    assert again.log_end_offset == end_offset
    assert content(again) == ([(2, b"c", b"1")] if end_offset else [])


async def test_last_sequence_of_a_producer_is_never_lost() -> None:
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


async def test_epoch_of_a_producer_that_has_only_markers_is_never_lost() -> None:
    log = compacted_log()
    end_txn(log, marker(7, 3, commit=True, coordinator_epoch=1))
    put(log, b"a", b"1")
    for day in (5, 7, 9):
        await clean(log, now_ms=NOW + day * DAY)
        put(log, b"b", b"%d" % day)
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
    await clean(log, now_ms=NOW)

    def controls() -> list[tuple[int, bool]]:
        found = headers(read(log, 0).records)
        return [(header.base_offset, header.has_delete_horizon) for header in found if header.is_control]

    assert controls() == [(1, False), (3, False), (5, False)], "their data was there in this pass"
    assert log.aborted_transactions(0, 99) == [(9, 2)]
    log.producer_state.expire(NOW + 5 * DAY, 0)
    put(log, b"z", b"2")
    await clean(log, now_ms=NOW + DAY)
    assert controls() == [(1, True), (3, False), (5, False)], "an empty batch of 9 was still there before the second"
    assert log.aborted_transactions(0, 99) == [(9, 2)]
    put(log, b"z", b"3")
    await clean(log, now_ms=NOW + 2 * DAY)
    assert controls() == [(3, True), (5, False)], "a day after its data was found gone"
    assert log.aborted_transactions(0, 99) == []
    put(log, b"z", b"4")
    await clean(log, now_ms=NOW + 3 * DAY - 1)
    assert controls() == [(3, True), (5, False)]
    put(log, b"z", b"5")
    await clean(log, now_ms=NOW + 3 * DAY)
    assert controls() == [(5, False)], "its data is the last value of a key"
    assert last_values(log)[b"a"] == b"3"


async def test_undecided_or_unflushed_records_are_not_cleaned() -> None:
    """B45: the cleaner is bounded by the high watermark and the last stable offset."""
    log = compacted_log()
    for number in range(30):
        if number == 10:
            put(log, b"open", b"1", producer_id=3, producer_epoch=0, is_transactional=True)
        put(log, b"a", b"v" * 100)
    log.roll()
    assert find_cleanable(log, NOW).segments == [], "nothing is flushed"
    await log.flush_closed_segments_off_loop()
    assert find_cleanable(log, NOW).segments == [], "the high watermark is at the start"
    log.update_high_watermark(20)
    assert 0 < find_cleanable(log, NOW).end_offset <= 10
    log.update_high_watermark(log.log_end_offset)
    assert 0 < find_cleanable(log, NOW).end_offset <= 10, "the transaction is open"
    end_txn(log, marker(3, commit=True))
    log.update_high_watermark(log.log_end_offset)
    assert find_cleanable(log, NOW).end_offset == 31
    log.update_config(LogConfig(min_compaction_lag_ms=10**9))
    assert find_cleanable(log, NOW).segments == []


async def test_dirty_ratio_counts_bytes_since_the_last_cleaning() -> None:
    log = compacted_log()
    for number in range(30):
        put(log, b"key%d" % number, b"v" * 100)
    assert find_cleanable(log, NOW).dirty_ratio == 0.0, "nothing may be cleaned yet"
    await log.flush_closed_segments_off_loop()
    log.update_high_watermark(log.log_end_offset)
    assert find_cleanable(log, NOW).dirty_ratio == 1.0
    await clean(log)
    cleanable = find_cleanable(log, NOW)
    assert (cleanable.dirty_bytes, cleanable.dirty_ratio) == (0, 0.0)


async def test_batch_that_is_broken_inside_is_left_as_it_is() -> None:
    log = compacted_log()
    put(log, b"a", b"1")
    broken = batch(b"x", key=b"a")
    broken[61] ^= 0xFF
    stamp_crc(broken)
    append(log, broken)
    put(log, b"a", b"2")
    await clean(log)
    assert [header.base_offset for header in headers(read(log, 0).records)] == [1, 2]


def damage(log: PartitionLog, position: int) -> None:
    """Flip a bit in the file of the first segment."""
    file = log.segments.first.file
    (byte,) = file.read_at(1, position)
    file.write_at(bytes([byte ^ 0x10]), position)


async def test_corrupt_batch_makes_a_log_uncleanable_and_never_gets_a_valid_crc(
    caplog: pytest.LogCaptureFixture,
) -> None:
    size = len(build_batch([NewRecord(NOW, b"a", b"value0")] * 2))
    for position in (HEADER_SIZE - 1, size - 3, 8, 16, 23, 35, size + HEADER_SIZE + 4):
        log = compacted_log()
        for number in range(4):
            must_append(
                log, build_batch([NewRecord(NOW, b"a", b"value%d" % number), NewRecord(NOW, b"own%d" % number, b"1")])
            )
        log.roll()
        damage(log, position)
        before = read_file(log)
        caplog.clear()
        for _ in range(2):
            await clean(log, roll=False)
        assert read_file(log) == before, position
        assert (log.uncleanable, log.failed, log.cleaned_offset) == (True, False, 0)
        assert [record.levelname for record in caplog.records if "not cleaned" in record.message] == ["ERROR"] * 2


def read_file(log: PartitionLog) -> bytes:
    return log.segments.first.file.read_at(log.segments.first.size, 0)


async def test_batch_that_rots_between_the_two_walks_is_not_rewritten() -> None:
    disk = new_disk()
    log = compacted_log(disk)
    for number in range(30):
        put(log, b"a", b"value%d" % number)
    log.roll()
    await log.flush_closed_segments_off_loop()
    reads = 0

    async def rot() -> None:
        nonlocal reads
        reads += 1
        if reads == len(log.segments):  # Each closed segment is read once, for its keys.
            damage(log, log.segments.first.size - 3)

    disk.delay = rot
    await clean(log, roll=False)
    assert log.uncleanable
    for segment in log.segments:
        data = segment.file.read_at(segment.size, 0)
        values = [
            record.value
            for position, header in iter_batches(data)
            if crc_is_valid(data, position, header)
            for record in iter_records(data, position, header, max_decompressed_bytes=9999)
        ]
        assert all(value is not None and value.startswith(b"value") for value in values)


async def test_pass_over_a_log_that_is_no_longer_compacted_ends() -> None:
    """KAFKA-12840."""
    disk = new_disk()
    log = compacted_log(disk)
    for number in range(60):
        put(log, b"a", b"value%d" % number)
    log.roll()
    await log.flush_closed_segments_off_loop()
    before = content(log)

    async def change() -> None:
        log.update_config(LogConfig())

    disk.delay = change
    assert await clean(log, roll=False) == 0
    assert content(log) == before


async def test_batch_of_many_records_is_cleaned_in_slices() -> None:
    """A batch may hold as many records as decompress; the loop runs between pieces of it."""
    log = compacted_log()
    must_append(
        log,
        build_batch([NewRecord(NOW, b"k%d" % (n % 5000), b"") for n in range(10_000)], compression=Compression.ZSTD),
    )
    log.roll()
    await log.flush_closed_segments_off_loop()
    turns = 0
    loop = asyncio.get_running_loop()

    def count() -> None:
        nonlocal turns
        turns += 1
        if log.cleaned_offset == 0:
            loop.call_soon(count)

    loop.call_soon(count)
    await clean(log, roll=False)
    assert len(content(log)) == 5000
    assert turns >= 20


async def test_keys_that_do_not_fit_in_memory_wait_for_the_next_pass() -> None:
    log = compacted_log()
    for number in range(100):
        put(log, b"key%d" % (number % 50), b"v" * 50)
    log.roll()
    await log.flush_closed_segments_off_loop()
    log.update_high_watermark(100)
    expected = last_values(log)
    cleaner = LogCleaner(log._disk, wall_clock=lambda: NOW, max_keys=5)
    passes = 0
    while log.cleaned_offset < 100:
        assert await cleaner.clean(log)
        passes += 1
    assert passes > 5
    assert last_values(log) == expected
    log.cleaned_offset = 0
    assert await clean(log, roll=False) == 100
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


async def test_pass_over_a_log_that_changes_ends_without_a_trace() -> None:
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
    st.booleans(),
    st.integers(0, 2**32),
)
def test_crash_during_a_pass_loses_nothing(
    operations: list[tuple[str, str]], units: int, kind: str, checkpointed: bool, seed: int
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

    async def passes() -> None:
        for now_ms in (NOW, NOW + 3 * DAY):
            log.cleaned_offset = 0
            await LogCleaner(disk, wall_clock=lambda: now_ms).clean(log)  # noqa: B023

    disk.stop_after(units)
    try:
        asyncio.run(passes())
    except MachineStopped:
        pass
    disk.crash(kind, Random(seed))  # type: ignore[arg-type]
    again = open_log(disk, CONFIG, recovery_point=checkpointed and recovery_point)
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
