"""A ``.log`` file as text: a line for each batch and, if wanted, one for each record, as Kafka's dump tool writes them.

The file is read batch by batch and never written. What is wrong with it becomes a ``Complaint`` among the lines; after
a batch whose header cannot be read there is no telling where the next one begins, so that one is the last.
"""

from collections.abc import Iterator
from typing import BinaryIO, Final, TypeAlias

from oncelog.broker.tools.internal_records import RecordDecoder
from oncelog.protocol.printable import one_line
from oncelog.protocol.records.control_records import parse_control_record_type, parse_end_txn_marker
from oncelog.protocol.records.record_batch import (
    HEADER_SIZE,
    NO_SEQUENCE,
    BatchHeader,
    CorruptRecord,
    Record,
    crc_is_valid,
    increment_sequence,
    iter_records,
    read_header,
)

_MAX_DECOMPRESSED_BYTES: Final = 1024 * 1024 * 1024


class Complaint(str):
    """A line that says that something is wrong with a file."""

    __slots__ = ()


Lines: TypeAlias = Iterator[str]


def iter_file_batches(file: BinaryIO) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """Yield position, header and bytes of each whole batch. Raise ``CorruptRecord`` at an invalid header."""
    position = 0
    while len(head := file.read(HEADER_SIZE)) == HEADER_SIZE:
        header = read_header(head)
        batch = head + file.read(header.size - HEADER_SIZE)
        if len(batch) < header.size:
            return
        yield position, header, batch
        position += header.size


def dump_segment(file: BinaryIO, name: str, size: int, decode: RecordDecoder | None) -> Lines:
    """Yield the lines of a segment; those of its records, too, with ``decode``."""
    end = next_offset = 0
    try:
        for position, header, batch in iter_file_batches(file):
            if header.base_offset < next_offset:
                yield Complaint(f"{name}: offset {header.base_offset} at position {position} after {next_offset - 1}")
            yield from _dump_batch(position, header, batch, decode)
            next_offset, end = header.next_offset, position + header.size
    except CorruptRecord as error:
        yield Complaint(f"{name}, position {end}: {error}")
    if size > end:
        yield Complaint(f"Found {size - end} invalid bytes at the end of {name}")


def _dump_batch(position: int, header: BatchHeader, batch: bytes, decode: RecordDecoder | None) -> Lines:
    is_valid = crc_is_valid(batch, 0, header)
    line = _batch_line(position, header, is_valid)
    yield line if is_valid else Complaint(line)
    if decode is None or not is_valid:
        return
    try:
        for record in iter_records(batch, 0, header, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES):
            shown = _marker(batch, header, record) if header.is_control else _contents(record, decode)
            yield f"{_record_line(header, record)} {shown}"
    except CorruptRecord as error:
        yield Complaint(f"| {error}")


def _flag(value: bool) -> str:
    return str(value).lower()


def _timestamp_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _batch_line(position: int, header: BatchHeader, is_valid: bool) -> str:
    horizon = f"OptionalLong[{header.base_timestamp}]" if header.has_delete_horizon else "OptionalLong.empty"
    try:
        codec = header.compression.name.lower()
    except ValueError:
        codec = "unknown"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.records_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.partition_leader_epoch} isTransactional: {_flag(header.is_transactional)} "
        f"isControl: {_flag(header.is_control)} deleteHorizonMs: {horizon} position: {position} "
        f"{_timestamp_type(header)}: {header.max_timestamp} size: {header.size} magic: {header.magic} "
        f"compresscodec: {codec} crc: {header.crc} isvalid: {_flag(is_valid)}"
    )


def _record_line(header: BatchHeader, record: Record) -> str:
    delta = record.offset - header.base_offset
    has_sequence = header.base_sequence != NO_SEQUENCE
    sequence = increment_sequence(header.base_sequence, delta) if has_sequence else NO_SEQUENCE
    names = one_line(",".join(name for name, _ in record.headers))
    return (
        f"| offset: {record.offset} {_timestamp_type(header)}: {record.timestamp} keySize: {_size(record.key)} "
        f"valueSize: {_size(record.value)} sequence: {sequence} headerKeys: [{names}]"
    )


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _marker(batch: bytes, header: BatchHeader, record: Record) -> str:
    marker = parse_end_txn_marker(batch, 0, header)
    assert marker is not None, "a batch with a record has a marker"
    return f"endTxnMarker: {parse_control_record_type(record.key).name} coordinatorEpoch: {marker.coordinator_epoch}"


def _contents(record: Record, decode: RecordDecoder) -> str:
    key, value = decode(record)
    shown = [f"key: {one_line(key)}"] if record.key is not None else []
    return " ".join([*shown, f"payload: {one_line(value)}"])
