"""Batches as messages for old consumers, read by kafka-python's own decoder."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import AbortedTransaction
from oncelog.protocol.records.compression import Compression, compress
from oncelog.protocol.records.control_records import build_end_txn_marker
from oncelog.protocol.records.down_conversion import OldFetch, OldMessages, convert_batches
from oncelog.protocol.records.old_messages import peek_magic_and_attributes, read_message
from oncelog.protocol.records.record_batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    NewRecord,
    assemble_batch,
    build_batch,
    encode_record,
    patch_offset_and_epoch,
    read_header,
    stamp_header,
)
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.records.rewriting import empty_batch
from tests.unit.protocol.records.old_sets import (
    KAFKA_PYTHONS_CODECS,
    NOW,
    OLD_CODECS,
    OLD_RECORDS,
    OldRecord,
    convert_up,
    read_by_kafka_python,
    records_of,
    run,
)

GZIP, NONE = Compression.GZIP, Compression.NONE
PRODUCER = 9


def placed(batch: bytearray, offset: int) -> bytearray:
    patch_offset_and_epoch(batch, 0, offset, 3)
    return batch


def batch_at(offset: int, *values: bytes, codec: Compression = NONE, producer_id: int = -1) -> bytearray:
    """Transactional if it has a producer id."""
    records = [NewRecord(NOW, b"k", value, [("header", b"x")]) for value in values]
    batch = build_batch(
        records,
        compression=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
    )
    return placed(batch, offset)


def marker_at(offset: int, producer_id: int = PRODUCER, *, commit: bool) -> bytearray:
    marker = build_end_txn_marker(
        producer_id=producer_id, producer_epoch=0, commit=commit, coordinator_epoch=0, timestamp=NOW
    )
    return placed(marker, offset)


def convert(
    *batches: bytes | bytearray, magic: int = 1, offset: int = 0, max_bytes: int = 1 << 20, units: int = 50, **rest: Any
) -> OldMessages:
    budget = WorkBudget(units)
    wanted = OldFetch(magic, offset, max_bytes, rest.pop("max_decompressed_bytes", 1 << 24), **rest)
    converted, _ = run(convert_batches(b"".join(batches), wanted, budget), budget, units)
    assert isinstance(converted, OldMessages)
    return converted


def seen(converted: OldMessages) -> list[tuple[int, bytes | None]]:
    assert converted.error is ErrorCode.NONE
    return [(offset, value) for offset, _, _, value in read_by_kafka_python(converted.entries)]


@given(st.sampled_from([0, 1]), st.sampled_from(KAFKA_PYTHONS_CODECS), OLD_RECORDS, st.data())
def test_records_are_read_back_by_kafka_python(
    magic: int, codec: Compression, records: list[OldRecord], data: st.DataObject
) -> None:
    if magic == 0 and codec is Compression.LZ4:
        codec = GZIP
    start, units = data.draw(st.integers(0, len(records) - 1)), data.draw(st.integers(1, 3000))
    batch = placed(build_batch([NewRecord(*record) for record in records], compression=codec), 100)
    converted = convert(batch, magic=magic, offset=100 + start, units=units, max_bytes=1 << 24)
    assert list(read_by_kafka_python(converted.entries)) == [
        (100 + index, record.timestamp if magic else None, record.key, record.value)
        for index, record in enumerate(records)
        if index >= start
    ]
    assert (converted.next_offset, converted.message_count) == (100 + len(records), len(records) - start)


@given(st.sampled_from([0, 1]), st.sampled_from(OLD_CODECS), OLD_RECORDS)
def test_round_trip_over_both_conversions_keeps_keys_values_and_codec(
    magic: int, codec: Compression, records: list[OldRecord]
) -> None:
    batch = build_batch([NewRecord(*record) for record in records], compression=codec)
    converted = convert(batch, magic=magic, max_bytes=1 << 24)
    again = convert_up(converted.entries)
    assert isinstance(again, tuple)
    assert again[1].compression is codec
    assert [(record[1:4]) for record in records_of(again)] == [
        (record.timestamp if magic else -1, record.key, record.value) for record in records
    ]


@given(
    st.sampled_from([0, 1]),
    st.sampled_from([NONE, GZIP]),
    st.integers(1, 2000),
    st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=8), min_size=1, max_size=8),
)
def test_consumer_that_goes_on_behind_its_last_message_sees_everything_once(
    magic: int, codec: Compression, max_bytes: int, batches: Sequence[Sequence[bytes]]
) -> None:
    log, expected, end = b"", [], 0
    for values in batches:
        log += batch_at(end, *values, codec=codec)
        expected += enumerate(values, end)
        end += len(values)
    found: list[tuple[int, bytes | None]] = []
    offset = 0
    for _ in range(len(expected) + 1):
        converted = convert(log, magic=magic, offset=offset, max_bytes=max_bytes)
        found += seen(converted)
        offset = found[-1][0] + 1
        assert converted.next_offset == offset
        if offset == end:
            break
    assert found == expected


def test_markers_headers_and_emptied_batches_are_left_out() -> None:
    emptied = empty_batch(read_header(batch_at(3, b"c", producer_id=PRODUCER)))
    log = [batch_at(0, b"a", b"b"), marker_at(2, commit=True), emptied, marker_at(4, commit=False), batch_at(5, b"d")]
    converted = convert(*log)
    assert seen(converted) == [(0, b"a"), (1, b"b"), (5, b"d")]
    assert b"header" not in converted.entries


def test_range_of_markers_only_says_where_to_read_on() -> None:
    converted = convert(marker_at(4, commit=True), marker_at(5, commit=False), offset=2)
    assert (converted.entries, converted.next_offset, converted.error) == (b"", 6, ErrorCode.NONE)


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_records_of_aborted_transactions_are_left_out_if_these_are_known(codec: Compression) -> None:
    log = [
        batch_at(0, b"aborted", codec=codec, producer_id=PRODUCER),
        batch_at(1, b"other", codec=codec, producer_id=PRODUCER + 1),
        marker_at(2, commit=False),
        batch_at(3, b"next", codec=codec, producer_id=PRODUCER),
        marker_at(4, commit=True),
    ]
    aborted = [AbortedTransaction(producer_id=PRODUCER, first_offset=0)]
    assert seen(convert(*log, aborted_transactions=aborted)) == [(1, b"other"), (3, b"next")]
    assert seen(convert(*log)) == [(0, b"aborted"), (1, b"other"), (3, b"next")]


def test_zstd_is_an_error_behind_what_comes_before() -> None:
    log = [batch_at(0, b"a"), batch_at(1, b"b", codec=Compression.ZSTD)]
    assert seen(convert(*log)) == [(0, b"a")]
    assert convert(*log).next_offset == 1
    assert convert(*log, offset=1).error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_append_time_is_that_of_every_message(codec: Compression) -> None:
    batch = placed(build_batch([NewRecord(5, None, b"a"), NewRecord(9, None, b"b")], compression=codec), 0)
    header = read_header(batch)
    stamp_header(batch, header._replace(attributes=header.attributes | LOG_APPEND_TIME_BIT, max_timestamp=NOW))
    entries = convert(batch).entries
    assert [timestamp for _, timestamp, _, _ in read_by_kafka_python(entries)] == [NOW, NOW]
    head = peek_magic_and_attributes(entries)
    assert head == (1, codec | LOG_APPEND_TIME_BIT)
    assert read_message(entries, 12, 0, int.from_bytes(entries[8:12], "big")).timestamp == NOW


def test_compacted_batch_keeps_its_offsets_in_a_wrapper() -> None:
    records = b"".join(encode_record(delta, NOW, NewRecord(NOW, b"k", b"%d" % delta)) for delta in (2, 5, 6))
    header = read_header(batch_at(10, *[b"x"] * 8, codec=GZIP))
    batch = assemble_batch(header._replace(records_count=3), compress(GZIP, records))
    for magic in (0, 1):
        assert seen(convert(batch, magic=magic)) == [(12, b"2"), (15, b"5"), (16, b"6")]
        assert convert(batch, magic=magic).next_offset == 18


def test_large_batch_becomes_several_wrappers() -> None:
    batch = batch_at(0, *[bytes(300_000)] * 12, codec=GZIP)
    converted = convert(batch, max_bytes=1 << 24)
    assert [offset for offset, _ in seen(converted)] == list(range(12))
    first = convert(batch, max_bytes=1)
    assert [offset for offset, _ in seen(first)] == [0, 1, 2, 3]
    assert first.next_offset == 4


def test_incomplete_batch_at_the_end_is_left_out() -> None:
    converted = convert(batch_at(0, b"a"), batch_at(1, b"b")[:-1])
    assert seen(converted) == [(0, b"a")]
    assert converted.next_offset == 1


def broken(records: bytes, *, codec: Compression = NONE, count: int = 1) -> bytearray:
    header = read_header(batch_at(0, *[b"x"] * count, codec=codec))
    return assemble_batch(header, compress(codec, records))


BROKEN = {
    "empty": broken(b""),
    "cut-off": broken(encode_record(0, NOW, NewRecord(NOW, b"k", b"v"))[:-3]),
    "too-short": broken(b"\x02\0\0\0\0\0\0"),
    "offset-delta": broken(encode_record(4, NOW, NewRecord(NOW, b"k", b"v"))),
    "field": broken(b"\x10\0\0\0\x7e\x01\x01\0\0"),
    "timestamp": broken(encode_record(0, 0, NewRecord(2**63 - 1, None, b""))),
    "gzip": assemble_batch(read_header(batch_at(0, b"x", codec=GZIP)), b"not gzip"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("magic", [0, 1])
def test_broken_batch_is_an_error_at_its_place(name: str, magic: int) -> None:
    converted = convert(BROKEN[name], magic=magic)
    assert (converted.error, converted.entries) == (ErrorCode.CORRUPT_MESSAGE, b"")
    assert seen(convert(batch_at(0, b"a"), placed(bytearray(BROKEN[name]), 1))) == [(0, b"a")]


def test_batch_with_fewer_records_than_it_counts_is_an_error_behind_them() -> None:
    record = encode_record(0, NOW, NewRecord(NOW, b"k", b"v"))
    assert seen(convert(broken(record, count=3))) == [(0, b"v")]
    assert convert(broken(record, count=3), offset=1).error is ErrorCode.CORRUPT_MESSAGE
    assert convert(broken(record, codec=GZIP, count=3)).error is ErrorCode.CORRUPT_MESSAGE


def test_wrong_crc_is_an_error() -> None:
    batch = batch_at(0, b"a")
    batch[-2] ^= 1
    assert convert(batch).error is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", OLD_CODECS[1:])
def test_bomb_is_an_error_and_takes_its_work_in_slices(codec: Compression) -> None:
    record = encode_record(0, NOW, NewRecord(NOW, None, bytes(3 << 20)))
    assert convert(broken(record, codec=codec), max_decompressed_bytes=1 << 20).error is ErrorCode.MESSAGE_TOO_LARGE
    assert convert(broken(record, codec=codec), max_record_bytes=1 << 20).error is ErrorCode.MESSAGE_TOO_LARGE


def test_many_records_in_a_small_batch_are_converted_in_slices_and_in_part() -> None:
    count = 100_000
    records = b"".join(encode_record(delta, NOW, NewRecord(NOW, None, b"")) for delta in range(count))
    batch = assemble_batch(
        read_header(batch_at(0, b"x", codec=GZIP))._replace(records_count=count, last_offset_delta=count - 1),
        compress(GZIP, records),
    )
    budget = WorkBudget(2000)
    wanted = OldFetch(1, 0, 10_000, 1 << 24)
    converted, pauses = run(convert_batches(batch, wanted, budget), budget, 2000)
    assert pauses > 50
    assert 10_000 <= len(converted.entries) < 1 << 20
    assert 0 < converted.next_offset < count


@given(st.binary(max_size=300))
def test_any_payload_is_an_error_or_some_messages(payload: bytes) -> None:
    header = read_header(batch_at(0, b"x", b"y"))
    for codec in OLD_CODECS:
        batch = assemble_batch(header._replace(attributes=int(codec)), compress(codec, payload))
        converted = convert(batch)
        assert converted.error or converted.entries


@given(st.binary(max_size=HEADER_SIZE * 3))
def test_any_bytes_are_no_exception(batches: bytes) -> None:
    assert convert(batches).next_offset >= 0
