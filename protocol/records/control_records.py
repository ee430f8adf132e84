"""Control records: what a coordinator writes between the records of a transaction's partitions to end it there.

A control batch holds one record. Its key is two int16, version (0) and type; for the two types below its value is the
version (0, int16) and the epoch of the coordinator that decided (int32). Versions above 0 may only append fields, so
they are read as version 0.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from oncelog.protocol.records.record_batch import (
    CONTROL_BIT,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptRecord,
    assemble_batch,
    iter_records,
)
from oncelog.protocol.records.varint import Buffer

_KEY: Final = struct.Struct(">hh")
_END_TXN_VALUE: Final = struct.Struct(">hi")
_END_TXN_RECORD: Final = struct.Struct(">bbbbbhhbhib")
"""The whole record of a marker: its lengths and deltas are varints of one byte, and always the same."""
_RECORD_LENGTH: Final = 2 * (_END_TXN_RECORD.size - 1)
_KEY_LENGTH: Final = 2 * _KEY.size
_VALUE_LENGTH: Final = 2 * _END_TXN_VALUE.size
"""As varints, zig-zagged. The record's own length does not count itself."""
_VERSION: Final = 0
_MAX_DECOMPRESSED_BYTES: Final = 64 * 1024
"""Far above any control batch; they are not compressed, but nothing forbids it."""


class ControlRecordType(IntEnum):
    """The types that end a transaction. KRaft's own types (2 and above) never occur in these logs."""

    ABORT = 0
    COMMIT = 1


class EndTxnMarker(NamedTuple):
    """The end of a producer's transaction on one partition."""

    commit: bool
    coordinator_epoch: int


def build_end_txn_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    coordinator_epoch: int,
    timestamp: int,
) -> bytearray:
    """Return the control batch that commits or aborts what the producer wrote to a partition in this transaction."""
    control_type = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    record = _END_TXN_RECORD.pack(
        *(_RECORD_LENGTH, 0, 0, 0, _KEY_LENGTH, _VERSION, control_type),
        *(_VALUE_LENGTH, _VERSION, coordinator_epoch, 0),
    )
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    header = (
        *(0, 0, NO_PARTITION_LEADER_EPOCH, MAGIC, 0),
        *(attributes, 0, timestamp, timestamp, producer_id, producer_epoch, NO_SEQUENCE, 1),
    )
    return assemble_batch(header, record)


def parse_end_txn_marker(buffer: Buffer, position: int, header: BatchHeader) -> EndTxnMarker | None:
    """Return the marker of a control batch; None if compaction has emptied the batch and removed the transaction."""
    records = list(iter_records(buffer, position, header, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES))
    if not records:
        return None
    control_type = parse_control_record_type(records[0].key)
    value = records[0].value
    if value is None or len(value) < _END_TXN_VALUE.size:
        raise CorruptRecord("the value of an end-transaction marker is too short")
    version, coordinator_epoch = _END_TXN_VALUE.unpack_from(value)
    if version < _VERSION:
        raise CorruptRecord(f"an end-transaction marker of version {version}")
    return EndTxnMarker(commit=control_type is ControlRecordType.COMMIT, coordinator_epoch=coordinator_epoch)


def parse_control_record_type(key: bytes | None) -> ControlRecordType:
    """Return the type in a control record's key. Raises CorruptRecord for one that does not belong in these logs."""
    if key is None or len(key) < _KEY.size:
        raise CorruptRecord("the key of a control record is too short")
    version, control_type = _KEY.unpack_from(key)
    if version < _VERSION:
        raise CorruptRecord(f"a control record of version {version}")
    try:
        return ControlRecordType(control_type)
    except ValueError as error:
        raise CorruptRecord(str(error)) from error
