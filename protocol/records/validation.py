"""What a client's produce batch must satisfy before a leader appends it, and which error Kafka gives if it does not.

Kinds of badness, in the order in which they are looked for, with Kafka's code for each:

===============================================================  ============================
no batch, a cut-off one, a legacy format, bytes after the batch  INVALID_RECORD
impossible length or format version; CRC                         CORRUPT_MESSAGE
codec unknown, or zstd in Produce before version 7               UNSUPPORTED_COMPRESSION_TYPE
base offset not 0                                                INVALID_RECORD
larger than the topic's ``max.message.bytes``                    MESSAGE_TOO_LARGE
records count < 1, not last offset delta + 1, or more than fit   INVALID_RECORD
a control batch, a delete horizon                                INVALID_RECORD
producer id, epoch, sequence, transactional bit disagree         INVALID_RECORD
timestamp out of the topic's bounds, or "log append time"        INVALID_TIMESTAMP
records (if walked): structure, offsets, null key if compacted   INVALID_RECORD
records (if walked): larger than allowed once decompressed       MESSAGE_TOO_LARGE
===============================================================  ============================

All but the last two rows are read off the 61 bytes and the CRC. The walk over the records costs about a microsecond per
record in this language, which is why ``full`` is the caller's choice; a compacted topic is always walked, since a null
key there would live for ever. What the header alone cannot show is that max timestamp is the records' maximum: the walk
corrects it in place, as Kafka does.

Stricter than Kafka: bytes after the batch are refused where Kafka drops them; uncompressed records with wrong offset
deltas, "log append time" from a client, a delete horizon from a client, a transactional batch without a producer id and
a producer id without an epoch are refused where Kafka would store them; records that do not decompress are
INVALID_RECORD, not UNKNOWN_SERVER_ERROR. More lenient: epoch and sequence mean nothing without a producer id, because
clients (kafkajs, sarama) send 0 there. The sequence's *continuity*, fencing and the size of a segment are the log's
matter.
"""

from typing import Final, NamedTuple

from protocol.errors import ErrorCode
from protocol.records.compression import Compression, DecompressionBomb
from protocol.records.record_batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptRecord,
    crc_is_valid,
    read_header,
    records_payload,
)
from protocol.records.rewriting import recompress, stamp_max_timestamp
from protocol.records.varint import decode_varint

_BROKER_ONLY_BITS: Final = CONTROL_BIT | DELETE_HORIZON_BIT
_BATCH_LENGTH_POSITION: Final = 8
_MAGIC_POSITION: Final = 16
_LEGACY_MIN_LENGTH: Final = 14
"""The least that may follow the length field in format version 0: CRC, magic, attributes and two null lengths."""
_LEAST_RECORD_SIZE: Final = 7
"""Length, attributes, two deltas, a null key, a null value and no headers, in a byte each."""
_MIN_INT64: Final = -(2**63)
_MAX_INT64: Final = 2**63 - 1


class _Walked(NamedTuple):
    """What the walk over the records has seen; records without a timestamp do not count for the two."""

    min_timestamp: int
    max_timestamp: int
    has_null_key: bool


def validate_produced(
    records: memoryview | None,
    *,
    max_message_bytes: int,
    now_ms: int,
    timestamp_before_max_ms: int,
    timestamp_after_max_ms: int,
    compacted: bool,
    full: bool,
    max_decompressed_bytes: int,
    log_append_time: bool = False,
    allow_zstd: bool = True,
) -> BatchHeader | ErrorCode:
    """The header of the one valid batch that ``records`` (writable) consists of, or what is wrong with it.

    ``log_append_time`` is the topic's timestamp type: the producer's timestamps are then not judged, since
    ``conform_to_topic`` replaces them. ``allow_zstd`` is False below Produce version 7.
    """
    if records is None:
        return ErrorCode.INVALID_RECORD
    try:
        header = read_header(records)
    except CorruptRecord:
        return _unreadable_header_error(records)
    error = _frame_error(records, header, max_message_bytes, allow_zstd) or _header_error(header)
    if error:
        return error
    earliest, latest = now_ms - timestamp_before_max_ms, now_ms + timestamp_after_max_ms
    if log_append_time:
        earliest, latest = _MIN_INT64, _MAX_INT64
    if full or compacted:
        return _validate_records(records, header, earliest, latest, compacted, max_decompressed_bytes)
    if not earliest <= header.max_timestamp <= latest and header.max_timestamp != NO_TIMESTAMP:
        return ErrorCode.INVALID_TIMESTAMP
    return header


def conform_to_topic(
    batch: memoryview,
    header: BatchHeader,
    *,
    compression: Compression | None,
    log_append_time_ms: int | None,
    max_message_bytes: int,
    max_decompressed_bytes: int,
) -> tuple[memoryview, BatchHeader] | ErrorCode:
    """A validated batch as the topic wants it: its codec (None: the producer's) and its timestamp type.

    The common topic wants neither, and gets the same two objects back.
    """
    if compression is not None and compression != header.attributes & COMPRESSION_MASK:
        try:
            batch = memoryview(recompress(batch, header, compression, max_decompressed_bytes=max_decompressed_bytes))
        except DecompressionBomb:
            return ErrorCode.MESSAGE_TOO_LARGE
        except CorruptRecord:
            return ErrorCode.INVALID_RECORD
        header = read_header(batch)
        if header.size > max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE
    if log_append_time_ms is not None:
        header = stamp_max_timestamp(batch, header, log_append_time_ms, is_log_append_time=True)
    return batch, header


def _unreadable_header_error(records: memoryview) -> ErrorCode:
    """Kafka takes bytes that cannot be the start of any batch as corruption, and an incomplete start as no batch."""
    if len(records) < LOG_OVERHEAD:
        return ErrorCode.INVALID_RECORD
    batch_length = int.from_bytes(records[_BATCH_LENGTH_POSITION:LOG_OVERHEAD], "big", signed=True)
    if batch_length < _LEGACY_MIN_LENGTH:
        return ErrorCode.CORRUPT_MESSAGE
    if len(records) <= _MAGIC_POSITION:
        return ErrorCode.INVALID_RECORD
    if records[_MAGIC_POSITION] > MAGIC:
        return ErrorCode.CORRUPT_MESSAGE
    if records[_MAGIC_POSITION] < MAGIC or len(records) < LOG_OVERHEAD + batch_length:
        return ErrorCode.INVALID_RECORD
    return ErrorCode.CORRUPT_MESSAGE


def _frame_error(records: memoryview, header: BatchHeader, max_message_bytes: int, allow_zstd: bool) -> ErrorCode:
    if header.size != len(records):
        return ErrorCode.INVALID_RECORD
    codec = header.attributes & COMPRESSION_MASK
    if codec >= Compression.ZSTD and not (codec == Compression.ZSTD and allow_zstd):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if header.base_offset != 0:
        return ErrorCode.INVALID_RECORD
    if header.size > max_message_bytes:
        return ErrorCode.MESSAGE_TOO_LARGE
    if not crc_is_valid(records, 0, header):
        return ErrorCode.CORRUPT_MESSAGE
    return ErrorCode.NONE


def _header_error(header: BatchHeader) -> ErrorCode:
    count, attributes = header.records_count, header.attributes
    if count < 1 or header.last_offset_delta != count - 1:
        return ErrorCode.INVALID_RECORD
    if count * _LEAST_RECORD_SIZE > header.size - HEADER_SIZE and not attributes & COMPRESSION_MASK:
        return ErrorCode.INVALID_RECORD
    if attributes & _BROKER_ONLY_BITS:
        return ErrorCode.INVALID_RECORD
    if header.producer_id > NO_PRODUCER_ID:
        if header.producer_epoch < 0 or header.base_sequence < 0:
            return ErrorCode.INVALID_RECORD
    elif header.producer_id != NO_PRODUCER_ID or attributes & TRANSACTIONAL_BIT:
        return ErrorCode.INVALID_RECORD
    if attributes & LOG_APPEND_TIME_BIT:
        return ErrorCode.INVALID_TIMESTAMP
    return ErrorCode.NONE


def _validate_records(
    records: memoryview, header: BatchHeader, earliest: int, latest: int, compacted: bool, max_decompressed_bytes: int
) -> BatchHeader | ErrorCode:
    try:
        payload = records_payload(records, 0, header, max_decompressed_bytes=max_decompressed_bytes)
        walked = _walk(payload, header)
    except DecompressionBomb:
        return ErrorCode.MESSAGE_TOO_LARGE
    except (IndexError, ValueError):
        return ErrorCode.INVALID_RECORD
    if walked.min_timestamp < earliest or walked.max_timestamp > latest:
        return ErrorCode.INVALID_TIMESTAMP
    if compacted and walked.has_null_key:
        return ErrorCode.INVALID_RECORD
    return stamp_max_timestamp(records, header, walked.max_timestamp, is_log_append_time=False)


def _walk(payload: bytes, header: BatchHeader) -> _Walked:
    """Visit every record without taking its key or value; IndexError or ValueError if the structure is broken."""
    base_timestamp = header.base_timestamp
    min_timestamp, max_timestamp, has_null_key = _MAX_INT64, NO_TIMESTAMP, False
    at = 0
    for expected_delta in range(header.records_count):
        length, at = decode_varint(payload, at)
        end = at + length
        timestamp, at = decode_varint(payload, at + 1)
        timestamp += base_timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if timestamp < min_timestamp and timestamp != NO_TIMESTAMP:
            min_timestamp = timestamp
        offset_delta, at = decode_varint(payload, at)
        if offset_delta != expected_delta:
            raise ValueError(f"offset delta {offset_delta} of record {expected_delta}")
        key_length, at = decode_varint(payload, at)
        if key_length >= 0:
            at += key_length
        else:
            has_null_key = True
        value_length, at = decode_varint(payload, at)
        if value_length > 0:
            at += value_length
        at = _skip_headers(payload, at) if payload[at] else at + 1
        if at != end:
            raise ValueError(f"record {expected_delta} ends {at - end} bytes from its end")
    if at != len(payload):
        raise ValueError(f"{len(payload) - at} bytes after the last record")
    if min_timestamp < _MIN_INT64 or max_timestamp > _MAX_INT64:
        raise ValueError("a timestamp beyond 64 bits")
    return _Walked(min_timestamp, max_timestamp, has_null_key)


def _skip_headers(payload: bytes, at: int) -> int:
    count, at = decode_varint(payload, at)
    if count < 0:
        raise ValueError(f"a header count of {count}")
    for _ in range(count):
        name_length, at = decode_varint(payload, at)
        if name_length < 0:
            raise ValueError("a header without a name")
        value_length, at = decode_varint(payload, at + name_length)
        at += max(value_length, 0)
    return at
