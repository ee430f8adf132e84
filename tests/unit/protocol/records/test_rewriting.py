import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records.compression import Compression, DecompressionBomb
from protocol.records.record_batch import (
    CorruptRecord,
    NewRecord,
    Record,
    build_batch,
    crc_is_valid,
    iter_records,
    read_header,
)
from protocol.records.rewriting import build_retained_batch, recompress, stamp_max_timestamp

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


def test_the_same_timestamp_changes_nothing() -> None:
    batch = build_batch(RECORDS)
    header = read_header(batch)
    assert stamp_max_timestamp(bytes(batch), header, NOW + 9, is_log_append_time=False) is header  # type: ignore[arg-type]


def test_create_time_comes_back() -> None:
    batch = build_batch(RECORDS, is_log_append_time=True)
    stamp_max_timestamp(batch, read_header(batch), NOW + 9, is_log_append_time=False)
    assert batch == build_batch(RECORDS)


@given(st.sampled_from(Compression), st.sampled_from(Compression))
def test_recompression_keeps_all_but_the_codec(source: Compression, target: Compression) -> None:
    arguments = {
        "base_offset": 7,
        "partition_leader_epoch": 2,
        "producer_id": 5,
        "producer_epoch": 1,
        "base_sequence": 3,
    }
    batch = build_batch(RECORDS, compression=source, is_transactional=True, **arguments)
    recompressed = recompress(batch, read_header(batch), target, max_decompressed_bytes=2**20)
    assert recompressed == build_batch(RECORDS, compression=target, is_transactional=True, **arguments)


def test_recompression_is_bounded() -> None:
    batch = build_batch([NewRecord(NOW, None, bytes(2**20))], compression=Compression.ZSTD)
    with pytest.raises(DecompressionBomb):
        recompress(batch, read_header(batch), Compression.NONE, max_decompressed_bytes=2**20)


def test_recompression_of_what_does_not_decompress() -> None:
    batch = build_batch(RECORDS, compression=Compression.GZIP)
    batch[61] ^= 0xFF
    with pytest.raises(CorruptRecord):
        recompress(batch, read_header(batch), Compression.NONE, max_decompressed_bytes=2**20)


@given(st.sampled_from(Compression), st.sets(st.integers(0, 9)), st.none() | st.integers(0, 2**43), st.booleans())
def test_compaction_keeps_what_it_retains_and_what_it_knows_of_the_producer(
    codec: Compression, kept: set[int], delete_horizon_ms: int | None, log_append_time: bool
) -> None:
    batch = build_batch(
        RECORDS,
        base_offset=100,
        partition_leader_epoch=4,
        compression=codec,
        producer_id=5,
        producer_epoch=1,
        base_sequence=30,
        is_transactional=True,
        is_log_append_time=log_append_time,
    )
    original = read_header(batch)
    retained = [record for index, record in enumerate(read_all(batch)) if index in kept]
    smaller = build_retained_batch(original, retained, delete_horizon_ms=delete_horizon_ms)
    assert read_all(smaller) == retained
    header = read_header(smaller)
    assert (header.base_offset, header.last_offset, header.records_count) == (100, 109, len(kept))
    assert (header.producer_id, header.producer_epoch) == (5, 1)
    assert (header.base_sequence, header.last_sequence) == (30, 39)
    assert (header.partition_leader_epoch, header.is_transactional) == (4, True)
    assert header.has_delete_horizon == (delete_horizon_ms is not None)
    assert not header.has_delete_horizon or header.base_timestamp == delete_horizon_ms
    expected_max = NOW + max(kept) if kept and not log_append_time else original.max_timestamp
    assert header.max_timestamp == expected_max


def test_a_delete_horizon_once_set_stays() -> None:
    batch = build_batch(RECORDS)
    first = build_retained_batch(read_header(batch), read_all(batch)[2:], delete_horizon_ms=NOW + 500)
    second = build_retained_batch(read_header(first), read_all(first)[1:])
    header = read_header(second)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW + 500
    assert [record.timestamp for record in read_all(second)] == [NOW + index for index in range(3, 10)]
