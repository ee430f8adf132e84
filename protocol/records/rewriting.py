"""Changes that a broker makes to a batch which a producer has written, beyond stamping offset and leader epoch.

Everything here is under the CRC, so the CRC is computed anew. Records are not re-encoded where their encoding can stay:
another codec means decompress and compress; another timestamp type is a bit and a number in the header. Only
compaction takes records apart and puts the retained ones together again.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from oncelog.protocol.records.compression import compress_in_steps
from oncelog.protocol.records.record_batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptRecord,
    assemble_batch,
    stamp_header,
)
from oncelog.protocol.records.varint import decode_varint, encode_varint

_MIN_INT64: Final = -(2**63)
_MAX_INT64: Final = 2**63 - 1


def stamp_max_timestamp(
    batch: bytearray | memoryview, header: BatchHeader, max_timestamp: int, *, is_log_append_time: bool
) -> BatchHeader:
    """Make ``max_timestamp`` the batch's, in place. With log append time it becomes the time of every record."""
    attributes = header.attributes & ~LOG_APPEND_TIME_BIT
    if is_log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
    if attributes == header.attributes and max_timestamp == header.max_timestamp:
        return header
    return stamp_header(batch, header._replace(attributes=attributes, max_timestamp=max_timestamp))


class RecordSpan(NamedTuple):
    """Where a record stands in the decompressed records of its batch, and what compaction must know of it."""

    start: int
    """Of its length field."""
    delta: int
    """Of its timestamp delta."""
    rest: int
    """Of what follows the timestamp delta."""
    end: int
    offset: int
    timestamp: int
    key: bytes | None
    is_tombstone: bool


def iter_record_spans(payload: bytes, header: BatchHeader) -> Iterator[RecordSpan]:
    """Visit the records of a batch. The headers of records are skipped unread, however many there are.

    ``payload`` is what ``records_payload`` returns. Raises CorruptRecord at the first contradiction.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    previous_delta, last_offset_delta = -1, header.last_offset_delta
    at = 0
    try:
        for _ in range(header.records_count):
            start = at
            length, attributes = decode_varint(payload, at)
            end = attributes + length
            timestamp_delta, rest = decode_varint(payload, attributes + 1)
            offset_delta, at = decode_varint(payload, rest)
            key_length, at = decode_varint(payload, at)
            key = None
            if key_length >= 0:
                key = payload[at : at + key_length]
                at += key_length
            value_length, at = decode_varint(payload, at)
            if max(at, at + value_length) >= end or end > len(payload):
                raise ValueError(f"fields that end after their record, at byte {end}")
            if not previous_delta < offset_delta <= last_offset_delta:
                raise ValueError(f"offset delta {offset_delta} after {previous_delta} of {last_offset_delta}")
            previous_delta = offset_delta
            timestamp = base_timestamp + timestamp_delta
            if not _MIN_INT64 <= timestamp <= _MAX_INT64:
                raise ValueError(f"timestamp {timestamp} at offset delta {offset_delta}")
            yield RecordSpan(
                start, attributes + 1, rest, end, base_offset + offset_delta, timestamp, key, value_length < 0
            )
            at = end
        if at != len(payload):
            raise ValueError(f"{len(payload) - at} bytes after the last record")
    except (IndexError, ValueError) as error:
        raise CorruptRecord(f"in the batch at offset {base_offset}: {error}") from error


def retain_records(
    header: BatchHeader, payload: bytes, retained: Sequence[RecordSpan], *, delete_horizon_ms: int | None = None
) -> Generator[None, None, bytearray]:
    """Build, in steps, the batch that has only ``retained``, at least one record, of the records of another.

    Offsets, sequences and the last offset delta stay, since a recovering leader restores the producer state from them.
    A delete horizon (when tombstones and markers may go, KIP-534) is stored as the base timestamp; without a new one
    the records stay byte for byte.
    """
    if delete_horizon_ms is None:
        records = [payload[span.start : span.end] for span in retained]
    else:
        records = [_with_timestamp_delta(payload, span, delete_horizon_ms) for span in retained]
        header = header._replace(attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=delete_horizon_ms)
    if not header.is_log_append_time:
        header = header._replace(max_timestamp=max(span.timestamp for span in retained))
    compressed = yield from compress_in_steps(header.compression, records)
    return assemble_batch(header._replace(records_count=len(retained)), compressed)


def _with_timestamp_delta(payload: bytes, span: RecordSpan, base_timestamp: int) -> bytes:
    """Return the record with another base timestamp, which leaves its timestamp as it is."""
    attributes = payload[span.delta - 1 : span.delta]
    body = attributes + encode_varint(span.timestamp - base_timestamp) + payload[span.rest : span.end]
    return encode_varint(len(body)) + body


def can_have_delete_horizon(retained: Iterable[RecordSpan], delete_horizon_ms: int) -> bool:
    """Return whether the difference of all timestamps to the horizon fits 64 bits."""
    return all(span.timestamp - delete_horizon_ms >= _MIN_INT64 for span in retained)


def empty_batch(header: BatchHeader) -> bytearray:
    """Build the batch of which compaction leaves nothing but the header: offsets, producer and sequences."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    return assemble_batch(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, records_count=0), b"")
