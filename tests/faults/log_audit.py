"""What the bytes of one partition's log say by themselves, whatever clients saw. Pure.

Offsets have no gaps and leader epochs never fall; every batch has its checksum. A producer's batches follow each other
without a gap or a repetition, in each of its epochs from 0 on; its epochs never fall; whatever it has written in a
transaction is followed by a marker of that transaction.

The layout of a batch is that of KIP-98 (Kafka's ``DefaultRecordBatch``).
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import crc32c

from tests.faults.replicas import batches

_BATCH: Final = struct.Struct(">qiiBIhiqqqhii")
_CHECKED_FROM: Final = 21
"""The checksum covers what comes after it."""
_TRANSACTIONAL, _CONTROL = 1 << 4, 1 << 5
_SEQUENCES: Final = 1 << 31
_NO_PRODUCER: Final = -1


class Batch(NamedTuple):
    """A batch's header."""

    base_offset: int
    leader_epoch: int
    is_intact: bool
    attributes: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int


def headers(log: bytes) -> Iterator[Batch]:
    """The batches of a log, in the order of their bytes."""
    for position, base_offset, size in batches(log):
        _, _, epoch, _, checksum, attributes, delta, _, _, producer_id, producer_epoch, sequence, _ = (
            _BATCH.unpack_from(log, position)
        )
        yield Batch(
            base_offset=base_offset,
            leader_epoch=epoch,
            is_intact=crc32c.crc32c(log[position + _CHECKED_FROM : position + size]) == checksum,
            attributes=attributes,
            last_offset=base_offset + delta,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            last_sequence=(sequence + delta) % _SEQUENCES,
        )


class _Producer(NamedTuple):
    """Where a producer is after some batch."""

    epoch: int
    last_sequence: int
    is_in_transaction: bool


def look_at_log(log: bytes) -> Iterator[str]:
    """Whatever is wrong with a log that was written from offset 0 on, and whose transactions have all ended."""
    end, leader_epoch = 0, 0
    producers: dict[int, _Producer] = {}
    for batch in headers(log):
        if batch.base_offset != end:
            yield f"offset {batch.base_offset} comes after {end - 1}"
        if batch.leader_epoch < leader_epoch:
            yield f"offset {batch.base_offset}: leader epoch {batch.leader_epoch} after {leader_epoch}"
        if not batch.is_intact:
            yield f"offset {batch.base_offset}: the checksum is wrong"
        end, leader_epoch = batch.last_offset + 1, batch.leader_epoch
        if batch.producer_id != _NO_PRODUCER:
            before = producers.get(batch.producer_id)
            yield from _look_at_producer(batch, before)
            producers[batch.producer_id] = _after(batch, before)
    for producer_id, producer in producers.items():
        if producer.is_in_transaction:
            yield f"the transaction of producer {producer_id}, epoch {producer.epoch}, has no marker"


def _look_at_producer(batch: Batch, before: _Producer | None) -> Iterator[str]:
    who = f"offset {batch.base_offset}: producer {batch.producer_id}, epoch {batch.producer_epoch}"
    if before is not None and batch.producer_epoch < before.epoch:
        yield f"{who}, after epoch {before.epoch}"
    if batch.attributes & _CONTROL:
        return
    is_same = before is not None and batch.producer_epoch == before.epoch
    wanted = (before.last_sequence + 1) % _SEQUENCES if before is not None and is_same else 0
    if batch.base_sequence != wanted:
        yield f"{who}: sequence {batch.base_sequence} where {wanted} follows"
    if before is not None and before.is_in_transaction and not is_same:
        yield f"{who}: epoch {before.epoch} had a transaction open"


def _after(batch: Batch, before: _Producer | None) -> _Producer:
    if batch.attributes & _CONTROL:
        is_same = before is not None and before.epoch == batch.producer_epoch
        last = before.last_sequence if before is not None and is_same else -1
        return _Producer(batch.producer_epoch, last, False)
    return _Producer(batch.producer_epoch, batch.last_sequence, bool(batch.attributes & _TRANSACTIONAL))
