"""Changes that a broker makes to a batch which a producer has written, beyond stamping offset and leader epoch.

Everything here is under the CRC, so the CRC is computed anew. Records are not re-encoded where their encoding can stay:
another codec means decompress and compress; another timestamp type is a bit and a number in the header. Only
compaction takes records apart and puts the retained ones together again.
"""

from collections.abc import Sequence

from protocol.records.compression import Compression, compress
from protocol.records.record_batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    NewRecord,
    Record,
    assemble_batch,
    encode_record,
    records_payload,
    stamp_header,
)
from protocol.records.varint import Buffer


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


def recompress(
    batch: Buffer, header: BatchHeader, compression: Compression, *, max_decompressed_bytes: int
) -> bytearray:
    """The same records in another codec. CorruptRecord if they do not decompress."""
    payload = records_payload(batch, 0, header, max_decompressed_bytes=max_decompressed_bytes)
    attributes = header.attributes & ~COMPRESSION_MASK | compression
    return assemble_batch(header._replace(attributes=attributes), compress(compression, payload))


def build_retained_batch(
    original: BatchHeader, retained: Sequence[Record], *, delete_horizon_ms: int | None = None
) -> bytearray:
    """What compaction leaves of a batch of which only ``retained`` are kept.

    Offsets, sequences and the last offset delta stay, since they are what a recovering leader knows of the producer;
    without records the batch is just that header. A delete horizon (when tombstones and markers may go) is stored as
    the base timestamp.
    """
    attributes = original.attributes if retained else original.attributes & ~COMPRESSION_MASK
    base_timestamp = retained[0].timestamp if retained else NO_TIMESTAMP
    max_timestamp = original.max_timestamp
    if delete_horizon_ms is None and original.has_delete_horizon:
        delete_horizon_ms = original.base_timestamp
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
    if retained and not original.is_log_append_time:
        max_timestamp = max(record.timestamp for record in retained)
    header = original._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        records_count=len(retained),
    )
    payload = b"".join(
        encode_record(offset - original.base_offset, base_timestamp, NewRecord(timestamp, key, value, headers))
        for offset, timestamp, key, value, headers in retained
    )
    return assemble_batch(header, compress(header.compression, payload))
