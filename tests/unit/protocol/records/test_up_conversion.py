"""Messages of old producers as batches, with kafka-python's own encoder as the other end, and hostile sets."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.compression import Compression, compress
from oncelog.protocol.records.old_messages import ENTRY, encode_message
from oncelog.protocol.records.record_batch import crc_is_valid
from oncelog.protocol.records.record_walk import RecordRules, WorkBudget
from oncelog.protocol.records.up_conversion import convert_message_set
from oncelog.protocol.records.validation import RejectedRecords
from tests.unit.protocol.records.old_sets import (
    KAFKA_PYTHONS_CODECS,
    NOW,
    OLD_CODECS,
    OLD_RECORDS,
    OldRecord,
    built_by_kafka_python,
    convert_up,
    plain,
    records_of,
    rules,
    run,
    wrapped,
)

ONE = [OldRecord(NOW, b"k", b"v")]
TWO = [*ONE, OldRecord(NOW + 5, None, None)]
APPEND_TIME = 0x08


@given(st.sampled_from([0, 1]), st.sampled_from(KAFKA_PYTHONS_CODECS), OLD_RECORDS, st.integers(1, 3000))
def test_set_of_kafka_python_becomes_one_batch(
    magic: int, codec: Compression, records: list[OldRecord], units: int
) -> None:
    if magic == 0 and codec is Compression.LZ4:
        codec = Compression.GZIP  # kafka-python needs a further package for the other checksum.
    converted = convert_up(built_by_kafka_python(magic, codec, records), units=units)
    assert isinstance(converted, tuple)
    batch, header = converted
    assert crc_is_valid(batch, 0, header)
    assert header.compression is codec
    assert (header.producer_id, header.base_sequence, header.base_offset, header.is_transactional) == (-1, -1, 0, False)
    assert header.max_timestamp == (max(record.timestamp for record in records) if magic else -1)
    assert [record[:4] for record in records_of(converted)] == [
        (offset, record.timestamp if magic else -1, record.key, record.value) for offset, record in enumerate(records)
    ]


@given(st.sampled_from([0, 1]), st.sampled_from(OLD_CODECS), st.sampled_from(Compression), OLD_RECORDS)
def test_set_gets_the_codec_of_its_topic(
    magic: int, source: Compression, target: Compression, records: list[OldRecord]
) -> None:
    entries = plain(magic, records)
    if source:
        entries = wrapped(magic, source, entries)
    converted = convert_up(entries, rules(compression=target))
    assert isinstance(converted, tuple)
    assert converted[1].compression is target
    assert [record[2:4] for record in records_of(converted)] == [record[1:] for record in records]


@pytest.mark.parametrize("magic", [0, 1])
def test_records_get_the_append_time_of_the_topic(magic: int) -> None:
    converted = convert_up(plain(magic, TWO), rules(append_time=77))
    assert isinstance(converted, tuple)
    assert converted[1].is_log_append_time
    assert [record.timestamp for record in records_of(converted)] == [77, 77]


def error_of(entries: bytes, **wanted: Any) -> ErrorCode:
    converted = convert_up(entries, rules(**wanted))
    assert not isinstance(converted, tuple)
    return converted.error if isinstance(converted, RejectedRecords) else converted


def with_byte(entries: bytes, position: int, change: int) -> bytes:
    changed = bytearray(entries)
    changed[position] ^= change
    return bytes(changed)


V1, V0 = plain(1, TWO), plain(0, TWO)
GZIP, LZ4 = Compression.GZIP, Compression.LZ4
BAD_SETS = {
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "cut-off": (V1[:-1], ErrorCode.INVALID_RECORD),
    "cut-off-entry": (V1 + b"\0" * 11, ErrorCode.INVALID_RECORD),
    "short-message": (ENTRY.pack(0, 13) + bytes(20), ErrorCode.INVALID_RECORD),
    "negative-size": (V1 + ENTRY.pack(0, -5), ErrorCode.INVALID_RECORD),
    "crc": (with_byte(V1, -1, 1), ErrorCode.CORRUPT_MESSAGE),
    "crc-of-version-0": (with_byte(V0, 14, 1), ErrorCode.CORRUPT_MESSAGE),
    "mixed-versions": (V1 + V0, ErrorCode.INVALID_RECORD),
    "mixed-versions-inside": (wrapped(1, GZIP, V0), ErrorCode.INVALID_RECORD),
    "format-2": (with_byte(V1, 16, 3), ErrorCode.INVALID_RECORD),
    "zstd": (encode_message(1, 0, 4, NOW, None, b"x"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "unknown-codec": (encode_message(0, 0, 7, NOW, None, b"x"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "nested": (wrapped(1, GZIP, wrapped(1, LZ4, V1)), ErrorCode.INVALID_RECORD),
    "wrapper-beside-messages": (V1 + wrapped(1, GZIP, V1), ErrorCode.INVALID_RECORD),
    "messages-beside-wrapper": (wrapped(1, GZIP, V1) + V1, ErrorCode.INVALID_RECORD),
    "empty-wrapper": (wrapped(1, GZIP, b""), ErrorCode.INVALID_RECORD),
    "null-wrapper": (encode_message(1, 0, 1, NOW, None, None), ErrorCode.INVALID_RECORD),
    "inner-crc": (wrapped(1, GZIP, with_byte(V1, -1, 1)), ErrorCode.CORRUPT_MESSAGE),
    "inner-cut-off": (wrapped(0, GZIP, V0[:-1]), ErrorCode.INVALID_RECORD),
    "not-compressed": (encode_message(1, 0, 1, NOW, None, b"abc"), ErrorCode.INVALID_RECORD),
    "wrapper-offset": (wrapped(1, GZIP, plain(1, TWO * 2), offset=2), ErrorCode.INVALID_RECORD),
    "append-time": (encode_message(1, 0, APPEND_TIME, NOW, b"k", b"v"), ErrorCode.INVALID_TIMESTAMP),
    "append-time-of-wrapper": (wrapped(1, GZIP, V1, attributes=APPEND_TIME), ErrorCode.INVALID_TIMESTAMP),
    "negative-timestamp": (plain(1, [OldRecord(-2, None, b"v")]), ErrorCode.INVALID_TIMESTAMP),
    "bytes-after-the-value": (
        encode_message(0, 0, 0, 0, b"k", b"vv").replace(b"\0\0\0\2vv", b"\0\0\0\1vv"),
        ErrorCode.CORRUPT_MESSAGE,
    ),
}


@pytest.mark.parametrize("name", BAD_SETS)
def test_bad_set_is_refused_with_the_code_of_kafka(name: str) -> None:
    entries, error = BAD_SETS[name]
    assert error_of(entries) is error


@pytest.mark.parametrize("offset", [0, 3, 10])
def test_wrapper_may_have_no_offset_or_one_that_covers_its_messages(offset: int) -> None:
    assert len(records_of(convert_up(wrapped(1, GZIP, plain(1, TWO * 2), offset=offset)))) == 4


def test_timestamps_beyond_the_bounds_of_the_topic_are_refused() -> None:
    records = RecordRules(earliest=NOW, latest=NOW + 4)
    assert error_of(V1, records=records) is ErrorCode.INVALID_TIMESTAMP
    assert len(records_of(convert_up(V0, rules(records=records)))) == 2  # They have none.


def test_null_key_is_refused_by_a_compacted_topic() -> None:
    converted = convert_up(V0, rules(records=RecordRules(needs_keys=True)))
    assert isinstance(converted, RejectedRecords)
    assert (converted.error, converted.total) == (ErrorCode.INVALID_RECORD, 1)
    assert [error.batch_index for error in converted.record_errors] == [1]


def test_batch_that_would_be_too_large_is_refused() -> None:
    records = [OldRecord(NOW, None, bytes(1000))] * 100
    assert error_of(plain(1, records), max_message_bytes=50_000) is ErrorCode.MESSAGE_TOO_LARGE
    assert len(records_of(convert_up(wrapped(1, GZIP, plain(1, records)), rules(max_message_bytes=50_000)))) == 100
    assert error_of(wrapped(1, GZIP, plain(1, records)), compression=Compression.NONE, max_message_bytes=50_000) is (
        ErrorCode.MESSAGE_TOO_LARGE
    )


@pytest.mark.parametrize("codec", OLD_CODECS[1:])
def test_bomb_is_refused_and_takes_its_work_in_slices(codec: Compression) -> None:
    entries = wrapped(1, codec, plain(1, [OldRecord(NOW, None, b"")]) * 200_000)
    budget = WorkBudget(2000)
    wanted = rules(max_decompressed_bytes=1 << 20)
    error, pauses = run(convert_message_set(memoryview(entries), wanted, budget), budget, 2000)
    assert error is ErrorCode.MESSAGE_TOO_LARGE
    assert pauses > 20 or codec is Compression.SNAPPY  # Whose blocks say how large they are.


def test_message_that_says_it_is_large_is_refused_before_its_bytes_are_gathered() -> None:
    entries = wrapped(1, GZIP, ENTRY.pack(0, 2**31 - 1) + bytes(1 << 20))
    assert error_of(entries) is ErrorCode.MESSAGE_TOO_LARGE


@given(st.binary(max_size=300))
@example(bytes(26))
def test_any_bytes_are_refused_or_become_a_valid_batch(entries: bytes) -> None:
    converted = convert_up(entries)
    assert not isinstance(converted, tuple) or records_of(converted)


@pytest.mark.parametrize(
    "entries",
    [plain(0, TWO), plain(1, TWO), wrapped(0, GZIP, V0), wrapped(1, LZ4, V1), wrapped(0, LZ4, V0)],
    ids=["plain-0", "plain-1", "gzip-0", "lz4-1", "lz4-0"],
)
def test_changed_bit_never_becomes_another_record(entries: bytes) -> None:
    records = [record[1:4] for record in records_of(convert_up(entries))]
    for position in range(len(entries)):
        for bit in range(8):
            converted = convert_up(with_byte(entries, position, 1 << bit))
            if isinstance(converted, tuple):  # A bit of an offset, which means nothing.
                assert [record[1:4] for record in records_of(converted)] == records


@given(st.binary(max_size=400), st.sampled_from(OLD_CODECS[1:]), st.sampled_from([0, 1]))
def test_any_bytes_in_a_wrapper_are_refused_or_become_a_valid_batch(
    inside: bytes, codec: Compression, magic: int
) -> None:
    converted = convert_up(wrapped(magic, codec, inside))
    assert not isinstance(converted, tuple) or records_of(converted)


def test_lz4_of_version_0_is_read_with_either_checksum() -> None:
    right = encode_message(0, 0, LZ4, 0, None, bytes(compress(LZ4, V0)))
    assert right != wrapped(0, LZ4, V0)
    for entries in (right, wrapped(0, LZ4, V0)):
        assert len(records_of(convert_up(entries))) == 2
