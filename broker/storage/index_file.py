"""The file of each of a segment's three indexes: equal entries that can always be derived from the log.

Since it can be derived, an index is appended to in memory and written out when its log is flushed, rolled or closed.
After a crash the segments from the recovery point on have theirs rebuilt, so nothing is lost, an append costs no second
system call, and it cannot fail half-way between log and index. Files are as long as their content (Kafka preallocates
those of its active segments and cuts them when it rolls or closes).
"""

import errno

from oncelog.broker.storage.disk import Disk, File
from oncelog.protocol.schema import Buffer


class CorruptIndex(ValueError):
    """An index file that cannot be what this code or Kafka wrote: derive it again."""


class IndexFile:
    """The file under an index, and how much of the index is in it."""

    __slots__ = ("disk", "entry_size", "path", "written")

    def __init__(self, disk: Disk, path: str, entry_size: int) -> None:
        self.disk = disk
        self.path = path
        self.entry_size = entry_size
        self.written = 0
        """Entries in the file that are also the index's first ones. Whatever the file has beyond is stale."""

    def stat(self) -> None:
        """Find out how many entries there are, without reading them."""
        size = self.disk.file_size(self.path)
        if size % self.entry_size:
            raise CorruptIndex(f"{self.path} has {size} bytes, not a multiple of {self.entry_size}")
        self.written = size // self.entry_size

    def read(self) -> bytes:
        return self.disk.read(self.path)[: self.written * self.entry_size]

    def read_last(self) -> bytes:
        """Read the bytes of the last entry; empty if there is none."""
        if not self.written:
            return b""
        file = self.disk.open(self.path)
        entry = file.read_at(self.entry_size, (self.written - 1) * self.entry_size)
        file.close()
        return entry

    def write(self, entries: Buffer) -> File:
        """Append the entries that are not in the file yet. Return it, still open, for the caller to sync and close."""
        file = self.disk.open(self.path, create=True)
        start = self.written * self.entry_size
        if file.size() != start:
            file.truncate(start)
        if len(entries) and file.append((entries,)) != len(entries):
            raise OSError(errno.ENOSPC, f"short write to {self.path}")
        self.written += len(entries) // self.entry_size
        return file
