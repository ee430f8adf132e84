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

All but the last two rows are read off the 61 bytes and the CRC (``validate_header``). The walk over the records costs
about a microsecond per record in this language, so it is made where something depends on it (``conform_batch``):

* if the broker is configured to make it always;
* on a compacted topic, where a record without a key would be lost at the first cleaning;
* where the broker changes the batch (LogAppendTime, another codec), and so vouches for it;
* if a compressed batch counts more records than it has bytes (``counts_too_many``). An honest one can, but a lie about
  the count would move the log's end by up to 2³¹ with a hundred bytes. A batch that is not walked has at least a byte
  for each record that it counts.

A walk that finds the structure right names the records that are not accepted (``RejectedRecords``). What the header
alone cannot show is that max timestamp is the records' maximum: the walk corrects it in place, as Kafka does. A walk is
made in slices, since a batch may hold any amount of work (``oncelog.protocol.records.record_walk``).

Stricter than Kafka: bytes after the batch are refused where Kafka drops them; uncompressed records with wrong offset
deltas, "log append time" from a client, a delete horizon from a client, a transactional batch without a producer id and
a producer id without an epoch are refused where Kafka would store them; records that do not decompress are
INVALID_RECORD, not UNKNOWN_SERVER_ERROR; the headers of a record are limited in number. More lenient: epoch and
sequence mean nothing without a producer id, because clients (kafkajs, sarama) send 0 there. The sequence's
*continuity*, fencing and the size of a segment are the log's matter.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.compression import Compression, DecompressionBomb, iter_decompressed
from oncelog.protocol.records.recompression import BatchTooLarge, Recompression
from oncelog.protocol.records.record_batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptRecord,
    crc_is_valid,
    read_header,
)
from oncelog.protocol.records.record_walk import MAX_RECORD_ERRORS as MAX_RECORD_ERRORS
from oncelog.protocol.records.record_walk import RecordError as RecordError
from oncelog.protocol.records.record_walk import RecordRules, WorkBudget, walk_records
from oncelog.protocol.records.rewriting import stamp_max_timestamp

_ZSTD: Final = int(Compression.ZSTD)
_BROKER_ONLY_BITS: Final = CONTROL_BIT | DELETE_HORIZON_BIT
_BATCH_LENGTH_POSITION: Final = 8
_MAGIC_POSITION: Final = 16
_LEGACY_MIN_LENGTH: Final = 14
"""The least that may follow the length field in format version 0: CRC, magic, attributes and two null lengths."""
_LEAST_RECORD_SIZE: Final = 7
"""Length, attributes, two deltas, a null key, a null value and no headers, in a byte each."""


@dataclass(frozen=True, slots=True)
class RejectedRecords:
    """A batch whose structure is right and some of whose records the topic does not accept."""

    error: ErrorCode
    total: int
    """Number of records that are not accepted."""
    record_errors: list[RecordError]
    """The first ``MAX_RECORD_ERRORS`` of them."""


class BatchRules(NamedTuple):
    """How the records of a batch are walked, and what becomes of it."""

    records: RecordRules
    max_message_bytes: int
    max_decompressed_bytes: int
    compression: Compression | None = None
    """The topic's codec; None: the producer's."""
    log_append_time_ms: int | None = None
    """The time of all records; None: their own."""


Conformed: TypeAlias = tuple[memoryview, BatchHeader]
"""A batch as it will be stored, and its header."""


def validate_header(
    records: memoryview | None, *, max_message_bytes: int, allow_zstd: bool = True
) -> BatchHeader | ErrorCode:
    """Return the header of the one batch that ``records`` consists of, or the error that its header shows.

    ``allow_zstd`` is False below Produce version 7.
    """
    if records is None:
        return ErrorCode.INVALID_RECORD
    try:
        header = read_header(records)
    except CorruptRecord:
        return _unreadable_header_error(records)
    return _frame_error(records, header, max_message_bytes, allow_zstd) or _header_error(header) or header


def counts_too_many(header: BatchHeader) -> bool:
    """Return whether the number of records can be trusted only after a walk."""
    return header.records_count > header.batch_length - (HEADER_SIZE - LOG_OVERHEAD)


def conform_batch(
    batch: memoryview, header: BatchHeader, rules: BatchRules, budget: WorkBudget
) -> Generator[None, None, Conformed | ErrorCode | RejectedRecords]:
    """Walk the records of a batch (writable) with a valid header, and make it what its topic wants.

    Yields whenever the budget is used up.
    """
    blocks = iter_decompressed(header.compression, batch[HEADER_SIZE:], max_bytes=rules.max_decompressed_bytes)
    recompression = None
    if rules.compression is not None and rules.compression is not header.compression:
        recompression = Recompression(rules.compression, max_bytes=rules.max_message_bytes, budget=budget)
        blocks = recompression.pass_on(blocks)
    try:
        walked = yield from walk_records(blocks, header, rules.records, budget)
        if walked.rejected:
            error = ErrorCode.INVALID_TIMESTAMP if walked.has_rejected_timestamp else ErrorCode.INVALID_RECORD
            return RejectedRecords(error, walked.rejected, walked.record_errors)
        if recompression is not None:
            batch = memoryview(recompression.batch(header))
            header = read_header(batch)
    except (DecompressionBomb, BatchTooLarge):
        return ErrorCode.MESSAGE_TOO_LARGE
    except CorruptRecord:
        return ErrorCode.INVALID_RECORD
    if rules.log_append_time_ms is None:
        return batch, stamp_max_timestamp(batch, header, walked.max_timestamp, is_log_append_time=False)
    return batch, stamp_max_timestamp(batch, header, rules.log_append_time_ms, is_log_append_time=True)


def _unreadable_header_error(records: memoryview) -> ErrorCode:
    """Return Kafka's error: corruption if no batch can start so, no batch if the start is incomplete."""
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


def _frame_error(
    records: memoryview, header: BatchHeader, max_message_bytes: int, allow_zstd: bool
) -> ErrorCode | None:
    size = header.batch_length + LOG_OVERHEAD
    if size != len(records):
        return ErrorCode.INVALID_RECORD
    codec = header.attributes & COMPRESSION_MASK
    if codec >= _ZSTD and not (codec == _ZSTD and allow_zstd):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if header.base_offset != 0:
        return ErrorCode.INVALID_RECORD
    if size > max_message_bytes:
        return ErrorCode.MESSAGE_TOO_LARGE
    if not crc_is_valid(records, 0, header):
        return ErrorCode.CORRUPT_MESSAGE
    return None


def _header_error(header: BatchHeader) -> ErrorCode | None:
    count, attributes = header.records_count, header.attributes
    if count < 1 or header.last_offset_delta != count - 1:
        return ErrorCode.INVALID_RECORD
    size = header.batch_length - (HEADER_SIZE - LOG_OVERHEAD)
    if count * _LEAST_RECORD_SIZE > size and not attributes & COMPRESSION_MASK:
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
    return None
