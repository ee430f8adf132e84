from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncelog.protocol.records.compression import Compression, DecompressionBomb
from oncelog.protocol.records.record_batch import (
    HEADER_SIZE,
    NO_SEQUENCE,
    BatchHeader,
    CorruptRecord,
    NewRecord,
    Record,
    assemble_batch,
    build_batch,
    crc_is_valid,
    increment_sequence,
    iter_batches,
    iter_records,
    patch_offset_and_epoch,
    read_header,
)
from tests.stored_batch import stored

MEBIBYTE = 2**20
NOW = 1_700_000_000_000

nullable_bytes = st.none() | st.binary(max_size=200)
header_lists = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=100)), max_size=3)
new_records = st.builds(NewRecord, st.integers(0, 2**43), nullable_bytes, nullable_bytes, header_lists)
codecs = st.sampled_from(Compression)


def read_all(batch: bytes | bytearray, position: int = 0) -> list[Record]:
    header = read_header(batch, position)
    return list(iter_records(batch, position, header, max_decompressed_bytes=MEBIBYTE))


def with_payload(payload: bytes, *, count: int, last_offset_delta: int | None = None) -> bytearray:
    """A batch with a right CRC around any bytes whatever."""
    last_offset_delta = count - 1 if last_offset_delta is None else last_offset_delta
    return assemble_batch((0, 0, -1, 2, 0, 0, last_offset_delta, NOW, NOW, -1, -1, -1, count), payload)


@settings(max_examples=200)
@given(st.lists(new_records, min_size=1, max_size=80), codecs, st.integers(0, 2**62))
def test_records_round_trip(records: list[NewRecord], codec: Compression, base_offset: int) -> None:
    batch = stored(build_batch(records, compression=codec), base_offset=base_offset)
    expected = [
        Record(base_offset + index, record.timestamp, record.key, record.value, list(record.headers))
        for index, record in enumerate(records)
    ]
    assert read_all(b"prefix" + batch + b"suffix", len(b"prefix")) == expected


@given(
    base_offset=st.integers(0, 2**62),
    epoch=st.integers(-1, 2**31 - 1),
    producer=st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1)),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    codec=codecs,
)
def test_header_fields_round_trip(
    base_offset: int, epoch: int, producer: tuple[int, int, int], flags: tuple[bool, bool, bool], codec: Compression
) -> None:
    batch = stored(
        build_batch(
            [NewRecord(NOW + 5, b"k", b"v"), NewRecord(NOW + 9, None, None), NewRecord(NOW, None, None)],
            compression=codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            is_transactional=flags[0],
            is_control=flags[1],
        ),
        base_offset=base_offset,
        partition_leader_epoch=epoch,
        is_log_append_time=flags[2],
    )
    header = read_header(batch)
    assert header.size == len(batch) == HEADER_SIZE + header.batch_length - 49
    assert (header.base_offset, header.last_offset, header.next_offset) == (
        base_offset,
        base_offset + 2,
        base_offset + 3,
    )
    assert (header.partition_leader_epoch, header.magic, header.records_count) == (epoch, 2, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    assert header.has_producer_id == (producer[0] >= 0)
    assert (header.is_transactional, header.is_control, header.is_log_append_time) == flags
    assert header.compression is codec
    assert (header.base_timestamp, header.max_timestamp) == (NOW + 5, NOW + 9)
    assert crc_is_valid(batch, 0, header)


@pytest.mark.parametrize(
    ("records", "crc"),
    [
        ([NewRecord(1503229838908, None, b"123")], 0x0318A270),
        ([NewRecord(1503229959532, None, b""), NewRecord(1503229959700, None, b"")], 0xC85CBD23),
    ],
)
def test_marker_has_the_bytes_of_a_java_broker(records: Sequence[NewRecord], crc: int) -> None:
    """The CRCs are those of batches that a Kafka 0.11 broker has sent, as published in kafka-python's tests."""
    assert read_header(build_batch(records)).crc == crc


def test_batch_layout_is_that_of_kafka() -> None:
    batch = stored(
        build_batch(
            [
                NewRecord(1_500_000_000_000, b"key", b"value", [("h", b"1"), ("n", None)]),
                NewRecord(1_500_000_000_005, None, None),
            ],
            producer_id=4000,
            producer_epoch=2,
            base_sequence=9,
            is_transactional=True,
        ),
        base_offset=7,
        partition_leader_epoch=3,
    )
    fields = (
        "0000000000000007 0000004e 00000003 02 cac158c8 0010 00000001 0000015d3ef79800 0000015d3ef79805"
        "0000000000000fa0 0002 00000009 00000002"
        "2a 00 00 00 06 6b6579 0a 76616c7565 04 02 68 02 31 02 6e 01"
        "0c 00 0a 02 01 01 00"
    )
    assert batch == bytes.fromhex(fields)


@given(st.lists(st.lists(new_records, min_size=1, max_size=3), max_size=4), codecs, st.data())
def test_batches_are_found_up_to_the_incomplete_one(
    contents: list[list[NewRecord]], codec: Compression, data: st.DataObject
) -> None:
    batches = [build_batch(records, compression=codec) for records in contents]
    whole = b"".join(batches)
    cut = data.draw(st.integers(0, len(whole)))
    found = [(position, header.size) for position, header in iter_batches(memoryview(whole)[:cut])]
    assert [size for _, size in found] == [len(batch) for batch in batches[: len(found)]]
    assert sum(size for _, size in found) <= cut
    assert len(found) == len(batches) or cut < sum(map(len, batches[: len(found) + 1]))
    assert list(iter_batches(whole, len(batches[0]) if batches else 0)) == list(iter_batches(whole))[1:]


@given(st.integers(0), st.integers(0, 7))
def test_any_flipped_bit_under_the_crc_is_noticed(where: int, bit: int) -> None:
    batch = build_batch([NewRecord(NOW, b"key", b"value")])
    position = 17 + where % (len(batch) - 17)
    batch[position] ^= 1 << bit
    assert not crc_is_valid(batch, 0, read_header(batch))


def test_cut_off_batch_has_no_valid_crc() -> None:
    batch = build_batch([NewRecord(NOW, b"key", b"value")])
    assert not crc_is_valid(batch[:-1], 0, read_header(batch))


def test_offset_and_epoch_are_outside_the_crc() -> None:
    batch = bytearray(b"....") + build_batch([NewRecord(NOW, b"key", b"value")])
    patch_offset_and_epoch(memoryview(batch), 4, 2**40, 17)
    header = read_header(batch, 4)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 17)
    assert crc_is_valid(batch, 4, header)
    assert read_all(batch, 4) == [Record(2**40, NOW, b"key", b"value", [])]


@pytest.mark.parametrize(
    ("sequence", "by", "following"),
    [(0, 1, 1), (2**31 - 1, 1, 0), (2**31 - 2, 3, 1), (2**31 - 1, 2**31 - 1, 2**31 - 2), (5, 0, 5)],
)
def test_sequence_wraps_to_zero_after_31_bits(sequence: int, by: int, following: int) -> None:
    assert increment_sequence(sequence, by) == following


def test_last_sequence_wraps_and_needs_a_first() -> None:
    records = [NewRecord(NOW, None, b"v")] * 3
    assert read_header(build_batch(records, base_sequence=2**31 - 2)).last_sequence == 0
    assert read_header(build_batch(records)).last_sequence == NO_SEQUENCE


def test_log_append_time_is_the_time_of_every_record() -> None:
    batch = stored(build_batch([NewRecord(NOW, None, None), NewRecord(NOW + 7, None, None)]), is_log_append_time=True)
    assert [record.timestamp for record in read_all(batch)] == [NOW + 7, NOW + 7]


def test_header_names_that_are_not_utf8_survive() -> None:
    batch = build_batch([NewRecord(NOW, None, None, [("n\udcff", b"")])])
    assert b"n\xff" in batch
    assert read_all(batch)[0].headers == [("n\udcff", b"")]


def test_batch_that_compaction_emptied_has_no_records() -> None:
    header = BatchHeader(7, 49, 0, 2, 0, Compression.GZIP, 4, -1, NOW, 1, 0, 10, 0)
    batch = assemble_batch(header, b"")
    assert read_all(batch) == []
    assert (read_header(batch).last_offset, read_header(batch).last_sequence) == (11, 14)


@pytest.mark.parametrize("size", [0, 1, 16, 60])
def test_header_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(CorruptRecord):
        read_header(build_batch([NewRecord(NOW, None, None)])[:size])


@pytest.mark.parametrize(("position", "byte"), [(16, 0), (16, 1), (16, 3), (16, 0xFF), (8, 0xFF), (11, 48)])
def test_impossible_header_is_refused(position: int, byte: int) -> None:
    batch = build_batch([NewRecord(NOW, None, None)])
    batch[position] = byte
    with pytest.raises(CorruptRecord):
        read_header(batch)
    with pytest.raises(CorruptRecord):
        list(iter_batches(batch))


RECORD = bytes.fromhex("0e00000001 02 76 00")
"""One record without a key whose value is "v"."""


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        pytest.param(RECORD, 2, id="fewer records than declared"),
        pytest.param(RECORD, -1, id="a negative count"),
        pytest.param(RECORD + b"\0", 1, id="bytes after the last record"),
        pytest.param(RECORD[:-1], 1, id="a cut-off record"),
        pytest.param(bytes.fromhex("0d00000001 02 76 00"), 1, id="a negative record length"),
        pytest.param(bytes.fromhex("1000000001 02 76 00 00"), 1, id="a record longer than its fields"),
        pytest.param(bytes.fromhex("0c00000001 02 76 00"), 1, id="a record shorter than its fields"),
        pytest.param(bytes.fromhex("0e00000001 7e 76 00"), 1, id="a value beyond the record"),
        pytest.param(bytes.fromhex("0e0000007e 02 76 00"), 1, id="a key beyond the record"),
        pytest.param(bytes.fromhex("0e00000001 02 76 01"), 1, id="a negative header count"),
        pytest.param(bytes.fromhex("0e00000001 02 76 02"), 1, id="a header that is not there"),
        pytest.param(bytes.fromhex("1200000001 02 76 02 01 01"), 1, id="a header without a name"),
        pytest.param(bytes.fromhex("1800000001 02 76 02 02 6e 04 61"), 1, id="a header value beyond the batch"),
        pytest.param(b"\xff" * 12, 1, id="an endless varint"),
        pytest.param(bytes.fromhex("2000 feffffffffffffffff01 0001 02 76 00"), 1, id="a timestamp beyond 64 bits"),
        pytest.param(bytes.fromhex("0e00000201 02 76 00"), 1, id="an offset beyond the last"),
        pytest.param(RECORD + RECORD, 2, id="the same offset twice"),
    ],
)
def test_broken_records_are_corrupt(payload: bytes, count: int) -> None:
    with pytest.raises(CorruptRecord):
        read_all(with_payload(payload, count=count))


def test_header_value_beyond_the_batch_is_not_handed_out_cut_off() -> None:
    batch = with_payload(bytes.fromhex("1800000001 02 76 02 02 6e 04 61"), count=1)
    with pytest.raises(CorruptRecord):
        next(iter_records(batch, 0, read_header(batch), max_decompressed_bytes=MEBIBYTE))


def test_gaps_that_compaction_left_are_fine() -> None:
    batch = with_payload(RECORD + bytes.fromhex("0e00000801 02 76 00"), count=2, last_offset_delta=9)
    assert [record.offset for record in read_all(batch)] == [0, 4]


def test_unknown_codec_is_corrupt_where_records_are_read() -> None:
    batch = build_batch([NewRecord(NOW, None, None)])
    batch[22] |= 5
    with pytest.raises(CorruptRecord):
        read_all(batch)


def test_records_are_bounded() -> None:
    batch = build_batch([NewRecord(NOW, None, bytes(5000))], compression=Compression.LZ4)
    with pytest.raises(DecompressionBomb):
        list(iter_records(batch, 0, read_header(batch), max_decompressed_bytes=5000))


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(-1, 3), codecs)
@example(RECORD, 1, Compression.NONE)
def test_arbitrary_payloads_are_records_or_corrupt(payload: bytes, count: int, codec: Compression) -> None:
    header = BatchHeader(0, 0, -1, 2, 0, codec, max(count - 1, 0), NOW, NOW, -1, -1, -1, count)
    batch = assemble_batch(header, payload)
    try:
        assert len(read_all(batch)) == count
    except CorruptRecord:
        pass
