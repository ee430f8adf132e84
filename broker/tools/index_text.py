"""The small files beside a segment as text, a line for each entry: indexes, producer snapshots, checkpoints.

The bytes are read through ``construct``, from descriptions of their own, so that what is shown does not depend on the
code that wrote them (``oncelog.broker.storage`` has the layouts in words). What is wrong becomes a ``Complaint`` among
the lines.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from construct import Construct, ConstructError, Int16sb, Int32sb, Int32ub, Int64sb, Struct

from oncelog.broker.storage.checkpoints import decode_checkpoint
from oncelog.broker.tools.segment_text import Complaint, Lines
from oncelog.protocol.internal.producer_snapshot import ProducerEntry, ProducerSnapshot
from oncelog.protocol.records.checksum import crc32c
from oncelog.protocol.reference import parse

_OFFSET_ENTRY: Final = Struct("relative_offset" / Int32sb, "position" / Int32sb)
_TIME_ENTRY: Final = Struct("timestamp" / Int64sb, "relative_offset" / Int32sb)
_TRANSACTION_ENTRY: Final = Struct(
    "version" / Int16sb,
    "producer_id" / Int64sb,
    "first_offset" / Int64sb,
    "last_offset" / Int64sb,
    "last_stable_offset" / Int64sb,
)
_SNAPSHOT_PREFIX: Final = Struct("version" / Int16sb, "crc" / Int32ub)
_SNAPSHOT_VERSION: Final = 1
_EPOCH_FIELDS: Final = 2
_NONE: Final = -1

LastOffsetAt = Callable[[int], int | None]
"""The last offset of the batch that begins at a position of the segment; None if none does."""


def dump_offset_index(name: str, data: bytes, base_offset: int, last_offset_at: LastOffsetAt | None) -> Lines:
    """Yield the lines of an ``.index``; compare its entries with the segment if that is at hand."""
    yield from _complain_about_rest(name, data, _OFFSET_ENTRY)
    previous = None
    for entry in _entries(data, _OFFSET_ENTRY):
        if previous is not None and entry.relative_offset == 0:
            return  # Kafka preallocates the file of a segment that it writes to: the rest is zeros.
        offset = base_offset + entry.relative_offset
        yield f"offset: {offset} position: {entry.position}"
        if previous is not None and (entry.relative_offset <= previous[0] or entry.position <= previous[1]):
            yield Complaint(f"{name}: entries do not ascend")
        if last_offset_at is not None and (found := last_offset_at(entry.position)) != offset:
            yield Complaint(f"{name}: index offset {offset}, log offset {'none' if found is None else found}")
        previous = (entry.relative_offset, entry.position)


def dump_time_index(name: str, data: bytes, base_offset: int) -> Lines:
    """Yield the lines of a ``.timeindex``."""
    yield from _complain_about_rest(name, data, _TIME_ENTRY)
    previous = None
    for entry in _entries(data, _TIME_ENTRY):
        if previous is not None and entry.timestamp == entry.relative_offset == 0:
            return
        yield f"timestamp: {entry.timestamp} offset: {base_offset + entry.relative_offset}"
        if previous is not None and (entry.timestamp <= previous[0] or entry.relative_offset < previous[1]):
            yield Complaint(f"{name}: entries do not ascend")
        previous = (entry.timestamp, entry.relative_offset)


def dump_transaction_index(name: str, data: bytes) -> Lines:
    """Yield the lines of a ``.txnindex``."""
    yield from _complain_about_rest(name, data, _TRANSACTION_ENTRY)
    previous = _NONE
    for entry in _entries(data, _TRANSACTION_ENTRY):
        yield (
            f"version: {entry.version} producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )
        if entry.last_offset <= previous:
            yield Complaint(f"{name}: entries do not ascend")
        previous = entry.last_offset


def dump_snapshot(name: str, data: bytes) -> Lines:
    """Yield the lines of a producer ``.snapshot``."""
    try:
        prefix = _SNAPSHOT_PREFIX.parse(data)
        if prefix.version != _SNAPSHOT_VERSION:
            yield Complaint(f"{name}: version {prefix.version}")
            return
        if prefix.crc != crc32c(data[_SNAPSHOT_PREFIX.sizeof() :]):
            yield Complaint(f"{name}: the CRC does not match")
        snapshot = parse(ProducerSnapshot, _SNAPSHOT_VERSION, data[2:])
    except ConstructError as error:
        yield Complaint(f"{name}: {error}")
        return
    yield from map(_producer_line, snapshot.producer_entries)


def _producer_line(entry: ProducerEntry) -> str:
    open_since = entry.current_txn_first_offset
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch} "
        f"currentTxnFirstOffset: {'None' if open_since == _NONE else open_since} lastTimestamp: {entry.timestamp}"
    )
    if entry.last_offset == _NONE:
        return line
    first_sequence = (entry.last_sequence - entry.offset_delta) & 0x7FFFFFFF
    return (
        f"{line} firstSequence: {first_sequence} lastSequence: {entry.last_sequence} lastOffset: {entry.last_offset} "
        f"offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp}"
    )


def dump_epochs(name: str, data: bytes) -> Lines:
    """Yield the lines of a ``leader-epoch-checkpoint``."""
    entries = decode_checkpoint(data, _EPOCH_FIELDS)
    if entries is None:
        yield Complaint(f"{name}: not a checkpoint of epochs and offsets")
        return
    for epoch, start_offset in entries:
        yield f"epoch: {epoch} startOffset: {start_offset}"


def _entries(data: bytes, layout: Construct) -> Iterator[Any]:
    size = layout.sizeof()
    for start in range(0, len(data) - size + 1, size):
        yield layout.parse(data[start : start + size])


def _complain_about_rest(name: str, data: bytes, layout: Construct) -> Lines:
    rest = len(data) % layout.sizeof()
    if rest:
        yield Complaint(f"{name}: {rest} bytes after the last entry")
