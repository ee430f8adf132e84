"""A batch's records, decoded with as little Python as possible: this loop bounds how fast a consumer can be.

It does what ``oncelog.protocol.records.record_batch.iter_records`` does, for a consumer: varints of one and two bytes,
which nearly all are, are read inline; per record nothing is called that is not written in C; headers stay encoded. The
records of a batch come as one list.

What a batch says is doubted here as it is there: lengths and offsets that contradict each other or the header are a
``CorruptRecord``. Whether a length is negative is not looked at one by one: the lowest bits of all of them are put
together, and a zigzag number is negative if that bit is set.
"""

from collections.abc import Callable
from itertools import repeat
from typing import Final

from oncelog.clients.consumer.consumer_record import ConsumerRecord, TimestampType
from oncelog.protocol.records.record_batch import BatchHeader, CorruptRecord, records_payload
from oncelog.protocol.records.varint import decode_varint
from oncelog.protocol.schema import Buffer

_MIN_INT64: Final = -(2**63)
_MAX_INT64: Final = 2**63 - 1
_NULL: Final = 1
"""The varint of -1, the length of a null."""
_Row = tuple[str, int, int, int, bytes | None, bytes | None, bytes, TimestampType, int]
_new_record: Final[Callable[[type[ConsumerRecord], _Row], ConsumerRecord]] = tuple.__new__


def decode_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    topic: str,
    partition: int,
    from_offset: int,
    max_decompressed_bytes: int,
) -> list[ConsumerRecord]:
    """Decode the records of the batch at ``position``, from ``from_offset`` on. Raises ``CorruptRecord``."""
    if header.records_count < 0:
        raise CorruptRecord(f"a records count of {header.records_count}")
    if header.records_count == 0:
        return []
    payload = records_payload(buffer, position, header, max_decompressed_bytes=max_decompressed_bytes)
    try:
        rows = _decode_rows(payload, header, topic, partition)
    except (IndexError, ValueError) as error:
        raise CorruptRecord(f"in the batch at offset {header.base_offset}: {error}") from error
    if header.is_log_append_time:
        appended = header.max_timestamp
        rows = [(*row[:3], appended, *row[4:7], TimestampType.LOG_APPEND_TIME, row[8]) for row in rows]
    records = list(map(_new_record, repeat(ConsumerRecord), rows))
    if from_offset > header.base_offset:
        return [record for record in records if record.offset >= from_offset]
    return records


def _decode_rows(payload: bytes, header: BatchHeader, topic: str, partition: int) -> list[_Row]:
    """Decode the fields of the records. Raises ``IndexError`` or ``ValueError`` if they are broken."""
    rows: list[_Row] = []
    append = rows.append
    base_offset, base_timestamp, leader_epoch = header.base_offset, header.base_timestamp, header.partition_leader_epoch
    timestamp_type = TimestampType.CREATE_TIME
    next_offset, last_offset = base_offset, header.last_offset
    lowest_bits = at = 0
    for _ in range(header.records_count):
        lowest_bits |= (byte := payload[at])
        if byte < 0x80:
            at += 1
            end = at + (byte >> 1)
        elif (high := payload[at + 1]) < 0x80:
            at += 2
            end = at + ((byte & 0x7F | high << 7) >> 1)
        else:
            at, end = _long_range(payload, at)
        byte = payload[at + 1]  # After the attributes, which mean nothing.
        if byte < 0x80:
            at += 2
            timestamp = base_timestamp + (byte >> 1 ^ -(byte & 1))
        else:
            timestamp, at = _long_timestamp(payload, at + 1, base_timestamp)
        lowest_bits |= (byte := payload[at])
        if byte < 0x80:
            at += 1
            offset = base_offset + (byte >> 1)
        elif (high := payload[at + 1]) < 0x80:
            at += 2
            offset = base_offset + ((byte & 0x7F | high << 7) >> 1)
        else:
            delta, at = decode_varint(payload, at)
            offset = base_offset + delta
        if offset != next_offset and not next_offset < offset <= last_offset:
            raise ValueError(f"offset {offset} where {next_offset} to {last_offset} may come")
        next_offset = offset + 1
        byte = payload[at]
        key = value = None
        if byte == _NULL:
            at += 1
        else:
            lowest_bits |= byte
            if byte < 0x80:
                at += 1
                field_end = at + (byte >> 1)
            else:
                at, field_end = _long_range(payload, at)
            key, at = payload[at:field_end], field_end
        byte = payload[at]
        if byte == _NULL:
            at += 1
        else:
            lowest_bits |= byte
            if byte < 0x80:
                at += 1
                field_end = at + (byte >> 1)
            elif (high := payload[at + 1]) < 0x80:
                at += 2
                field_end = at + ((byte & 0x7F | high << 7) >> 1)
            else:
                at, field_end = _long_range(payload, at)
            value, at = payload[at:field_end], field_end
        headers = b"" if at + 1 == end and payload[at] == 0 else _headers(payload, at, end)
        append((topic, partition, offset, timestamp, key, value, headers, timestamp_type, leader_epoch))
        at = end
    if at != len(payload) or lowest_bits & 1 or next_offset > last_offset + 1:
        raise ValueError(f"records that end at byte {at} of {len(payload)}, or a negative length")
    return rows


def _long_range(payload: bytes, at: int) -> tuple[int, int]:
    """Return the beginning and the end of a field whose length takes more bytes than the fast path reads."""
    length, at = decode_varint(payload, at)
    return at, at + length


def _long_timestamp(payload: bytes, at: int, base_timestamp: int) -> tuple[int, int]:
    delta, at = decode_varint(payload, at)
    timestamp = base_timestamp + delta
    if not _MIN_INT64 <= timestamp <= _MAX_INT64:
        raise ValueError(f"timestamp {timestamp}")
    return timestamp, at


def _headers(payload: bytes, at: int, end: int) -> bytes:
    """Return the header count and the headers, still encoded."""
    if not at < end <= len(payload):
        raise ValueError(f"fields that end at byte {at} of a record that ends at {end}")
    return payload[at:end]
