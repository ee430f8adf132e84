"""``<base offset>.index``: where in a segment to begin looking for an offset.

Entries of 8 bytes, big-endian, one for about every ``index.interval.bytes`` of log::

    0  relative offset  int32   last offset of a batch, minus the segment's base offset; strictly ascending
    4  position         int32   where in the ``.log`` that batch begins

A look-up finds the last entry at or below the offset; from its position on, batch headers are walked.
In memory the two columns are arrays, so that a look-up is one ``bisect`` in C.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from oncelog.broker.storage.disk import Disk, File
from oncelog.broker.storage.index_file import CorruptIndex, IndexFile

ENTRY_SIZE: Final = 8
MAX_RELATIVE_OFFSET: Final = 2**31 - 1

_SWAPS: Final = sys.byteorder == "little"


class OffsetIndex:
    """The sparse offset index of one segment."""

    __slots__ = ("_base_offset", "_loaded", "_offsets", "_positions", "file")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.file = IndexFile(disk, path, ENTRY_SIZE)
        self._base_offset = base_offset
        self._offsets = array("i")
        self._positions = array("i")
        self._loaded = True

    def open(self) -> None:
        """Take over the file's entries; they are read when first needed. Raise ``CorruptIndex``."""
        self.file.stat()
        self._loaded = self.file.written == 0

    def __len__(self) -> int:
        return len(self._offsets) if self._loaded else self.file.written

    def load(self) -> None:
        """Read the entries unless they are in memory."""
        if not self._loaded:
            self._load()

    def append(self, offset: int, position: int) -> None:
        self._offsets.append(offset - self._base_offset)
        self._positions.append(position)

    def lookup(self, offset: int) -> int:
        """Return the position of the last indexed batch that begins at or before ``offset``; 0 when none does."""
        if not self._loaded:
            self._load()
        offsets = self._offsets
        relative = offset - self._base_offset
        if not offsets or relative < offsets[0]:
            return 0
        if relative >= offsets[-1]:  # The tail is what most reads are about.
            return self._positions[-1]
        return self._positions[bisect_right(offsets, relative) - 1]

    def last_entry(self) -> tuple[int, int]:
        """Return (offset, position) of the last entry; (base offset, 0) when there is none."""
        if not self._loaded:
            self._load()
        if not self._offsets:
            return self._base_offset, 0
        return self._base_offset + self._offsets[-1], self._positions[-1]

    def upper_bound_offset(self, position: int) -> int | None:
        """Return an offset behind all batches before ``position``; None if only the segment's end is."""
        if not self._loaded:
            self._load()
        slot = bisect_left(self._positions, position)
        return None if slot == len(self._positions) else self._base_offset + self._offsets[slot]

    def truncate_to(self, offset: int) -> None:
        """Forget entries at or beyond ``offset``."""
        if not self._loaded:
            self._load()
        kept = bisect_left(self._offsets, offset - self._base_offset)
        del self._offsets[kept:]
        del self._positions[kept:]
        self.file.written = min(self.file.written, kept)

    def reset(self) -> None:
        """Forget everything, to derive it again."""
        del self._offsets[:]
        del self._positions[:]
        self._loaded = True
        self.file.written = 0

    def write(self) -> File:
        """Put what is missing into the file; the caller syncs and closes it."""
        if not self._loaded:
            return self.file.write(b"")
        entries = array("i", bytes(ENTRY_SIZE * (len(self._offsets) - self.file.written)))
        entries[0::2] = self._offsets[self.file.written :]
        entries[1::2] = self._positions[self.file.written :]
        if _SWAPS:
            entries.byteswap()
        return self.file.write(entries.tobytes())

    def release(self) -> None:
        """Give the memory back if the file has everything."""
        if self._loaded and self.file.written == len(self._offsets) > 0:
            self._offsets = array("i")
            self._positions = array("i")
            self._loaded = False

    def _load(self) -> None:
        entries = array("i", self.file.read())
        if _SWAPS:
            entries.byteswap()
        self._offsets = entries[0::2]
        self._positions = entries[1::2]
        self._loaded = True

    def check(self, log_size: int) -> None:
        """Raise ``CorruptIndex`` unless the entries can belong to a log of that size."""
        if not self._loaded:
            self._load()
        offsets, positions = self._offsets, self._positions
        if offsets and not (0 <= offsets[0] <= offsets[-1] and 0 <= positions[0] <= positions[-1] < log_size):
            raise CorruptIndex(f"{self.file.path} does not match a log of {log_size} bytes")
