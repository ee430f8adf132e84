"""The records of many batches as columns of numbers: where each field is. Pure.

Only the ends of records are found one after the other, since each is the start of the next one; all else is done for
all records together. ``RecordColumns`` refers to one buffer, the joined decompressed records of the batches; keys and
values are not copied here.

A batch is validated as ``oncelog.protocol.records.record_batch.iter_records`` does it: lengths and offsets that
contradict each other or the header are ``CorruptRecord``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from oncelog.protocol.records.record_batch import BatchHeader, CorruptRecord
from oncelog.protocol.records.varint import Buffer, decode_varint
from oncelog.spark_connector.columnar.varint_decoding import Bytes, Integers, decode_varints

_SHORTEST_RUN: Final = 32
"""Records of one length in a row that are worth locating together."""
_SAFE: Final = 2**62
"""The sum of two numbers below this does not overflow 64 bits."""


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """One entry for each record. Positions and lengths are bytes of ``data``; a length below 0 is a null."""

    data: Bytes
    offset: Integers
    timestamp: Integers
    """Milliseconds since the epoch."""
    is_append_time: npt.NDArray[np.bool_]
    key_at: Integers
    key_length: Integers
    value_at: Integers
    value_length: Integers
    headers_at: Integers
    """The position of the header count."""
    end: Integers
    has_headers: bool
    """Whether any record has headers."""


def locate_records(payloads: Sequence[Buffer], headers: Sequence[BatchHeader]) -> tuple[bytes, RecordColumns]:
    """Return the joined payloads (decompressed records), and where the fields are. Raises ``CorruptRecord``."""
    joined = b"".join(payloads)
    try:
        ends = _ends(joined, payloads, headers)
        return joined, _columns(np.frombuffer(joined, np.uint8), ends, headers)
    except (IndexError, ValueError) as error:
        raise CorruptRecord(f"in a batch from offset {headers[0].base_offset} on: {error}") from error


def _ends(joined: bytes, payloads: Sequence[Buffer], headers: Sequence[BatchHeader]) -> Integers:
    """Return the position after each record."""
    ends: list[Integers] = []
    at = 0
    for payload, header in zip(payloads, headers, strict=True):
        end = at + len(payload)
        if header.records_count < 0:
            raise ValueError(f"a records count of {header.records_count}")
        ends += _walk(joined, at, end, header.records_count)
        at = end
    return np.concatenate(ends)


def _walk(joined: bytes, at: int, end: int, count: int) -> Iterator[Integers]:
    """Yield the ends of ``count`` records, which fill the bytes from ``at`` to ``end``."""
    while count >= _SHORTEST_RUN:
        run, size = _equal_records(joined, at, end, count)
        if run < _SHORTEST_RUN:
            break
        yield np.arange(at + size, at + run * size + 1, size)
        at += run * size
        count -= run
    one_by_one: list[int] = []
    append = one_by_one.append
    lowest_bits = 0
    for _ in range(count):
        byte = joined[at]
        lowest_bits |= byte
        if byte < 0x80:
            at += 1 + (byte >> 1)
        elif (high := joined[at + 1]) < 0x80:
            at += 2 + ((byte & 0x7F | high << 7) >> 1)
        else:
            length, at = decode_varint(joined, at)
            at += length
        append(at)
    if at != end or lowest_bits & 1:
        raise ValueError(f"records that end {end - at} bytes before their batch does, or a negative length")
    yield np.fromiter(one_by_one, np.int64, len(one_by_one))


def _equal_records(joined: bytes, at: int, end: int, count: int) -> tuple[int, int]:
    """Return how many records from ``at`` on have the first one's size, and that size with its length field (bytes)."""
    length, body = decode_varint(joined, at)
    size = body - at + length
    most = min(count, (end - at) // size) if length > 0 else 0
    if most < _SHORTEST_RUN:
        return 0, size
    data = np.frombuffer(joined, np.uint8, most * size, at).reshape(most, size)
    run = most
    for column in range(body - at):
        differs = data[:run, column] != data[0, column]
        first = int(differs.argmax())
        run = first if differs[first] else run
    return run, size


def _columns(data: Bytes, end: Integers, headers: Sequence[BatchHeader]) -> RecordColumns:
    start = np.empty_like(end)
    start[:1] = 0
    start[1:] = end[:-1]
    counts = [header.records_count for header in headers]
    _, body = decode_varints(data, start)
    timestamp_delta, at = decode_varints(data, body + 1)
    offset_delta, at = decode_varints(data, at)
    key_length, key_at = decode_varints(data, at)
    at = _after(key_at, key_length, end)
    value_length, value_at = decode_varints(data, at)
    headers_at = _after(value_at, value_length, end)
    _check_offsets(offset_delta, counts, headers)
    without = (headers_at + 1 == end) & (data.take(headers_at, mode="clip") == 0)
    if (headers_at >= end).any():
        raise ValueError("fields that end after their record")
    append_time = np.repeat([header.is_log_append_time for header in headers], counts)
    return RecordColumns(
        data=data,
        offset=_repeated([header.base_offset for header in headers], counts) + offset_delta,
        timestamp=_timestamps(timestamp_delta, counts, headers, append_time),
        is_append_time=append_time,
        key_at=key_at,
        key_length=key_length,
        value_at=value_at,
        value_length=value_length,
        headers_at=headers_at,
        end=end,
        has_headers=not bool(without.all()),
    )


def _after(at: Integers, length: Integers, end: Integers) -> Integers:
    """Return the positions after fields of some lengths. Raises ``ValueError`` if one ends after its record."""
    if (length > end - at).any():
        raise ValueError("a field that ends after its record")
    return at + np.maximum(length, 0)


def _check_offsets(delta: Integers, counts: Sequence[int], headers: Sequence[BatchHeader]) -> None:
    """Raise ``ValueError`` unless offset deltas increase within a batch, from 0 or more up to its last offset delta."""
    increases = np.diff(delta, prepend=-1) > 0
    starts = np.cumsum([0, *counts[:-1]])[np.array(counts) > 0]
    increases[starts] = delta[starts] >= 0
    last = _repeated([header.last_offset_delta for header in headers], counts)
    if not (increases.all() and (delta <= last).all()):
        raise ValueError("offsets that do not increase, or leave their batch")


def _timestamps(
    delta: Integers, counts: Sequence[int], headers: Sequence[BatchHeader], append_time: npt.NDArray[np.bool_]
) -> Integers:
    bases = [header.base_timestamp for header in headers]
    base = _repeated(bases, counts)
    if append_time.any():
        delta = np.where(append_time, 0, delta)
        base = np.where(append_time, _repeated([header.max_timestamp for header in headers], counts), base)
    timestamp: Integers = base + delta
    if max(map(abs, bases)) >= _SAFE or delta.max(initial=0) >= _SAFE or delta.min(initial=0) <= -_SAFE:
        if (((base ^ timestamp) & (delta ^ timestamp)) < 0).any():
            raise ValueError("a timestamp of more than 64 bits")
    return timestamp


def _repeated(values: Sequence[int], counts: Sequence[int]) -> Integers:
    return np.repeat(np.array(values, np.int64), counts)
