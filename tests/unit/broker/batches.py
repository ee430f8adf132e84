"""Batches as producers and coordinators write them."""

from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.control_records import build_end_txn_marker
from oncelog.protocol.records.record_batch import BatchHeader, NewRecord, build_batch, read_header


def batch(
    *values: bytes,
    key: bytes | None = b"k",
    timestamp: int = 1000,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    compression: Compression = Compression.NONE,
) -> bytearray:
    return build_batch(
        [NewRecord(timestamp, key, value) for value in values or (b"v",)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
        compression=compression,
    )


def marker(producer_id: int, epoch: int = 0, *, commit: bool, coordinator_epoch: int = 0) -> bytearray:
    return build_end_txn_marker(
        producer_id=producer_id,
        producer_epoch=epoch,
        commit=commit,
        coordinator_epoch=coordinator_epoch,
        timestamp=1000,
    )


def with_header(data: bytearray) -> tuple[memoryview, BatchHeader]:
    return memoryview(data), read_header(data)
