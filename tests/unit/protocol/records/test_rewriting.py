import sys

import kafka.record.default_records as kafka_python_records
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.clients.consumer.record_decoder import decode_records
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.record_batch import (
    CorruptRecord,
    NewRecord,
    Record,
    build_batch,
    crc_is_valid,
    iter_records,
    read_header,
    records_payload,
)
from oncelog.protocol.records.rewriting import (
    can_have_delete_horizon,
    empty_batch,
    iter_record_spans,
    retain_records,
    stamp_max_timestamp,
)
from oncelog.protocol.records.varint import encode_varint
from tests.stored_batch import stored
from tests.unit.protocol.records.walks import completed

NOW = 1_700_000_000_000
RECORDS = [NewRecord(NOW + index, b"key", b"value %d" % index, [("h", None)]) for index in range(10)]


def read_all(batch: bytearray) -> list[Record]:
    header = read_header(batch)
    assert crc_is_valid(batch, 0, header)
    return list(iter_records(batch, 0, header, max_decompressed_bytes=2**20))


@pytest.mark.parametrize("codec", Compression)
def test_log_append_time_is_stamped_in_place(codec: Compression) -> None:
    batch = build_batch(RECORDS, compression=codec, producer_id=5, producer_epoch=0, base_sequence=0)
    before = read_all(batch)
    header = stamp_max_timestamp(memoryview(batch), read_header(batch), NOW + 1000, is_log_append_time=True)
    assert header == read_header(batch)
    assert header.is_log_append_time
    assert header.compression is codec
    assert read_all(batch) == [record._replace(timestamp=NOW + 1000) for record in before]


def test_same_timestamp_changes_nothing() -> None:
    batch = build_batch(RECORDS)
    header = read_header(batch)
    assert stamp_max_timestamp(bytes(batch), header, NOW + 9, is_log_append_time=False) is header  # type: ignore[arg-type]


def test_create_time_comes_back() -> None:
    batch = stored(build_batch(RECORDS), is_log_append_time=True)
    stamp_max_timestamp(batch, read_header(batch), NOW + 9, is_log_append_time=False)
    assert batch == build_batch(RECORDS)


def retain(batch: bytearray, kept: set[int], horizon_ms: int | None = None) -> bytearray:
    header = read_header(batch)
    payload = records_payload(batch, 0, header, max_decompressed_bytes=2**20)
    spans = [span for index, span in enumerate(iter_record_spans(payload, header)) if index in kept]
    if not spans:
        return empty_batch(header)
    return completed(retain_records(header, payload, spans, delete_horizon_ms=horizon_ms))


@given(st.sampled_from(Compression), st.sets(st.integers(0, 9)), st.none() | st.integers(0, 2**43), st.booleans())
def test_compaction_keeps_what_it_retains_and_what_it_knows_of_the_producer(
    codec: Compression, kept: set[int], delete_horizon_ms: int | None, log_append_time: bool
) -> None:
    batch = stored(
        build_batch(
            RECORDS, compression=codec, producer_id=5, producer_epoch=1, base_sequence=30, is_transactional=True
        ),
        base_offset=100,
        partition_leader_epoch=4,
        is_log_append_time=log_append_time,
    )
    original = read_header(batch)
    retained = [record for index, record in enumerate(read_all(batch)) if index in kept]
    smaller = retain(batch, kept, delete_horizon_ms)
    assert read_all(smaller) == retained
    header = read_header(smaller)
    assert (header.base_offset, header.last_offset, header.records_count) == (100, 109, len(kept))
    assert (header.producer_id, header.producer_epoch) == (5, 1)
    assert (header.base_sequence, header.last_sequence) == (30, 39)
    assert (header.partition_leader_epoch, header.is_transactional) == (4, True)
    assert header.has_delete_horizon == (delete_horizon_ms is not None and bool(kept))
    assert not header.has_delete_horizon or header.base_timestamp == delete_horizon_ms
    assert kept or (header.base_timestamp, header.size) == (-1, 61)
    expected_max = NOW + max(kept) if kept and not log_append_time else original.max_timestamp
    assert header.max_timestamp == expected_max


def test_delete_horizon_once_set_stays() -> None:
    first = retain(build_batch(RECORDS), set(range(2, 10)), NOW + 500)
    second = retain(first, set(range(1, 8)))
    header = read_header(second)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW + 500
    assert [record.timestamp for record in read_all(second)] == [NOW + index for index in range(3, 10)]


@given(
    st.lists(st.integers(-(2**62), 2**63 - 1), min_size=1, max_size=6),
    st.integers(0, 2**44),
    st.sampled_from([Compression.NONE, Compression.GZIP]),
)
def test_delete_horizon_far_from_the_timestamps_is_read_by_every_client(
    timestamps: list[int], horizon_ms: int, codec: Compression
) -> None:
    base = timestamps[0]
    batch = build_batch(
        [NewRecord(min(max(t, base - 2**62), base + 2**62), b"key", None) for t in timestamps], compression=codec
    )
    rewritten = retain(batch, set(range(len(timestamps))), horizon_ms)
    assert [record._replace(offset=0) for record in read_all(rewritten)] == [
        record._replace(offset=0) for record in read_all(batch)
    ]
    ours = decode_records(
        rewritten,
        0,
        read_header(rewritten),
        topic="t",
        partition=0,
        from_offset=0,
        max_decompressed_bytes=2**20,
    )
    assert [record.timestamp_ms for record in ours] == [record.timestamp for record in read_all(batch)]
    theirs = list(kafka_python_records.DefaultRecordBatch(bytes(rewritten)))
    assert [record.timestamp for record in theirs] == [record.timestamp_ms for record in ours]


def test_timestamp_too_far_from_a_delete_horizon_keeps_its_batch_from_having_one() -> None:
    batch = build_batch([NewRecord(-(2**63) + 10, b"key", None)])
    spans = list(iter_record_spans(bytes(batch[61:]), read_header(batch)))
    assert can_have_delete_horizon(spans, 10)
    assert not can_have_delete_horizon(spans, 11)


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (b"", 1),
        (b"", 2**31 - 1),
        (bytes.fromhex("0e00000001 02 76 00"), 2),
        (bytes.fromhex("0e00000001 02 76 00") * 2, 2),
        (bytes.fromhex("0e00000001 02 76 00 00"), 1),
        (bytes.fromhex("0d00000001 02 76 00"), 1),
        (bytes.fromhex("0e0000007e 02 76 00"), 1),
        (bytes.fromhex("0e00000001 7e 76 00"), 1),
        (bytes.fromhex("1000000001 02 76 00"), 1),
        (bytes.fromhex("1a00feffffffffffffffff01 0001 02 76 00"), 1),
    ],
)
def test_records_that_contradict_themselves_have_no_spans(payload: bytes, count: int) -> None:
    header = read_header(build_batch(RECORDS))._replace(records_count=count)
    with pytest.raises(CorruptRecord):
        list(iter_record_spans(payload, header))


def test_headers_are_skipped_however_many_there_are() -> None:
    """Zeros compress without limit, so reading them would be the work of one small batch."""
    headers = b"".join((encode_varint(5_000_000), bytes(10_000_000)))
    body = b"\0\0\0" + b"\2k" + b"\2v" + headers
    payload = encode_varint(len(body)) + body
    header = read_header(build_batch([NewRecord(NOW, b"k", b"v")]))
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        spans = list(iter_record_spans(payload, header))
    finally:
        sys.setprofile(None)
    assert [(span.key, span.end) for span in spans] == [(b"k", len(payload))]
    assert calls < 100
