"""``<base offset>.timeindex``: from when on to look for a timestamp, and the largest timestamp of the segment.

Entries of 12 bytes, big-endian::

    0  timestamp        int64   the largest one so far in the segment; strictly ascending
    8  relative offset  int32   last offset of the batch that has it, minus the segment's base offset

An entry (t, o) promises that no record up to offset o is younger than t. One is added together with each entry of the
offset index if the largest timestamp has grown, and a last one when the segment is rolled or closed, so that the last
entry of a closed segment is its largest timestamp: what retention by time goes by. An entry that would break the order
is left out: promises stay true, and neither appends nor replication ever stop because of this index.

Look-ups are rare, so entries stay packed and are read one by one.
"""

from struct import Struct
from typing import Final, NamedTuple

from oncelog.broker.storage.disk import Disk, File
from oncelog.broker.storage.index_file import IndexFile
from oncelog.protocol.records.record_batch import NO_TIMESTAMP

ENTRY_SIZE: Final = 12
_ENTRY: Final = Struct(">qi")


class TimestampOffset(NamedTuple):
    """A timestamp, and the last offset of the batch that has it."""

    timestamp: int
    offset: int


class TimeIndex:
    """The time index of one segment."""

    __slots__ = ("_base_offset", "_entries", "_last", "_loaded", "file")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.file = IndexFile(disk, path, ENTRY_SIZE)
        self._base_offset = base_offset
        self._entries = bytearray()
        self._loaded = True
        self._last: TimestampOffset | None = TimestampOffset(NO_TIMESTAMP, base_offset)

    def open(self) -> None:
        """Take over the file's entries; they are read when first needed. Raise ``CorruptIndex``."""
        self.file.stat()
        if self.file.written:
            self._loaded = False
            self._last = None

    def __len__(self) -> int:
        return len(self._entries) // ENTRY_SIZE if self._loaded else self.file.written

    @property
    def last_entry(self) -> TimestampOffset:
        """(NO_TIMESTAMP, base offset) when there is none."""
        if self._last is None:
            packed = self._entries[-ENTRY_SIZE:] if self._loaded else self.file.read_last()
            self._last = self._unpack(packed, 0) if packed else TimestampOffset(NO_TIMESTAMP, self._base_offset)
        return self._last

    def load(self) -> None:
        """Read the entries unless they are in memory."""
        if not self._loaded:
            self._load()

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if it is younger than the last one."""
        last = self.last_entry
        if timestamp <= last.timestamp or offset < last.offset:
            return
        if not self._loaded:
            self._load()
        self._entries += _ENTRY.pack(timestamp, offset - self._base_offset)
        self._last = TimestampOffset(timestamp, offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the last entry that is not later; (NO_TIMESTAMP, base offset) when all are."""
        if not self._loaded:
            self._load()
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle).timestamp <= timestamp:
                low = middle + 1
            else:
                high = middle
        return self._entry(low - 1) if low else TimestampOffset(NO_TIMESTAMP, self._base_offset)

    def truncate_to(self, offset: int) -> None:
        """Forget entries at or beyond ``offset``."""
        if not self._loaded:
            self._load()
        kept = len(self)
        while kept and self._entry(kept - 1).offset >= offset:
            kept -= 1
        del self._entries[kept * ENTRY_SIZE :]
        self._last = None
        self.file.written = min(self.file.written, kept)

    def reset(self) -> None:
        """Forget everything, to derive it again."""
        self._entries.clear()
        self._loaded = True
        self._last = None
        self.file.written = 0

    def write(self) -> File:
        """Put what is missing into the file; the caller syncs and closes it."""
        return self.file.write(self._entries[self.file.written * ENTRY_SIZE :] if self._loaded else b"")

    def release(self) -> None:
        """Give the memory back if the file has everything."""
        if self._loaded and self.file.written == len(self) > 0:
            self._entries = bytearray()
            self._loaded = False

    def _load(self) -> None:
        self._entries = bytearray(self.file.read())
        self._loaded = True

    def _entry(self, slot: int) -> TimestampOffset:
        return self._unpack(self._entries, slot * ENTRY_SIZE)

    def _unpack(self, packed: bytes | bytearray, position: int) -> TimestampOffset:
        timestamp, relative_offset = _ENTRY.unpack_from(packed, position)
        return TimestampOffset(timestamp, self._base_offset + relative_offset)
