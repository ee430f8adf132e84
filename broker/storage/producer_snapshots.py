"""``<offset>.snapshot``: the producer state that a log's batches below the offset in its name add up to.

There is one snapshot at the base offset of each segment but the first, taken when the segment before was rolled, and
one where the log was closed. Snapshots only shorten the way from the log to the state: the log is the truth. One that a
power loss left torn fails its CRC and counts as missing.

Layout, big-endian: version (int16, 1), CRC-32C of all that follows (uint32), number of entries (int32), entries. An
entry has only the producer's last batch: after a restart a retry of an older one is refused, not recognised.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from logging import getLogger
from struct import Struct
from typing import Final, NamedTuple

from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.log_files import SNAPSHOT_SUFFIX, offset_file, offsets_with_suffix
from oncelog.broker.storage.producer_state import ProducerStateManager
from oncelog.broker.storage.producer_state_entry import BatchMetadata, ProducerStateEntry
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.internal.producer_snapshot import ProducerEntry, ProducerSnapshot
from oncelog.protocol.primitives import DecodeError
from oncelog.protocol.records.checksum import crc32c

_VERSION: Final = 1
_PREFIX: Final = Struct(">hI")
_NO_OFFSET: Final = -1

_log = getLogger(__name__)


class CorruptSnapshot(ValueError):
    """Not a snapshot, or a torn one: there are older ones, and there is the log."""


class Snapshot(NamedTuple):
    """The contents of a snapshot file."""

    offset: int
    producers: list[ProducerStateEntry]


class ProducerSnapshots:
    """The snapshot files of one log."""

    __slots__ = ("_directory", "_disk", "_last_offset", "_offsets")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._offsets: list[int] = []
        self._last_offset = 0
        """Of the snapshot that was taken or restored last."""

    def open(self) -> None:
        """Find the files."""
        self._offsets = offsets_with_suffix(self._disk.list_dir(self._directory), SNAPSHOT_SUFFIX)

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets of the snapshots, ascending."""
        return tuple(self._offsets)

    def take(self, state: ProducerStateManager, *, sync: bool) -> str | None:
        """Write the state at its end offset. Return the file's path, or None if that snapshot is there already."""
        offset = state.map_end_offset
        if offset <= self._last_offset:
            return None
        path = self._path(offset)
        self._disk.write_atomic(path, encode_snapshot(state.producers.values()), sync=sync)
        self._last_offset = offset
        if offset not in self._offsets:
            insort(self._offsets, offset)
        return path

    def restore(self, state: ProducerStateManager, log_start_offset: int, end_offset: int) -> None:
        """Set the state to the latest whole snapshot in [log start, end]; without one, empty at the log start.

        The caller replays the log from ``state.map_end_offset`` on. A corrupt snapshot is removed.
        """
        self.apply(self.latest(log_start_offset, end_offset), state, log_start_offset)

    def apply(self, snapshot: Snapshot | None, state: ProducerStateManager, log_start_offset: int) -> None:
        """Set the state to a snapshot; None: empty at the log start."""
        state.clear(log_start_offset)
        self._last_offset = 0
        if snapshot is not None:
            state.restore(snapshot.producers, snapshot.offset)
            self._last_offset = snapshot.offset

    def latest(self, log_start_offset: int, end_offset: int) -> Snapshot | None:
        """Read the latest whole snapshot in [log start, end]. A corrupt one is removed."""
        for offset in reversed(self.offsets):
            if not log_start_offset <= offset <= end_offset:
                continue
            try:
                return Snapshot(offset, decode_snapshot(self._disk.read(self._path(offset))))
            except CorruptSnapshot as error:
                _log.warning("Removing the corrupt producer snapshot %s: %s", self._path(offset), error)
                self.remove((offset,))
        return None

    def truncate(self, end_offset: int) -> None:
        """Remove the snapshots beyond an offset at which the log was cut."""
        self.remove(offset for offset in self._offsets if offset > end_offset)
        self._last_offset = max(self._offsets, default=0)

    def clear(self) -> None:
        """Remove all snapshots."""
        self.remove(self.offsets)
        self._last_offset = 0

    def remove(self, offsets: Iterable[int]) -> None:
        """Remove the snapshots at some offsets, of those where there is one."""
        for offset in list(offsets):
            slot = bisect_left(self._offsets, offset)
            if self._offsets[slot : slot + 1] != [offset]:
                continue
            del self._offsets[slot]
            if self._disk.exists(self._path(offset)):
                self._disk.remove(self._path(offset))

    def remove_strays(self, base_offsets: Iterable[int]) -> None:
        """Remove the snapshots of no segment, except the latest if it lies beyond the last segment's base offset."""
        bases = set(base_offsets)
        last_base = max(bases, default=-1)
        strays = [offset for offset in self._offsets if offset not in bases]
        if strays and strays[-1] > last_base:
            strays.pop()
        self.remove(strays)

    def _path(self, offset: int) -> str:
        return offset_file(self._directory, offset, SNAPSHOT_SUFFIX)


def encode_snapshot(producers: Iterable[ProducerStateEntry]) -> bytes:
    body = encode(ProducerSnapshot(producer_entries=[_to_message(entry) for entry in producers]), _VERSION)
    entries = body[4:]
    return _PREFIX.pack(_VERSION, crc32c(entries)) + entries


def decode_snapshot(data: bytes) -> list[ProducerStateEntry]:
    """Return the producers in a snapshot file. Raise ``CorruptSnapshot``."""
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
    entry.aborted_epoch = message.epoch
    entry.coordinator_epoch = message.coordinator_epoch
    entry.last_timestamp = message.timestamp
    if message.current_txn_first_offset >= 0:
        entry.txn_first_offset = message.current_txn_first_offset
    if message.last_offset >= 0:
        entry.batches.append(
            BatchMetadata.ending(message.last_sequence, message.last_offset, message.offset_delta, message.timestamp)
        )
    return entry
