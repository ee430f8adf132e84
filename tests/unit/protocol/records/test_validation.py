from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.compression import Compression, compress
from oncelog.protocol.records.record_batch import (
    BatchHeader,
    CorruptRecord,
    NewRecord,
    assemble_batch,
    build_batch,
    crc_is_valid,
    iter_records,
    read_header,
    stamp_crc,
)
from oncelog.protocol.records.record_walk import RecordRules
from oncelog.protocol.records.validation import BatchRules, Conformed, RecordError, RejectedRecords
from tests.unit.protocol.records import walks

NOW = 1_700_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR
RECORDS = [NewRecord(NOW - index, b"key %d" % index, b"value") for index in range(3)]


def validate(
    records: bytes | bytearray | None,
    *,
    full: bool = False,
    compacted: bool = False,
    log_append_time: bool = False,
    timestamp_before_max_ms: int = DAY,
    timestamp_after_max_ms: int = HOUR,
    **changes: Any,
) -> BatchHeader | ErrorCode | RejectedRecords:
    if not log_append_time:
        changes |= {"earliest": NOW - timestamp_before_max_ms, "latest": NOW + timestamp_after_max_ms}
    batch = None if records is None else bytearray(records)
    limits = {"max_message_bytes": 100_000, "max_decompressed_bytes": 1_000_000}
    return walks.validate(batch, walked=full, needs_keys=compacted, **limits | changes)


def resealed(batch: bytearray, change: Callable[[bytearray], None]) -> bytearray:
    change(batch)
    stamp_crc(batch)
    return batch


def changed(**fields: int) -> bytearray:
    """A good batch with other header fields, under a right CRC."""
    batch = build_batch(RECORDS)
    return assemble_batch(read_header(batch)._replace(**fields), batch[61:])


def with_length(length: int) -> bytearray:
    batch = build_batch(RECORDS)
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    return batch


def with_magic(magic: int) -> bytearray:
    batch = build_batch(RECORDS)
    batch[16] = magic
    return batch


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("producer", [{}, {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0}])
def test_valid_batches_are_accepted(full: bool, compacted: bool, codec: Compression, producer: dict[str, int]) -> None:
    batch = build_batch(RECORDS, compression=codec, **producer)
    assert validate(batch, full=full, compacted=compacted) == read_header(batch)
    transactional = build_batch(
        RECORDS, compression=codec, is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=5
    )
    assert validate(transactional, full=full, compacted=compacted) == read_header(transactional)


GOOD = bytes(build_batch(RECORDS))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    ("records", "error"),
    [
        pytest.param(None, ErrorCode.INVALID_RECORD, id="null"),
        pytest.param(b"", ErrorCode.INVALID_RECORD, id="empty"),
        pytest.param(GOOD[:11], ErrorCode.INVALID_RECORD, id="less than a length"),
        pytest.param(GOOD[:16], ErrorCode.INVALID_RECORD, id="less than a magic"),
        pytest.param(GOOD[:60], ErrorCode.INVALID_RECORD, id="less than a header"),
        pytest.param(GOOD[:-1], ErrorCode.INVALID_RECORD, id="cut off"),
        pytest.param(GOOD + GOOD, ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(GOOD + b"\0", ErrorCode.INVALID_RECORD, id="trailing byte"),
        pytest.param(with_length(-1), ErrorCode.CORRUPT_MESSAGE, id="negative length"),
        pytest.param(with_length(13), ErrorCode.CORRUPT_MESSAGE, id="impossible length"),
        pytest.param(with_length(48)[:60], ErrorCode.CORRUPT_MESSAGE, id="length less than a header"),
        pytest.param(with_length(2**31 - 1), ErrorCode.INVALID_RECORD, id="length beyond the request"),
        pytest.param(with_magic(0), ErrorCode.INVALID_RECORD, id="format 0"),
        pytest.param(with_magic(1), ErrorCode.INVALID_RECORD, id="format 1"),
        pytest.param(with_magic(3), ErrorCode.CORRUPT_MESSAGE, id="format 3"),
        pytest.param(with_magic(255), ErrorCode.CORRUPT_MESSAGE, id="format -1"),
        pytest.param(GOOD[:-1] + b"\1", ErrorCode.CORRUPT_MESSAGE, id="crc"),
        pytest.param(changed(attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, id="codec 5"),
        pytest.param(changed(attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, id="codec 7"),
        pytest.param(changed(base_offset=1), ErrorCode.INVALID_RECORD, id="base offset"),
        pytest.param(changed(records_count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD, id="no records"),
        pytest.param(changed(records_count=-1, last_offset_delta=-2), ErrorCode.INVALID_RECORD, id="negative count"),
        pytest.param(changed(records_count=9, last_offset_delta=8), ErrorCode.INVALID_RECORD, id="more than fit"),
        pytest.param(changed(records_count=4), ErrorCode.INVALID_RECORD, id="count and delta disagree"),
        pytest.param(changed(last_offset_delta=9), ErrorCode.INVALID_RECORD, id="a gap in the offsets"),
        pytest.param(changed(attributes=0x20), ErrorCode.INVALID_RECORD, id="control"),
        pytest.param(changed(attributes=0x40), ErrorCode.INVALID_RECORD, id="delete horizon"),
        pytest.param(changed(attributes=0x10), ErrorCode.INVALID_RECORD, id="transactional without producer id"),
        pytest.param(changed(producer_id=1, producer_epoch=0), ErrorCode.INVALID_RECORD, id="no sequence"),
        pytest.param(changed(producer_id=1, base_sequence=0), ErrorCode.INVALID_RECORD, id="no producer epoch"),
        pytest.param(changed(producer_id=-2), ErrorCode.INVALID_RECORD, id="impossible producer id"),
        pytest.param(changed(attributes=0x08), ErrorCode.INVALID_TIMESTAMP, id="log append time"),
        pytest.param(build_batch([NewRecord(NOW + HOUR + 1, b"", b"")]), ErrorCode.INVALID_TIMESTAMP, id="future"),
        pytest.param(build_batch([NewRecord(NOW - DAY - 1, b"", b"")]), ErrorCode.INVALID_TIMESTAMP, id="past"),
        pytest.param(build_batch([NewRecord(-2, b"", b"")]), ErrorCode.INVALID_TIMESTAMP, id="negative timestamp"),
        pytest.param(build_batch([NewRecord(NOW, b"", bytes(100_000))]), ErrorCode.MESSAGE_TOO_LARGE, id="too large"),
    ],
)
def test_badness_that_the_header_shows(records: bytes | None, error: ErrorCode, full: bool) -> None:
    found = validate(records, full=full)
    assert (found.error if isinstance(found, RejectedRecords) else found) is error


def test_epoch_and_sequence_without_producer_id_are_ignored() -> None:
    """kafkajs and sarama leave zeros there."""
    batch = build_batch(RECORDS, producer_id=-1, producer_epoch=0, base_sequence=0)
    assert validate(batch, full=True) == read_header(batch)


def test_size_is_judged_to_the_byte() -> None:
    assert isinstance(validate(GOOD, max_message_bytes=len(GOOD)), BatchHeader)
    assert validate(GOOD, max_message_bytes=len(GOOD) - 1) is ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_needs_produce_version_7() -> None:
    batch = build_batch(RECORDS, compression=Compression.ZSTD)
    assert validate(batch, allow_zstd=False) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert isinstance(validate(build_batch(RECORDS, compression=Compression.LZ4), allow_zstd=False), BatchHeader)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("timestamp", [NOW + HOUR, NOW - DAY, -1])
def test_timestamps_at_the_bounds_and_none_are_fine(timestamp: int, full: bool) -> None:
    batch = build_batch([NewRecord(timestamp, b"key", b"")])
    assert validate(batch, full=full) == read_header(batch)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("timestamp", [0, 2**62, -5])
def test_producer_timestamps_do_not_matter_with_log_append_time(timestamp: int, full: bool) -> None:
    batch = build_batch([NewRecord(timestamp, b"key", b"")])
    assert isinstance(validate(batch, full=full, log_append_time=True), BatchHeader)


def test_bounds_of_kafkas_default_size() -> None:
    batch = build_batch([NewRecord(0, b"", b""), NewRecord(2**62, b"", b"")])
    unbounded = {"timestamp_before_max_ms": 2**63 - 1, "timestamp_after_max_ms": 2**63 - 1}
    assert isinstance(validate(batch, full=True, **unbounded), BatchHeader)


def test_record_timestamps_are_checked_by_a_walk() -> None:
    batch = build_batch([NewRecord(NOW, b"", b""), NewRecord(NOW - DAY - 1, b"", b""), NewRecord(-1, b"", b"")])
    assert isinstance(validate(batch), BatchHeader)
    message = f"The timestamp {NOW - DAY - 1} is not within [{NOW - DAY}, {NOW + HOUR}]"
    assert validate(batch, full=True) == RejectedRecords(ErrorCode.INVALID_TIMESTAMP, 1, [RecordError(1, message)])


def test_null_keys_on_a_compacted_topic_are_found_without_full() -> None:
    batch = build_batch([NewRecord(NOW, b"key", b""), NewRecord(NOW, None, b"")], compression=Compression.SNAPPY)
    message = "A record of a compacted topic needs a key"
    assert validate(batch, compacted=True) == RejectedRecords(ErrorCode.INVALID_RECORD, 1, [RecordError(1, message)])
    assert isinstance(validate(batch, full=True), BatchHeader)
    assert isinstance(validate(build_batch([NewRecord(NOW, b"", None)]), compacted=True), BatchHeader)


RECORD = bytes.fromhex("0e00000001 02 76 00")
SECOND = bytes.fromhex("0e00000201 02 76 00")


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize(
    ("payload", "count"),
    [
        pytest.param(RECORD, 2, id="fewer records than declared"),
        pytest.param(RECORD + SECOND, 1, id="more records than declared"),
        pytest.param(RECORD + RECORD, 2, id="the same offset twice"),
        pytest.param(SECOND, 1, id="offsets do not start at 0"),
        pytest.param(RECORD[:-1], 1, id="a cut-off record"),
        pytest.param(bytes.fromhex("0d00000001 02 76 00"), 1, id="a negative record length"),
        pytest.param(bytes.fromhex("1000000001 02 76 00 00"), 1, id="a record longer than its fields"),
        pytest.param(bytes.fromhex("0e00000001 7e 76 00"), 1, id="a value beyond the record"),
        pytest.param(bytes.fromhex("0e00000001 02 76 01"), 1, id="a negative header count"),
        pytest.param(bytes.fromhex("1200000001 02 76 02 01 01"), 1, id="a header without a name"),
        pytest.param(bytes.fromhex("1a00feffffffffffffffff01 0001 02 76 00"), 1, id="an endless timestamp"),
        pytest.param(b"", 2**31 - 1, id="two billion records in no bytes"),
    ],
)
def test_broken_records_pass_the_header_but_not_the_walk(payload: bytes, count: int, codec: Compression) -> None:
    header = BatchHeader(0, 0, -1, 2, 0, codec, count - 1, NOW, NOW, -1, -1, -1, count)
    batch = assemble_batch(header, compress(codec, payload))
    impossible = count > len(batch) - 61 or (codec is Compression.NONE and count * 7 > len(payload))
    assert isinstance(validate(batch), ErrorCode if impossible else BatchHeader)
    assert validate(batch, full=True) is ErrorCode.INVALID_RECORD
    assert validate(batch, compacted=True) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_records_that_do_not_decompress_are_corrupt(codec: Compression) -> None:
    batch = assemble_batch(read_header(build_batch(RECORDS, compression=codec)), b"\xff" * 40)
    assert isinstance(validate(batch), BatchHeader)
    assert validate(batch, full=True) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_decompression_bomb_is_too_large(codec: Compression) -> None:
    batch = build_batch([NewRecord(NOW, b"", bytes(1_100_000))], compression=codec)
    assert validate(batch, full=True) is ErrorCode.MESSAGE_TOO_LARGE


def test_headers_are_walked() -> None:
    headers = [("name", b"value"), ("null", None), ("", b"x" * 300)] * 30
    batch = build_batch([NewRecord(NOW, b"key", None, headers)] * 3)
    assert validate(batch, full=True) == read_header(batch)


def test_walk_corrects_a_wrong_max_timestamp() -> None:
    batch = changed(max_timestamp=NOW + 5)
    header = walks.validate(batch)
    assert batch == GOOD
    assert header == read_header(GOOD)


def conform(batch: bytearray, **changes: Any) -> Conformed | ErrorCode | RejectedRecords:
    rules = BatchRules(RecordRules(), max_message_bytes=100_000, max_decompressed_bytes=1_000_000)
    return walks.conform(memoryview(batch), read_header(batch), rules._replace(**changes))


@pytest.mark.parametrize("changes", [{}, {"compression": Compression.GZIP}])
def test_batch_in_the_topics_form_is_unchanged(changes: dict[str, Any]) -> None:
    batch = build_batch(RECORDS, compression=Compression.GZIP)
    before = bytes(batch)
    assert conform(batch, **changes) == (memoryview(before), read_header(before))


def test_topic_with_codec_and_log_append_time_rewrites_batches() -> None:
    batch = build_batch(RECORDS, compression=Compression.GZIP)
    result = conform(batch, compression=Compression.ZSTD, log_append_time_ms=NOW + 3)
    assert not isinstance(result, ErrorCode | RejectedRecords)
    conformed, header = result
    assert header == read_header(conformed)
    assert crc_is_valid(conformed, 0, header)
    assert header.compression is Compression.ZSTD
    read = list(iter_records(conformed, 0, header, max_decompressed_bytes=1_000_000))
    assert [record.value for record in read] == [b"value"] * 3
    assert {record.timestamp for record in read} == {NOW + 3}


def test_recompression_that_fails() -> None:
    large = build_batch([NewRecord(NOW, b"", bytes(200_000))], compression=Compression.LZ4)
    assert conform(large, compression=Compression.NONE) is ErrorCode.MESSAGE_TOO_LARGE
    bomb = build_batch([NewRecord(NOW, b"", bytes(2_000_000))], compression=Compression.LZ4)
    assert conform(bomb, compression=Compression.GZIP) is ErrorCode.MESSAGE_TOO_LARGE
    broken = assemble_batch(read_header(bomb), b"\xff" * 40)
    assert conform(broken, compression=Compression.GZIP) is ErrorCode.INVALID_RECORD


contents = st.lists(
    st.builds(
        NewRecord,
        st.integers(NOW - HOUR, NOW),
        st.binary(max_size=10),
        st.none() | st.binary(max_size=100),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=200)
@given(contents, st.sampled_from(Compression), st.booleans(), st.data())
def test_mutated_batches_are_judged_and_never_raise(
    records: list[NewRecord], codec: Compression, reseal: bool, data: st.DataObject
) -> None:
    """What the full walk accepts can be read to the end; what the header alone accepts is at worst a CorruptRecord."""
    batch = build_batch(records, compression=codec)
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    del batch[data.draw(st.just(len(batch)) | st.integers(0, len(batch))) :]
    if reseal and len(batch) >= 61:
        stamp_crc(batch)
    by_header = validate(batch)
    fully = validate(batch, full=True)
    if isinstance(fully, BatchHeader):
        read = list(iter_records(batch, 0, read_header(batch), max_decompressed_bytes=1_000_000))
        assert [record.offset for record in read] == list(range(fully.records_count))
        assert max(record.timestamp for record in read) == fully.max_timestamp
    elif isinstance(by_header, BatchHeader):
        try:
            list(iter_records(batch, 0, by_header, max_decompressed_bytes=1_000_000))
        except CorruptRecord:
            pass


@settings(max_examples=200)
@given(st.binary(max_size=150), st.booleans())
def test_noise_is_an_error(noise: bytes, full: bool) -> None:
    assert isinstance(validate(noise, full=full), ErrorCode)


@given(contents, st.sampled_from(Compression), st.integers(0), st.integers(0, 7))
def test_flipped_bit_under_the_crc_is_noticed(
    records: list[NewRecord], codec: Compression, where: int, bit: int
) -> None:
    batch = build_batch(records, compression=codec)
    batch[17 + where % (len(batch) - 17)] ^= 1 << bit
    assert isinstance(validate(batch), ErrorCode)
