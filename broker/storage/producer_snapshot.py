"""``<offset>.snapshot``: the producer state that a log's batches below the offset in its name add up to.

Layout, big-endian: version (int16, 1), CRC-32C of all that follows (uint32), number of entries (int32), entries. An
entry has only the producer's last batch: after a restart a retry of an older one is refused, not recognised.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from oncelog.broker.storage.producer_state_entry import BatchMetadata, ProducerStateEntry
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.internal.producer_snapshot import ProducerEntry, ProducerSnapshot
from oncelog.protocol.primitives import DecodeError
from oncelog.protocol.records.checksum import crc32c

_VERSION: Final = 1
_PREFIX: Final = Struct(">hI")
_NO_OFFSET: Final = -1


class CorruptSnapshot(ValueError):
    """Not a snapshot, or a torn one: there are older ones, and there is the log."""


def encode_snapshot(producers: Iterable[ProducerStateEntry]) -> bytes:
    body = encode(ProducerSnapshot(producer_entries=[_to_message(entry) for entry in producers]), _VERSION)
    entries = body[4:]
    return _PREFIX.pack(_VERSION, crc32c(entries)) + entries


def decode_snapshot(data: bytes) -> list[ProducerStateEntry]:
    """Raises ``CorruptSnapshot``."""
    if len(data) < _PREFIX.size:
        raise CorruptSnapshot(f"{len(data)} bytes")
    version, crc = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version}")
    if crc != crc32c(memoryview(data)[_PREFIX.size :]):
        raise CorruptSnapshot("the CRC does not match")
    try:
        snapshot = decode(ProducerSnapshot, _VERSION, memoryview(data)[2:])
    except DecodeError as error:
        raise CorruptSnapshot(str(error)) from error
    return [_from_message(entry) for entry in snapshot.producer_entries]


def _to_message(entry: ProducerStateEntry) -> ProducerEntry:
    last = entry.batches[-1] if entry.batches else None
    return ProducerEntry(
        producer_id=entry.producer_id,
        epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_offset=last.last_offset if last else _NO_OFFSET,
        offset_delta=last.last_offset - last.first_offset if last else 0,
        timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_first_offset=_NO_OFFSET if entry.txn_first_offset is None else entry.txn_first_offset,
    )


def _from_message(message: ProducerEntry) -> ProducerStateEntry:
    entry = ProducerStateEntry(message.producer_id, message.epoch)
    entry.coordinator_epoch = message.coordinator_epoch
    entry.last_timestamp = message.timestamp
    if message.current_txn_first_offset >= 0:
        entry.txn_first_offset = message.current_txn_first_offset
    if message.last_offset >= 0:
        entry.batches.append(
            BatchMetadata.ending(message.last_sequence, message.last_offset, message.offset_delta, message.timestamp)
        )
    return entry
