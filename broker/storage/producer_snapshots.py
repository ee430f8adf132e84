"""``<offset>.snapshot``: the producer state that a log's batches below the offset in its name add up to.

There is one snapshot at the base offset of each segment but the first, and one where the log was closed. When a segment
is rolled its state is frozen, and the flush of the segment before writes it: no segment counts as flushed without the
snapshot behind it. Snapshots only shorten the way from the log to the state: the log is the truth. One that a power
loss left torn fails its CRC and counts as missing.

Layout, big-endian: version (int16, 1), CRC-32C of all that follows (uint32), number of entries (int32), entries. An
entry has only the producer's last batch: after a restart a retry of an older one is refused, not recognised.
"""

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from logging import getLogger
from struct import Struct
from typing import Final, NamedTuple

from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.frozen_producers import ENTRY, FrozenProducers
from oncelog.broker.storage.log_files import SNAPSHOT_SUFFIX, offset_file, offsets_with_suffix
from oncelog.broker.storage.producer_state import ProducerStateManager
from oncelog.broker.storage.producer_state_entry import BatchMetadata, ProducerStateEntry
from oncelog.protocol.records.checksum import crc32c
from oncelog.protocol.schema import Buffer

_VERSION: Final = 1
_PREFIX: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRIES_AT_ONCE: Final = 4_000
"""Producers that are encoded in one turn of the loop."""

_log = getLogger(__name__)


class CorruptSnapshot(ValueError):
    """Not a snapshot, or a torn one: there are older ones, and there is the log."""


class Snapshot(NamedTuple):
    """The contents of a snapshot file."""

    offset: int
    producers: list[ProducerStateEntry]


class ProducerSnapshots:
    """The snapshot files of one log."""

    __slots__ = ("_directory", "_disk", "_frozen", "_last_offset", "_offsets")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._offsets: list[int] = []
        self._last_offset = 0
        """Of the snapshot that was taken, frozen or restored last."""
        self._frozen: list[FrozenProducers] = []
        """Those that are not written yet, in order; shared with the state, which changes under them."""

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
        path = self._write(FrozenProducers(state.producers, offset), sync=sync)
        self._last_offset = offset
        return path

    def freeze(self, state: ProducerStateManager) -> None:
        """Keep the state at its end offset, for the next flush to write."""
        offset = state.map_end_offset
        if offset > self._last_offset:
            self._frozen.append(FrozenProducers(state.producers, offset))
            state.frozen = self._frozen
            self._last_offset = offset

    def write_frozen(self, written: Callable[[str], None]) -> None:
        """Write what is frozen; ``written`` gets the path of each file.

        Raise ``OSError``: then the rest is still frozen.
        """
        while self._frozen:
            path = self._write(self._frozen[0], sync=False)
            del self._frozen[0]
            written(path)

    async def encode_frozen(self) -> None:
        """Encode what is frozen, in portions between which the loop runs: ``write_frozen`` then takes little time."""
        for _ in self._portions():
            await asyncio.sleep(0)

    def _portions(self) -> Iterator[None]:
        while any(frozen.encode_some(_ENTRIES_AT_ONCE) for frozen in self._frozen):
            yield

    def _write(self, frozen: FrozenProducers, *, sync: bool) -> str:
        path = self._path(frozen.offset)
        self._disk.write_atomic(path, _with_prefix(frozen.count, frozen.encoded()), sync=sync)
        if frozen.offset not in self._offsets:
            insort(self._offsets, frozen.offset)
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
        """Return the latest whole snapshot in [log start, end], frozen or on the disk. A corrupt file is removed."""
        for frozen in reversed(self._frozen):  # Their offsets are above those of all files.
            if log_start_offset <= frozen.offset <= end_offset:
                return Snapshot(frozen.offset, _decode_entries(frozen.encoded()))
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
        self._thaw(offset for offset in self._frozen_offsets() if offset > end_offset)
        self._last_offset = max((*self._offsets, *self._frozen_offsets()), default=0)

    def clear(self) -> None:
        """Remove all snapshots."""
        self.remove(self.offsets)
        self._thaw(self._frozen_offsets())
        self._last_offset = 0

    def remove(self, offsets: Iterable[int]) -> None:
        """Remove the snapshots at some offsets, of those where there is one."""
        offsets = list(offsets)
        self._thaw(offsets)
        for offset in offsets:
            slot = bisect_left(self._offsets, offset)
            if self._offsets[slot : slot + 1] != [offset]:
                continue
            del self._offsets[slot]
            if self._disk.exists(self._path(offset)):
                self._disk.remove(self._path(offset))

    def _frozen_offsets(self) -> list[int]:
        return [frozen.offset for frozen in self._frozen]

    def _thaw(self, offsets: Iterable[int]) -> None:
        """Write the snapshots at some offsets no more."""
        if self._frozen:
            gone = set(offsets)
            self._frozen[:] = [frozen for frozen in self._frozen if frozen.offset not in gone]

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
    by_id = {entry.producer_id: entry for entry in producers}
    return _with_prefix(len(by_id), FrozenProducers(by_id, 0).encoded())


def decode_snapshot(data: bytes) -> list[ProducerStateEntry]:
    """Return the producers in a snapshot file. Raise ``CorruptSnapshot``."""
    if len(data) < _PREFIX.size + _COUNT.size:
        raise CorruptSnapshot(f"{len(data)} bytes")
    version, crc = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version}")
    body = memoryview(data)[_PREFIX.size :]
    if crc != crc32c(body):
        raise CorruptSnapshot("the CRC does not match")
    (count,) = _COUNT.unpack_from(body)
    entries = body[_COUNT.size :]
    if len(entries) != count * ENTRY.size:
        raise CorruptSnapshot(f"{len(entries)} bytes of {count} entries")
    return _decode_entries(entries)


def _decode_entries(entries: Buffer) -> list[ProducerStateEntry]:
    return [_decoded(fields) for fields in ENTRY.iter_unpack(entries)]


def _with_prefix(count: int, entries: bytearray) -> bytes:
    body = _COUNT.pack(count) + entries
    return _PREFIX.pack(_VERSION, crc32c(body)) + body


def _decoded(fields: tuple[int, ...]) -> ProducerStateEntry:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, txn_first_offset = (
        fields
    )
    entry = ProducerStateEntry(producer_id, epoch)
    entry.aborted_epoch = epoch
    entry.coordinator_epoch = coordinator_epoch
    entry.last_timestamp = timestamp
    if txn_first_offset >= 0:
        entry.txn_first_offset = txn_first_offset
    if last_offset >= 0:
        entry.batches.append(BatchMetadata.ending(last_sequence, last_offset, offset_delta, timestamp))
    return entry
