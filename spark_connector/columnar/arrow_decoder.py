"""Record batches straight into Arrow, without a Python object for a record, a key or a value.

What a consumer may see of a Fetch response (no markers, no aborted records) is decompressed and joined in pieces of up
to ``_PIECE_BYTES``; ``record_columns`` locates the fields of all records of a piece. Numbers become Arrow columns as
they are. Keys and values are copied by Arrow itself: a binary array over the piece has the offsets
``[start, end, start, end, …]``, so that every second element is a value and the others are the bytes between values;
one call takes every second element.

Columns that are not read are located but not copied. The schema is exactly the one that Spark expects: it compares
names, types and nullability of the first batch.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from oncelog.protocol.records.aborted_ranges import AbortedRanges
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.record_batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    BatchHeader,
    CorruptRecord,
    crc_is_valid,
    records_payload,
)
from oncelog.protocol.schema import Buffer
from oncelog.spark_connector.columnar.columns import HEADERS, Columns
from oncelog.spark_connector.columnar.fetched_batches import FetchedBatches, RangeUnreadable
from oncelog.spark_connector.columnar.header_columns import locate_headers
from oncelog.spark_connector.columnar.record_columns import RecordColumns, locate_records
from oncelog.spark_connector.columnar.varint_decoding import Integers
from oncelog.spark_connector.offset_ranges import OffsetRange

Array = Any
"""pyarrow has no types."""

_PIECE_BYTES: Final = 8 * 1024 * 1024
_MAX_BATCH_BYTES: Final = 1024 * 1024 * 1024
"""Decompressed, of one record batch; offsets in Arrow's binary arrays have 31 bits."""
_MAX_MILLISECONDS: Final = (2**63 - 1) // 1000
"""Spark's timestamps are microseconds in 64 bits; later and earlier ones become the last or the first of them."""

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: pa.list_(pa.field("element", _HEADER)),
}


def arrow_schema(columns: Columns) -> Any:
    """Return the Arrow schema of the columns that are read."""
    return pa.schema([(name, _TYPES[name]) for name in columns.names])


class ArrowDecoder:
    """Decodes the Fetch responses of one range."""

    def __init__(self, offset_range: OffsetRange, columns: Columns, *, check_crcs: bool) -> None:
        self._range = offset_range
        self._columns = columns
        self._check_crcs = check_crcs
        self._schema = arrow_schema(columns)
        self._topics = pa.array([], pa.string())
        self._every_second = np.empty(0, np.int64)

    def decode(self, fetched: FetchedBatches) -> Iterator[Any]:
        """Yield Arrow record batches with the records of the range, in order. Raises ``RangeUnreadable``."""
        pieces: list[Buffer] = []
        headers: list[BatchHeader] = []
        size = 0
        start = max(fetched.start, self._range.start)
        for payload, header in self._visible(fetched):
            if pieces and size + len(payload) > _PIECE_BYTES:
                yield from self._decode_piece(pieces, headers, start)
                pieces, headers, size = [], [], 0
            pieces.append(payload)
            headers.append(header)
            size += len(payload)
        if pieces:
            yield from self._decode_piece(pieces, headers, start)

    def _visible(self, fetched: FetchedBatches) -> Iterator[tuple[Buffer, BatchHeader]]:
        """Yield the decompressed records of each batch of the range that a consumer may see, with its header."""
        aborted = AbortedRanges(fetched.aborted)
        for at, header in fetched.batches:
            try:
                if self._check_crcs and not crc_is_valid(fetched.buffer, at, header):
                    raise CorruptRecord("its CRC is wrong")
                if header.last_offset_delta < 0:
                    raise CorruptRecord(f"a last offset delta of {header.last_offset_delta}")
                shows = aborted.shows(fetched.buffer, at, header)
                if shows and header.records_count and self._may_have(header):
                    yield self._payload(fetched.buffer, at, header), header
            except CorruptRecord as error:
                raise self._unreadable(header, error) from error

    def _payload(self, buffer: Buffer, at: int, header: BatchHeader) -> Buffer:
        """Return the records of a batch: uncompressed ones as a view of the response, copied once, into the piece."""
        if header.attributes & COMPRESSION_MASK == Compression.NONE:
            return memoryview(buffer)[at + HEADER_SIZE : at + header.size]
        return records_payload(buffer, at, header, max_decompressed_bytes=_MAX_BATCH_BYTES)

    def _may_have(self, header: BatchHeader) -> bool:
        return header.base_offset < self._range.end and header.last_offset >= self._range.start

    def _unreadable(self, header: BatchHeader, error: Exception) -> RangeUnreadable:
        return RangeUnreadable(f"{self._range}: the batch at offset {header.base_offset} cannot be read: {error}")

    def _decode_piece(self, payloads: list[Buffer], headers: list[BatchHeader], start: int) -> Iterator[Any]:
        try:
            joined, records = locate_records(payloads, headers)
            within = self._within(records.offset, start)
            if within.stop > within.start:
                yield self._to_arrow(pa.py_buffer(joined), records, within)
        except CorruptRecord as error:
            raise self._unreadable(_first_broken(payloads, headers), error) from error

    def _within(self, offsets: Integers, start: int) -> slice:
        """Return which of the records are in the range, from offset ``start`` on."""
        edges = (start, self._range.end)
        if offsets.size and edges[0] <= offsets[0] and offsets[-1] < edges[1]:
            return slice(0, offsets.size)
        first, stop = np.searchsorted(offsets, edges)
        return slice(int(first), int(stop))

    # Columns

    def _to_arrow(self, data: Any, records: RecordColumns, within: slice) -> Any:
        arrays = [self._column(name, data, records, within) for name in self._columns.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, data: Any, records: RecordColumns, within: slice) -> Array:
        count = within.stop - within.start
        match name:
            case "key":
                return self._binaries(data, records.key_at[within], records.key_length[within])
            case "value":
                return self._binaries(data, records.value_at[within], records.value_length[within])
            case "topic":
                return self._topic(count)
            case "partition":
                return pa.array(np.full(count, self._range.partition, np.int32))
            case "offset":
                return pa.array(records.offset[within])
            case "timestamp":
                return _timestamps(records.timestamp[within])
            case "timestampType":
                return pa.array(records.is_append_time[within].astype(np.int32))
            case _:
                return self._headers(data, records, within)

    def _topic(self, count: int) -> Array:
        if len(self._topics) < count:
            self._topics = pa.array([self._range.topic] * count, pa.string())
        return self._topics.slice(0, count)

    def _binaries(self, data: Any, at: Integers, length: Integers) -> Array:
        """Return a column of the bytes at some ascending positions; a negative length is a null."""
        count = at.size
        if not count:
            return pa.array([], pa.binary())
        is_null = length < 0
        if is_null.all():
            return pa.nulls(count, pa.binary())
        edges = np.empty(2 * count, np.int32)
        edges[0::2] = at
        edges[1::2] = at + np.maximum(length, 0)
        all_of_it = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), data])
        if self._every_second.size < count:
            self._every_second = np.arange(0, 2 * count, 2)
        wanted = pa.array(self._every_second[:count], mask=is_null if is_null.any() else None)
        return all_of_it.take(wanted)

    def _headers(self, data: Any, records: RecordColumns, within: slice) -> Array:
        count = within.stop - within.start
        if not records.has_headers:
            return pa.nulls(count, _TYPES[HEADERS])
        located = locate_headers(records)
        names = _as_strings(self._binaries(data, located.name_at, located.name_length))
        values = self._binaries(data, located.value_at, located.value_length)
        structs = pa.StructArray.from_arrays([names, values], fields=list(_HEADER))
        edges = np.concatenate([[0], np.cumsum(located.counts)]).astype(np.int32)
        lists = pa.ListArray.from_arrays(
            pa.array(edges), structs, type=_TYPES[HEADERS], mask=pa.array(located.counts == 0)
        )
        return lists.slice(within.start, count)


def _timestamps(milliseconds: Integers) -> Array:
    microseconds = np.clip(milliseconds, -_MAX_MILLISECONDS, _MAX_MILLISECONDS) * 1000
    return pa.array(microseconds).view(_TYPES["timestamp"])


def _as_strings(names: Array) -> Array:
    """Decode UTF-8; other bytes become U+FFFD, as in Java."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


def _first_broken(payloads: Sequence[Buffer], headers: Sequence[BatchHeader]) -> BatchHeader:
    """Return the header of the first batch of a piece that cannot be read by itself."""
    for payload, header in zip(payloads, headers, strict=True):
        try:
            _, records = locate_records([payload], [header])
            if records.has_headers:
                locate_headers(records)
        except CorruptRecord:
            return header
    return headers[0]
