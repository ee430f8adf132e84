"""Record batches, format version 2 ("magic 2"): what producers send, logs keep and consumers get, byte for byte.

A batch is a header of 61 bytes and then ``records_count`` records, compressed as one piece unless the codec is NONE::

    position  field                   type     notes
    0         base offset             int64    a broker assigns it: not under the CRC
    8         batch length            int32    of all that follows, so the whole batch is 12 bytes longer
    12        partition leader epoch  int32    a broker assigns it: not under the CRC
    16        magic                   int8     2
    17        crc                     uint32   CRC-32C of everything from the attributes to the end of the batch
    21        attributes              int16    0-2 codec, 3 append time, 4 transactional, 5 control, 6 delete horizon
    23        last offset delta       int32    also of the last sequence; kept when compaction removes that record
    27        base timestamp          int64    with a delete horizon: that horizon
    35        max timestamp           int64    with log append time: the time of every record
    43        producer id             int64    -1: not idempotent, and then epoch and sequence mean nothing
    51        producer epoch          int16
    53        base sequence           int32    -1 in control batches
    57        records count           int32    0 when compaction removed all records of a producer's last batch

    record = length varint, attributes int8 (unused), timestamp delta varint, offset delta varint,
             key length varint (-1 null), key, value length varint (-1 null), value,
             header count varint, {key length varint, key, value length varint (-1 null), value}*

Produce, fetch and recovery read headers only (``read_header``, ``iter_batches``) and patch the two fields outside the
CRC (``patch_offset_and_epoch``). ``iter_records`` is for readers of the records inside: a batch that arrives there may
be hostile, since a valid CRC says nothing about its records, so every length in it is doubted and the first
contradiction is a ``CorruptRecord``.
"""

import struct
from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

from oncelog.protocol.records.checksum import crc32c
from oncelog.protocol.records.compression import Compression, compress, decompress, decompress_in_steps
from oncelog.protocol.records.compression import CorruptRecord as CorruptRecord
from oncelog.protocol.records.varint import Buffer, decode_varint, encode_varint

HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12
MAGIC: Final = 2
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21

_MAX_INT32: Final = 2**31 - 1
_MIN_INT64: Final = -(2**63)
_MAX_INT64: Final = 2**63 - 1

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_UNCHECKED_HEADER: Final = struct.Struct(">qiibI")
"""What the CRC does not cover; it is the last of these fields."""
_CHECKED_HEADER: Final = struct.Struct(">hiqqqhii")
_CRC: Final = struct.Struct(">I")
_BASE_OFFSET: Final = struct.Struct(">q")
_PARTITION_LEADER_EPOCH: Final = struct.Struct(">i")
_PARTITION_LEADER_EPOCH_POSITION: Final = 12
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_POSITION: Final = 43

_new_tuple: Final = tuple.__new__


class BatchHeader(NamedTuple):
    """The 61 bytes as numbers, in their order on the wire."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> Compression:
        """ValueError for the codes 5 to 7; validation has refused those, but a corrupt log may hold them."""
        return Compression(self.attributes & COMPRESSION_MASK)

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID


class Record(NamedTuple):
    """A record as it is read: absolute offset and timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class NewRecord(NamedTuple):
    """A record to be written: its place in the sequence gives its offset."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def increment_sequence(sequence: int, by: int) -> int:
    """Add to a sequence, which has 31 bits and wraps to 0."""
    return (sequence + by) & _MAX_INT32


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at ``position``. The rest of the batch may be missing."""
    try:
        header = _new_tuple(BatchHeader, _HEADER.unpack_from(buffer, position))
    except struct.error as error:
        raise CorruptRecord("a batch header is cut off") from error
    if header.magic != MAGIC:
        raise CorruptRecord(f"a batch of format version {header.magic}")
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptRecord(f"a batch length of {header.batch_length}, less than a header")
    return header


def peek_transactional_producer(batch: memoryview) -> tuple[int, int, int] | None:
    """Return producer id, epoch and base sequence of bytes that say that they are a transactional batch, else None.

    Nothing is validated.
    """
    if len(batch) < HEADER_SIZE or not batch[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT:
        return None
    return _PRODUCER.unpack_from(batch, _PRODUCER_POSITION)


def peek_sequenced(batch: Buffer | list[Buffer] | None) -> BatchHeader | None:
    """Return the header of bytes that say that they are a batch of an idempotent producer, else None.

    Only the checksum is validated.
    """
    buffer = b"".join(batch) if isinstance(batch, list) else batch
    if buffer is None or len(buffer) < HEADER_SIZE:
        return None
    header = _new_tuple(BatchHeader, _HEADER.unpack_from(buffer, 0))
    if header.magic != MAGIC or not header.has_producer_id or header.base_sequence < 0:
        return None
    return header if crc_is_valid(buffer, 0, header) else None


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield positions and headers of the complete batches; an incomplete one at the end is left out."""
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        following = position + LOG_OVERHEAD + header.batch_length
        if following > end:
            return
        yield position, header
        position = following


def crc_is_valid(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Return whether the CRC is right; False as well if the buffer ends before the batch does."""
    end = position + LOG_OVERHEAD + header.batch_length
    return end <= len(buffer) and header.crc == crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end])


def patch_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: int, partition_leader_epoch: int
) -> None:
    """Stamp what the leader assigns. Both fields are outside the CRC, so the rest stays as the producer wrote it."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _PARTITION_LEADER_EPOCH.pack_into(buffer, position + _PARTITION_LEADER_EPOCH_POSITION, partition_leader_epoch)


def records_payload(buffer: Buffer, position: int, header: BatchHeader, *, max_decompressed_bytes: int) -> bytes:
    """Return the records of a batch, decompressed and still encoded."""
    compression, records = _compressed_records(buffer, position, header)
    return decompress(compression, records, max_bytes=max_decompressed_bytes)


def records_payload_in_steps(
    buffer: Buffer, position: int, header: BatchHeader, *, max_decompressed_bytes: int
) -> Generator[None, None, bytes]:
    """Return ``records_payload`` in steps: a small batch may expand to hundreds of megabytes."""
    compression, records = _compressed_records(buffer, position, header)
    return (yield from decompress_in_steps(compression, records, max_bytes=max_decompressed_bytes))


def _compressed_records(buffer: Buffer, position: int, header: BatchHeader) -> tuple[Compression, memoryview]:
    end = position + header.size
    if end > len(buffer):
        raise CorruptRecord(f"a batch of {header.size} bytes where {len(buffer) - position} are left")
    try:
        compression = header.compression
    except ValueError as error:
        raise CorruptRecord(str(error)) from error
    return compression, memoryview(buffer)[position + HEADER_SIZE : end]


def iter_records(
    buffer: Buffer, position: int, header: BatchHeader, *, max_decompressed_bytes: int
) -> Iterator[Record]:
    """Yield the records inside, in order. Raises CorruptRecord at the first that contradicts itself or the header."""
    if header.records_count == 0:
        return
    if header.records_count < 0:
        raise CorruptRecord(f"a records count of {header.records_count}")
    payload = records_payload(buffer, position, header, max_decompressed_bytes=max_decompressed_bytes)
    try:
        yield from _decode_records(payload, header)
    except (IndexError, ValueError) as error:
        raise CorruptRecord(f"in the batch at offset {header.base_offset}: {error}") from error


def _decode_records(payload: bytes, header: BatchHeader) -> Iterator[Record]:
    """Yield the records. Raises IndexError or ValueError if they are broken.

    A key or value whose length exceeds the record is found at the latest where the record's end is compared.
    """
    append_time = header.max_timestamp if header.is_log_append_time else None
    base_offset, base_timestamp, last_offset_delta = header.base_offset, header.base_timestamp, header.last_offset_delta
    previous_delta = -1
    at = 0
    for _ in range(header.records_count):
        length, at = decode_varint(payload, at)
        end = at + length
        timestamp, at = decode_varint(payload, at + 1)
        offset_delta, at = decode_varint(payload, at)
        key_length, at = decode_varint(payload, at)
        key = None
        if key_length >= 0:
            key = payload[at : at + key_length]
            at += key_length
        value_length, at = decode_varint(payload, at)
        value = None
        if value_length >= 0:
            value = payload[at : at + value_length]
            at += value_length
        headers, at = ([], at + 1) if payload[at] == 0 else _decode_headers(payload, at)
        if at != end or end > len(payload):
            raise ValueError(f"a record of {length} bytes whose fields end {at - end} bytes from its end")
        if not previous_delta < offset_delta <= last_offset_delta:
            raise ValueError(f"offset delta {offset_delta} after {previous_delta} of {last_offset_delta}")
        previous_delta = offset_delta
        timestamp = timestamp + base_timestamp if append_time is None else append_time
        if not _MIN_INT64 <= timestamp <= _MAX_INT64:
            raise ValueError(f"timestamp {timestamp} at offset delta {offset_delta}")
        yield Record(base_offset + offset_delta, timestamp, key, value, headers)
    if at != len(payload):
        raise ValueError(f"{len(payload) - at} bytes after the last record")


def _decode_bytes(payload: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = decode_varint(payload, at)
    if length < 0:
        return None, at
    end = at + length
    return payload[at:end], end


def _decode_headers(payload: bytes, at: int) -> tuple[list[tuple[str, bytes | None]], int]:
    """Return the headers and the position after them.

    Names that are not UTF-8 survive a round trip (PEP 383), so that compaction changes nothing.
    """
    count, at = decode_varint(payload, at)
    if count < 0:
        raise ValueError(f"a header count of {count}")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _decode_bytes(payload, at)
        if name is None:
            raise ValueError("a header without a name")
        value, at = _decode_bytes(payload, at)
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return headers, at


def build_batch(
    records: Sequence[NewRecord],
    *,
    compression: Compression = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """Return one batch as a producer sends it; the base timestamp is the first record's."""
    base_timestamp = records[0].timestamp
    payload = b"".join([encode_record(delta, base_timestamp, record) for delta, record in enumerate(records)])
    header = (
        0,
        0,
        NO_PARTITION_LEADER_EPOCH,
        MAGIC,
        0,
        compression | (TRANSACTIONAL_BIT if is_transactional else 0) | (CONTROL_BIT if is_control else 0),
        len(records) - 1,
        base_timestamp,
        base_timestamp if len(records) == 1 else max([record.timestamp for record in records]),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return assemble_batch(header, compress(compression, payload) if compression else payload)


def batch_of_encoded(
    records: Sequence[bytes],
    *,
    timestamp: int,
    compression: Compression = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    is_transactional: bool = False,
) -> bytearray:
    """Return one batch of encoded records, whose offset deltas are their positions, all of the same timestamp."""
    attributes = compression | (TRANSACTIONAL_BIT if is_transactional else 0)
    count = len(records)
    header = (
        *(0, 0, NO_PARTITION_LEADER_EPOCH, MAGIC, 0),
        *(attributes, count - 1, timestamp, timestamp, producer_id, producer_epoch, NO_SEQUENCE, count),
    )
    return assemble_batch(header, compress(compression, b"".join(records)))


def assemble_batch(header: Sequence[int], compressed_records: Buffer) -> bytearray:
    """Return the fields of a BatchHeader and what follows them as one batch; length and CRC are computed here."""
    base_offset, _, leader_epoch, magic, _, *checked_fields = header
    checked = _CHECKED_HEADER.pack(*checked_fields) + compressed_records
    length = ATTRIBUTES_POSITION - LOG_OVERHEAD + len(checked)
    return bytearray(_UNCHECKED_HEADER.pack(base_offset, length, leader_epoch, magic, crc32c(checked)) + checked)


def stamp_crc(batch: bytearray | memoryview) -> int:
    """Compute the CRC of the one batch that ``batch`` holds, and put it there."""
    crc = crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])
    _CRC.pack_into(batch, CRC_POSITION, crc)
    return crc


def stamp_header(batch: bytearray | memoryview, header: BatchHeader) -> BatchHeader:
    """Put ``header`` over the one that ``batch`` begins with; the CRC is computed here."""
    _HEADER.pack_into(batch, 0, *header)
    return header._replace(crc=stamp_crc(batch))


def encode_record(offset_delta: int, base_timestamp: int, record: NewRecord) -> bytes:
    """Return one record as it stands in the payload."""
    timestamp, key, value, headers = record
    timestamp_delta = timestamp - base_timestamp
    body = b"".join(
        (
            # Attributes, which no record has, and the deltas, which the first record does not have either.
            b"\0" + encode_varint(timestamp_delta) + encode_varint(offset_delta)
            if timestamp_delta or offset_delta
            else b"\0\0\0",
            b"\1" if key is None else encode_varint(len(key)),
            key or b"",
            b"\1" if value is None else encode_varint(len(value)),
            value or b"",
            _encode_headers(headers) if headers else b"\0",
        )
    )
    return encode_varint(len(body)) + body


def _encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        encoded_name = name.encode("utf-8", "surrogateescape")
        parts += (encode_varint(len(encoded_name)), encoded_name)
        parts += (b"\1",) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)
