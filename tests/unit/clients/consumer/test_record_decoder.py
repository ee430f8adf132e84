"""The consumer's decoder against the one that everybody else uses, on good batches and on broken ones."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.clients.consumer.consumer_record import ConsumerRecord, TimestampType
from oncelog.clients.consumer.record_decoder import decode_records
from oncelog.protocol.records.compression import Compression, DecompressionBomb
from oncelog.protocol.records.record_batch import (
    HEADER_SIZE,
    CorruptRecord,
    NewRecord,
    Record,
    assemble_batch,
    build_batch,
    encode_record,
    iter_records,
    read_header,
)
from tests.stored_batch import stored

NOW = 1_750_000_000_000


def decode(batch: bytes | bytearray, *, from_offset: int = 0, most: int = 1 << 20) -> list[ConsumerRecord]:
    return decode_records(
        batch,
        0,
        read_header(batch),
        topic="orders",
        partition=3,
        from_offset=from_offset,
        max_decompressed_bytes=most,
    )


def as_plain(record: ConsumerRecord) -> Record:
    return Record(record.offset, record.timestamp_ms, record.key, record.value, record.headers)


sizes = st.one_of(st.integers(0, 70), st.sampled_from([63, 64, 8190, 8191, 8192, 20_000]))
contents = st.one_of(st.none(), sizes.map(lambda size: b"x" * size))
headers = st.lists(st.tuples(st.text(max_size=5), contents), max_size=3)
timestamps = st.one_of(st.integers(NOW - 100, NOW + 100), st.sampled_from([0, NOW + 10_000, NOW + 2**40, -1]))
new_records = st.lists(st.builds(NewRecord, timestamps, contents, contents, headers), min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(new_records, st.sampled_from(Compression), st.booleans(), st.integers(0, 2**40))
def test_decoded_records_equal_those_of_other_decoders(
    records: list[NewRecord], codec: Compression, append_time: bool, base_offset: int
) -> None:
    batch = stored(
        build_batch(records, compression=codec),
        base_offset=base_offset,
        is_log_append_time=append_time,
        partition_leader_epoch=5,
    )
    expected = list(iter_records(batch, 0, read_header(batch), max_decompressed_bytes=1 << 20))
    decoded = decode(batch)
    assert [as_plain(record) for record in decoded] == expected
    kind = TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME
    assert {(r.topic, r.partition, r.leader_epoch, r.timestamp_type) for r in decoded} == {("orders", 3, 5, kind)}


@given(st.lists(st.integers(0, 300), min_size=1, max_size=20, unique=True).map(sorted), st.integers(0, 300))
def test_offsets_that_compaction_left(deltas: list[int], from_offset: int) -> None:
    payload = b"".join(encode_record(delta, NOW, NewRecord(NOW, None, b"v")) for delta in deltas)
    batch = assemble_batch((100, 0, 0, 2, 0, 0, 300, NOW, NOW, -1, -1, -1, len(deltas)), payload)
    expected = [100 + delta for delta in deltas if 100 + delta >= from_offset]
    assert [record.offset for record in decode(batch, from_offset=from_offset)] == expected


def test_batch_emptied_by_compaction_has_no_records() -> None:
    batch = assemble_batch((100, 0, 0, 2, 0, 0, 9, NOW, NOW, -1, -1, -1, 0), b"")
    assert decode(batch) == []
    with pytest.raises(CorruptRecord):
        decode(assemble_batch((100, 0, 0, 2, 0, 0, 9, NOW, NOW, -1, -1, -1, -1), b""))


def one_record(fields: str, count: int = 1) -> bytes:
    """A batch of one record whose fields are given in hexadecimal, its length included."""
    return bytes(assemble_batch((0, 0, 0, 2, 0, 0, count - 1, NOW, NOW, -1, -1, -1, count), bytes.fromhex(fields)))


@pytest.mark.parametrize(
    "fields",
    [
        "0d00000001027600",  # A length of -7.
        "0e00000101027600",  # An offset delta of -1.
        "0e00000201027600",  # One beyond the batch.
        "0e00000003027600",  # A key of -2 bytes.
        "0e00000001037600",  # A value of -2 bytes.
        "0e00000001047600",  # A value that ends after its record.
        "0e000000017e7600",  # A value that ends after the batch.
        "1000000001027600",  # A record that ends after the batch.
        "0c00000001027600",  # A record that ends before its fields do.
        "0e0000000102760000",  # Something after the last record.
        "0e0000000102",  # Cut off.
        "8080808080808080808000",  # A varint without end.
        "ffffffffffffffffff0100000001027600",  # A length of -2**63.
        "2000feffffffffffffffff010001027600",  # A timestamp after the last one there is.
        "",
    ],
)
def test_records_that_contradict_themselves_are_corrupt(fields: str) -> None:
    batch = one_record(fields)
    with pytest.raises(CorruptRecord):
        decode(batch)


def test_offsets_that_do_not_grow_are_corrupt() -> None:
    payload = b"".join(encode_record(delta, NOW, NewRecord(NOW, None, b"v")) for delta in (1, 1))
    with pytest.raises(CorruptRecord, match="offset 1"):
        decode(assemble_batch((0, 0, 0, 2, 0, 0, 5, NOW, NOW, -1, -1, -1, 2), payload))


def test_arbitrary_bytes_raise_only_corrupt_record() -> None:
    """Bytes changed at random: records, or CorruptRecord; and no record that the other decoder would refuse."""
    rng = random.Random(5)
    records = [
        NewRecord(NOW + n, b"key" if n % 2 else None, b"v" * (n * 40), [("h", b"1")] * (n % 3)) for n in range(6)
    ]
    good = build_batch(records)
    for _ in range(3000):
        broken = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            broken[rng.randrange(HEADER_SIZE, len(broken))] = rng.randrange(256)
        try:
            decoded = [as_plain(record) for record in decode(broken)]
        except CorruptRecord:
            continue
        expected = list(iter_records(broken, 0, read_header(broken), max_decompressed_bytes=1 << 20))
        assert [record[:4] for record in decoded] == [record[:4] for record in expected], bytes(broken).hex()


def test_batch_above_max_decompressed_bytes_raises() -> None:
    batch = build_batch([NewRecord(NOW, None, bytes(100_000))], compression=Compression.ZSTD)
    with pytest.raises(DecompressionBomb):
        decode(batch, most=50_000)


def test_headers_are_decoded_when_they_are_read() -> None:
    (record,) = decode(build_batch([NewRecord(NOW, None, b"v", [("a", b"1"), ("a", None), ("\udcff", b"")])]))
    assert record.headers == [("a", b"1"), ("a", None), ("\udcff", b"")]
    assert record.topic_partition == ("orders", 3)
    (broken,) = decode(one_record("12000000010276020100"))
    assert broken.value == b"v"
    with pytest.raises(CorruptRecord, match="orders-3 at offset 0: a header without a name"):
        _ = broken.headers
