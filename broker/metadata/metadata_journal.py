"""The journal of the embedded metadata store, over the disk seam.

In its directory lie one snapshot and one or more journal files::

    metadata.snapshot                        sequence (8)  crc32c (4)  snapshot
    metadata-00000000000000001234.journal    records:  length (4)  crc32c (4)  payload

All numbers are big-endian; a record's length and CRC are those of its payload, which is never empty (so that zeros are
no record). Records are numbered from 1; a file is named by the number of its first. A snapshot says the number of the
first record that it does *not* contain; files that begin before that are left over from a compaction and are removed.

A record counts if it is whole, its CRC is right, and no record before it is missing. Whatever follows the first that
does not count was never synced (``sync`` goes through the files in order, and then makes their names durable), so it is
cut off. Compaction begins a new file, writes the snapshot beside it, and removes the older files when the snapshot is
durable.
"""

import asyncio
import errno
import logging
import os
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from oncelog.broker.storage.disk import Disk, File
from oncelog.broker.storage.disk_errors import is_out_of_space, is_transient
from oncelog.coordinator.metadata_store.local import JournalFull
from oncelog.protocol.records.checksum import crc32c

logger = logging.getLogger(__name__)

_SNAPSHOT_NAME: Final = "metadata.snapshot"
_JOURNAL_NAME: Final = re.compile(r"metadata-(\d{20})\.journal")
_SNAPSHOT_HEADER: Final = struct.Struct(">QI")
_RECORD_HEADER: Final = struct.Struct(">II")


def has_metadata(names: Iterable[str]) -> bool:
    """Return whether a directory with files of these names holds a journal, or a snapshot of one."""
    return any(name == _SNAPSHOT_NAME or _JOURNAL_NAME.fullmatch(name) for name in names)


class CorruptSnapshot(Exception):
    """The snapshot is not what was once written: the disk lost or changed synced bytes."""


@dataclass(slots=True)
class _JournalFile:
    path: str
    file: File
    size: int = 0
    is_named: bool = False
    """Whether its name in the directory is known to survive a power loss."""


class MetadataJournal:
    """Implements ``oncelog.coordinator.metadata_store.local.Journal``. The directory is this broker's and locked."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._next_sequence = 1
        self._files: list[_JournalFile] = []
        """The last one is written to; the others wait for the snapshot that replaces them."""
        self._size = 0
        self._failed = False

    @property
    def size(self) -> int:
        return self._size

    def load(self) -> tuple[bytes | None, list[bytes]]:
        snapshot = self._load_snapshot()
        records: list[bytes] = []
        for first, name in self._journals():
            if first == self._next_sequence:
                self._load_file(self._path(name), records)
            else:
                self._remove_leftover(self._path(name))
        if not self._files:
            self._begin_file()
        return snapshot, records

    def _load_snapshot(self) -> bytes | None:
        path = self._path(_SNAPSHOT_NAME)
        if not self._disk.exists(path):
            return None
        content = self._disk.read(path)
        if len(content) < _SNAPSHOT_HEADER.size:
            raise CorruptSnapshot(f"{path} is too short")
        self._next_sequence, crc = _SNAPSHOT_HEADER.unpack_from(content)
        snapshot = content[_SNAPSHOT_HEADER.size :]
        if crc32c(snapshot) != crc:
            raise CorruptSnapshot(f"{path} does not match its checksum")
        return snapshot

    def _journals(self) -> list[tuple[int, str]]:
        names = self._disk.list_dir(self._directory)
        return sorted((int(match[1]), match[0]) for match in map(_JOURNAL_NAME.fullmatch, names) if match)

    def _load_file(self, path: str, records: list[bytes]) -> None:
        """Take the records that count from a file, cut off the rest, and be ready to go on writing to it."""
        content = self._disk.read(path)
        position = 0
        while payload := _record_at(content, position):
            records.append(payload)
            position += _RECORD_HEADER.size + len(payload)
            self._next_sequence += 1
        file = self._disk.open(path)
        if position < len(content):
            logger.warning("Cutting %d bytes that were not completely written off %s", len(content) - position, path)
            file.truncate(position)
            file.sync()
        self._files.append(_JournalFile(path, file, position))
        self._size += position

    def _remove_leftover(self, path: str) -> None:
        """Remove a file whose records are in the snapshot, or come after a missing one.

        Durably: it must not come back when its numbers have been given out again."""
        logger.info("Removing %s: what it holds is in the snapshot, or was never synced", path)
        self._disk.remove(path)
        self._disk.sync_dir(self._directory)

    def append(self, record: bytes) -> None:
        if self._failed:
            raise OSError(errno.EIO, "the metadata journal failed before")
        frame = _RECORD_HEADER.pack(len(record), crc32c(record)) + record
        current = self._files[-1]
        try:
            written = current.file.append([frame])
            if written < len(frame):
                raise OSError(errno.ENOSPC, f"only {written} of {len(frame)} bytes were written to {current.path}")
        except OSError as error:
            self._failed = True
            current.file.truncate(current.size)
            if is_transient(error):
                self._failed = False
                raise self._full(error) from error
            raise
        self._next_sequence += 1
        current.size += len(frame)
        self._size += len(frame)

    async def sync(self) -> None:
        files = tuple(self._files)
        for file in files:
            if file in self._files:  # Else a snapshot has replaced it meanwhile.
                await file.file.sync_off_loop()
        unnamed = [file for file in files if not file.is_named]
        if unnamed:
            await self._disk.sync_dir_off_loop(self._directory)
            for file in unnamed:
                file.is_named = True

    async def compact(self, snapshot: Iterable[bytes]) -> None:
        first = self._next_sequence
        try:
            if self._files[-1].size:
                self._begin_file()
            replaced = self._files[:-1]
            await self._disk.write_atomic_off_loop(self._path(_SNAPSHOT_NAME), await _snapshot_file(first, snapshot))
        except OSError as error:
            if is_transient(error):
                raise self._full(error) from error
            raise
        self._size -= sum(file.size for file in replaced)
        self._files = [file for file in self._files if file not in replaced]
        for file in replaced:
            file.file.close()
            await self._disk.remove_off_loop(file.path)

    def close(self) -> None:
        for file in self._files:
            file.file.close()

    def _full(self, error: OSError) -> JournalFull:
        if not is_out_of_space(error):
            return JournalFull(f"the metadata journal in {self._directory} could not be written: {error}")
        return JournalFull(
            f"the disk of {self._directory} is full, and the metadata journal takes no change: free space or enlarge "
            "the volume"
        )

    def _begin_file(self) -> None:
        path = self._path(f"metadata-{self._next_sequence:020d}.journal")
        self._files.append(_JournalFile(path, self._disk.open(path, create=True)))

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)


async def _snapshot_file(first: int, snapshot: Iterable[bytes]) -> bytes:
    """Return the content of the snapshot's file. Between parts the loop has its turn."""
    parts, crc = [b""], 0
    for part in snapshot:
        parts.append(part)
        crc = crc32c(part, crc)
        await asyncio.sleep(0)
    parts[0] = _SNAPSHOT_HEADER.pack(first, crc)
    return b"".join(parts)


def _record_at(content: bytes, position: int) -> bytes | None:
    """Return the payload of the record at ``position``, if it is whole and unharmed."""
    payload_at = position + _RECORD_HEADER.size
    if payload_at > len(content):
        return None
    length, crc = _RECORD_HEADER.unpack_from(content, position)
    payload = content[payload_at : payload_at + length]
    return payload if len(payload) == length and crc32c(payload) == crc else None
