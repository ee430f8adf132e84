"""Finding offsets by time, for ListOffsets. Rare, so it walks records where a batch's header is not enough."""

from collections.abc import Iterable, Iterator
from logging import getLogger
from typing import Final, NamedTuple

from broker.storage.batch_scan import ScannedBatch
from broker.storage.log_segment import LogSegment
from protocol.records.record_batch import NO_TIMESTAMP, CorruptRecord, Record, iter_records

_MAX_DECOMPRESSED_BYTES: Final = 256 << 20

_log = getLogger(__name__)


class FoundOffset(NamedTuple):
    """The record that a search found."""

    timestamp: int
    offset: int
    leader_epoch: int
    """Of its batch; -1 if that has none."""


def find_by_timestamp(segments: Iterable[LogSegment], timestamp: int, start_offset: int) -> FoundOffset | None:
    """The first record at or after ``start_offset`` that is not older than ``timestamp``."""
    for segment in segments:
        if segment.max_timestamp().timestamp < timestamp:
            continue
        not_before = segment.time_index.lookup(timestamp).offset
        for batch in segment.scan_from(max(not_before, start_offset)):
            if batch.header.max_timestamp >= timestamp:
                for record in _records(batch):
                    if record.timestamp >= timestamp and record.offset >= start_offset:
                        return _found(batch, record)
    return None


def find_max_timestamp(segments: Iterable[LogSegment]) -> FoundOffset | None:
    """The first record with the largest timestamp of all; None if none has one."""
    segment = max(segments, key=lambda segment: segment.max_timestamp().timestamp)
    largest, offset = segment.max_timestamp()
    if largest == NO_TIMESTAMP:
        return None
    for batch in segment.scan_from(offset):
        for record in _records(batch):
            if record.timestamp == largest:
                return _found(batch, record)
    return None


def _found(batch: ScannedBatch, record: Record) -> FoundOffset:
    return FoundOffset(record.timestamp, record.offset, batch.header.partition_leader_epoch)


def _records(batch: ScannedBatch) -> Iterator[Record]:
    """The records of a batch; of one that is broken inside, one record that stands for all."""
    try:
        yield from iter_records(batch.buffer, batch.at, batch.header, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES)
    except CorruptRecord as error:
        header = batch.header
        _log.warning("the batch at offset %d is broken inside: %s", header.base_offset, error)
        yield Record(header.base_offset, header.max_timestamp, None, None, [])
