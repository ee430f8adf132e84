"""The Arrow decoder against the plain decoder of ``protocol``: the same records, and the same refusals."""

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncelog.protocol.messages.fetch import AbortedTransaction
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.control_records import build_end_txn_marker
from oncelog.protocol.records.record_batch import (
    CorruptRecord,
    NewRecord,
    assemble_batch,
    build_batch,
    iter_batches,
    iter_records,
    read_header,
    records_payload,
)
from oncelog.protocol.records.rewriting import empty_batch, iter_record_spans, retain_records, stamp_max_timestamp
from oncelog.spark_connector.columnar.arrow_decoder import ArrowDecoder, arrow_schema
from oncelog.spark_connector.columnar.columns import NAMES, WITHOUT_HEADERS, Columns
from oncelog.spark_connector.columnar.fetched_batches import FetchedBatches, RangeUnreadable
from oncelog.spark_connector.offset_ranges import OffsetRange
from tests.stored_batch import stored
from tests.unit.protocol.records.walks import completed

NOW = 1_700_000_000_000
EVERYTHING = OffsetRange("orders", 3, 0, 2**62)
MOST = 1 << 30

Row = tuple[bytes | None, bytes | None, int, int, int, list[tuple[str, bytes | None]] | None]
"""Key, value, offset, timestamp (us), timestamp type, headers."""

data = st.one_of(st.none(), st.binary(max_size=300), st.just(b"x" * 9000))
names = st.text(max_size=10)
headers: st.SearchStrategy[list[tuple[str, bytes | None]]] = st.one_of(
    st.just([]), st.lists(st.tuples(names, data), max_size=12)
)
records = st.builds(
    NewRecord,
    st.one_of(st.integers(NOW - 100, NOW + 100), st.integers(-(2**40), 2**40), st.just(-1)),
    data,
    data,
    headers,
)
batches_of_records = st.lists(st.lists(records, min_size=1, max_size=80), min_size=1, max_size=4)
equal_records = st.builds(lambda record, count: [record] * count, records, st.integers(30, 300))
codecs = st.sampled_from(Compression)


def decode(
    buffer: bytes,
    *,
    columns: Columns | None = None,
    offset_range: OffsetRange = EVERYTHING,
    aborted: Sequence[AbortedTransaction] = (),
    check_crcs: bool = True,
    start: int = 0,
) -> list[dict[str, Any]]:
    fetched = FetchedBatches(buffer, list(iter_batches(buffer)), list(aborted), start)
    columns = columns or Columns(NAMES)
    decoder = ArrowDecoder(offset_range, columns, check_crcs=check_crcs)
    rows: list[dict[str, Any]] = []
    for batch in decoder.decode(fetched):
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(columns))
        assert batch.num_rows > 0
        index = batch.schema.get_field_index("timestamp")
        if index >= 0:
            batch = batch.set_column(index, "timestamp", batch.column(index).cast("int64"))
        rows += batch.to_pylist()
    return rows


def decode_rows(buffer: bytes, **options: Any) -> list[Row]:
    rows = decode(buffer, **options)
    assert all((row["topic"], row["partition"]) == ("orders", 3) for row in rows)
    return [
        (
            row["key"],
            row["value"],
            row["offset"],
            row["timestamp"],
            row["timestampType"],
            None if row["headers"] is None else [(each["key"], each["value"]) for each in row["headers"]],
        )
        for row in rows
    ]


def plain_rows(buffer: bytes) -> list[Row]:
    return [
        (
            record.key,
            record.value,
            record.offset,
            record.timestamp * 1000,
            int(header.is_log_append_time),
            [(name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), v) for name, v in record.headers]
            or None,
        )
        for at, header in iter_batches(buffer)
        for record in iter_records(buffer, at, header, max_decompressed_bytes=MOST)
    ]


def log_of(batches: Sequence[Sequence[NewRecord]], codec: Compression = Compression.NONE, base: int = 0) -> bytes:
    built = []
    for batch in batches:
        built.append(bytes(stored(build_batch(batch, compression=codec), base_offset=base)))
        base += len(batch)
    return b"".join(built)


@settings(deadline=None)
@given(batches_of_records, codecs, st.integers(0, 2**40))
def test_arrow_decoder_of_any_batches_reads_what_the_plain_decoder_reads(
    batches: list[list[NewRecord]], codec: Compression, base: int
) -> None:
    buffer = log_of(batches, codec, base)
    assert decode_rows(buffer) == plain_rows(buffer)


@settings(deadline=None)
@given(st.lists(equal_records, min_size=1, max_size=3), st.lists(records, min_size=1, max_size=5))
def test_records_of_one_length_are_read_as_by_the_plain_decoder(
    runs: list[list[NewRecord]], others: list[NewRecord]
) -> None:
    """They are walked over in strides, and what follows them is not."""
    buffer = log_of([[*runs[0], *others], *runs, [*others, *runs[-1], *others]])
    assert decode_rows(buffer) == plain_rows(buffer)


@settings(deadline=None)
@given(batches_of_records, st.data())
def test_decode_of_a_range_inside_a_batch_yields_only_the_range(
    batches: list[list[NewRecord]], draw: st.DataObject
) -> None:
    buffer = log_of(batches, base=10)
    last = 10 + sum(map(len, batches))
    start = draw.draw(st.integers(0, last + 5))
    end = draw.draw(st.integers(start, last + 5))
    wanted = [row for row in plain_rows(buffer) if start <= row[2] < end]
    assert decode_rows(buffer, offset_range=OffsetRange("orders", 3, start, end)) == wanted


@settings(deadline=None)
@given(st.lists(records, min_size=1, max_size=40), st.data())
def test_batches_with_gaps_after_compaction_keep_their_offsets(batch: list[NewRecord], draw: st.DataObject) -> None:
    whole = stored(build_batch(batch), base_offset=100)
    header = read_header(whole)
    payload = bytes(whole[61:])
    retained = [span for span in iter_record_spans(payload, header) if draw.draw(st.booleans())]
    emptied = left = bytes(empty_batch(header))
    if retained:
        horizon_ms = draw.draw(st.sampled_from([None, NOW]))
        left = bytes(completed(retain_records(header, payload, retained, delete_horizon_ms=horizon_ms)))
    following = log_of([batch], base=header.next_offset)
    buffer = emptied + left + following
    assert decode_rows(buffer) == plain_rows(buffer)


@settings(deadline=None)
@given(st.lists(records, min_size=1, max_size=20))
def test_append_time_is_that_of_the_batch(batch: list[NewRecord]) -> None:
    stamped = build_batch(batch)
    stamp_max_timestamp(stamped, read_header(stamped), NOW + 5, is_log_append_time=True)
    buffer = bytes(stamped) + log_of([batch], base=len(batch))
    rows = decode_rows(buffer)
    assert rows == plain_rows(buffer)
    assert {row[3:5] for row in rows[: len(batch)]} == {((NOW + 5) * 1000, 1)}


@settings(deadline=None)
@given(st.lists(records, min_size=1, max_size=20), st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
def test_column_read_alone_equals_its_column_of_a_full_read(batch: list[NewRecord], columns: list[str]) -> None:
    buffer = log_of([batch])
    rows = decode(buffer)
    assert decode(buffer, columns=Columns(tuple(columns))) == [{name: row[name] for name in columns} for row in rows]


def test_few_records_with_many_headers_are_read_as_by_the_plain_decoder() -> None:
    many = [(f"name{n}", None if n % 3 else b"v" * n) for n in range(500)]
    buffer = log_of(
        [[NewRecord(NOW, b"k", b"v"), NewRecord(NOW, None, None, many), NewRecord(NOW, b"", b"", many[:2])]]
    )
    assert decode_rows(buffer) == plain_rows(buffer)


def test_header_names_that_are_not_utf_8_have_replacement_characters() -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    (row,) = decode_rows(log_of([[NewRecord(NOW, b"k", b"v", [(name, b"1")])]]))
    assert row[5] == [("caf\ufffd", b"1")]


@pytest.mark.parametrize("timestamp", [2**62, -(2**62)])
def test_timestamps_beyond_sparks_range_become_its_limits(timestamp: int) -> None:
    (row,) = decode_rows(log_of([[NewRecord(timestamp, b"k", b"v")]]))
    limit = (2**63 - 1) // 1000 * 1000
    assert row[3] == (limit if timestamp > 0 else -limit)


def transactional(batch: Sequence[NewRecord], producer_id: int, base: int) -> bytes:
    return bytes(
        stored(
            build_batch(batch, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True),
            base_offset=base,
        )
    )


def marker(producer_id: int, base: int, *, commit: bool) -> bytes:
    built = stored(
        build_end_txn_marker(
            producer_id=producer_id, producer_epoch=0, commit=commit, coordinator_epoch=0, timestamp=NOW
        ),
        base_offset=base,
    )
    return bytes(built)


def test_markers_and_aborted_records_are_not_yielded() -> None:
    batch = [NewRecord(NOW, b"k", b"v")] * 2
    buffer = b"".join(
        [
            transactional(batch, 7, 0),
            transactional(batch, 8, 2),
            marker(7, 4, commit=False),
            transactional(batch, 7, 5),
            marker(8, 7, commit=True),
            marker(7, 8, commit=True),
            log_of([batch], base=9),
        ]
    )
    aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    assert [row[2] for row in decode_rows(buffer, aborted=aborted)] == [2, 3, 5, 6, 9, 10]
    assert [row[2] for row in decode_rows(buffer)] == [0, 1, 2, 3, 5, 6, 9, 10]


def test_records_before_the_fetch_offset_are_not_yielded() -> None:
    """A log may begin within a batch, since records can be deleted one by one."""
    buffer = log_of([[NewRecord(NOW, None, b"v")] * 5])
    assert [row[2] for row in decode_rows(buffer, start=3)] == [3, 4]


def test_response_without_visible_records_yields_nothing() -> None:
    assert decode(marker(7, 4, commit=True)) == []


def test_large_responses_are_yielded_in_pieces() -> None:
    batch = [NewRecord(NOW, None, b"v" * 1_000_000)] * 3
    buffer = log_of([batch] * 4)
    decoder = ArrowDecoder(EVERYTHING, Columns(("offset", "value")), check_crcs=True)
    pieces = list(decoder.decode(FetchedBatches(buffer, list(iter_batches(buffer)), [], 0)))
    assert [piece.num_rows for piece in pieces] == [6, 6]


# What a broker should never send


def test_batch_with_a_wrong_crc_is_refused_if_crcs_are_checked() -> None:
    buffer = bytearray(log_of([[NewRecord(NOW, b"k", b"v")]]))
    buffer[-3] ^= 1
    with pytest.raises(RangeUnreadable, match="offset 0 cannot be read: its CRC is wrong"):
        decode(bytes(buffer))


def test_broken_batch_among_others_is_named_in_the_error() -> None:
    good, broken = log_of([[NewRecord(NOW, b"k", b"v")]]), log_of([[NewRecord(NOW, b"k", b"v")]], base=41)
    header = read_header(broken)
    broken = bytes(assemble_batch(header._replace(records_count=2), broken[61:]))
    with pytest.raises(RangeUnreadable, match="offset 41 cannot be read"):
        decode(good + broken)


def is_readable(buffer: bytes) -> bool:
    try:
        plain_rows(buffer)
    except CorruptRecord:
        return False
    return True


small_batches = st.lists(records, min_size=1, max_size=6)


@settings(max_examples=400, deadline=None)
@given(small_batches, st.integers(0, 2**32), st.integers(0, 255), st.booleans())
@example([NewRecord(NOW, None, b"")], 0, 1, False)
@example([NewRecord(NOW, None, b"v")], 0, 15, False)
@example([NewRecord(NOW, None, b"v", [("a", None)])], 12, 1, False)
def test_broken_bytes_are_refused_or_read_as_by_the_plain_decoder(
    batch: list[NewRecord], position: int, byte: int, cut: bool
) -> None:
    """A valid CRC says nothing about what is under it."""
    whole = stored(build_batch(batch), base_offset=5)
    header = read_header(whole)
    payload = bytearray(records_payload(whole, 0, header, max_decompressed_bytes=MOST))
    position %= len(payload)
    payload[position] = byte
    if cut:
        del payload[position:]
    buffer = bytes(assemble_batch(header, payload))
    if is_readable(buffer):
        assert decode_rows(buffer) == plain_rows(buffer)
    else:
        with pytest.raises(RangeUnreadable):
            decode(buffer)


@settings(deadline=None)
@given(
    st.integers(-3, 8),
    st.integers(-3, 8),
    st.one_of(st.integers(NOW - 5, NOW), st.integers(-(2**63), 2**63 - 1)),
)
def test_batch_headers_that_contradict_the_records_are_refused(
    count: int, last_offset_delta: int, base_timestamp: int
) -> None:
    whole = build_batch([NewRecord(NOW + n, b"k", b"v" * n) for n in range(4)])
    lies = read_header(whole)._replace(
        records_count=count, last_offset_delta=last_offset_delta, base_timestamp=base_timestamp
    )
    buffer = bytes(assemble_batch(lies, bytes(whole[61:])))
    if not is_readable(buffer):
        with pytest.raises(RangeUnreadable):
            decode(buffer)
    elif last_offset_delta >= 0:
        limit = (2**63 - 1) // 1000 * 1000
        wanted = [(*row[:3], min(max(row[3], -limit), limit), *row[4:]) for row in plain_rows(buffer)]
        assert decode_rows(buffer) == wanted


def test_varint_without_an_end_is_refused() -> None:
    whole = build_batch([NewRecord(NOW, b"k", b"v")])
    payload = struct.pack("b", 26) + b"\0" + b"\xff" * 11 + b"\0"
    buffer = bytes(assemble_batch(read_header(whole), payload))
    assert not is_readable(buffer)
    with pytest.raises(RangeUnreadable):
        decode(buffer)


def test_headers_that_are_not_read_are_not_decoded() -> None:
    """As in the plain decoder's stead: columns that are not read are not decoded."""
    rows = decode(log_of([[NewRecord(NOW, b"k", b"v", [("a", b"1")])]]), columns=Columns(WITHOUT_HEADERS))
    assert [sorted(row) for row in rows] == [sorted(WITHOUT_HEADERS)]
