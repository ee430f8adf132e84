"""``<base offset>.txnindex``: the aborted transactions whose abort markers are in a segment.

Entries of 34 bytes, big-endian, in the order of the markers::

    0   version             int16   0
    2   producer id         int64
    10  first offset        int64   of the transaction on this partition; may lie in an earlier segment
    18  last offset         int64   of the marker; ascending
    26  last stable offset  int64   as it was once this transaction had ended: the first offset of the oldest
                                    transaction then open, or the marker's next offset

A reader of committed records who fetches [from, to) needs every entry that overlaps this range. No later entry can,
once one has a last stable offset at or beyond ``to``: whatever ended after that began after ``to``.
The file does not exist while there are no entries.
"""

from struct import Struct
from typing import Final, NamedTuple

from oncelog.broker.storage.disk import Disk, File
from oncelog.broker.storage.index_file import CorruptIndex, IndexFile

ENTRY_SIZE: Final = 34
_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """An entry."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment. Few, so always in memory, packed as on disk."""

    __slots__ = ("_base_offset", "_entries", "_exists", "file")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.file = IndexFile(disk, path, ENTRY_SIZE)
        self._base_offset = base_offset
        self._entries = bytearray()
        self._exists = False

    def open(self) -> None:
        """Read the file. Raise ``CorruptIndex``."""
        self._exists = True
        self.file.stat()
        self._entries = bytearray(self.file.read())
        previous = self._base_offset - 1
        for position in range(0, len(self._entries), ENTRY_SIZE):
            version, _, first_offset, last_offset, _ = _ENTRY.unpack_from(self._entries, position)
            if version != _VERSION or last_offset <= previous or first_offset > last_offset:
                raise CorruptIndex(f"{self.file.path} at byte {position}")
            previous = last_offset

    def __len__(self) -> int:
        return len(self._entries) // ENTRY_SIZE

    def append(self, aborted: AbortedTransaction) -> None:
        self._entries += _ENTRY.pack(_VERSION, *aborted)

    def collect(self, start_offset: int, upper_offset: int, found: list[AbortedTransaction]) -> bool:
        """Add what overlaps [start, upper) to ``found``. True if no later segment can add anything."""
        for slot in range(self._first_ending_at(start_offset), len(self)):
            aborted = self._entry(slot)
            if aborted.first_offset < upper_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= upper_offset:
                return True
        return False

    def entries(self) -> list[AbortedTransaction]:
        return [self._entry(slot) for slot in range(len(self))]

    def truncate_to(self, offset: int) -> None:
        """Forget the transactions whose markers are at or beyond ``offset``."""
        kept = self._first_ending_at(offset)
        del self._entries[kept * ENTRY_SIZE :]
        self.file.written = min(self.file.written, kept)

    def reset(self) -> None:
        """Forget everything, to derive it again."""
        self._entries.clear()
        self.file.written = 0
        self._exists = self.file.disk.exists(self.file.path)

    def write(self) -> File | None:
        """Put what is missing into the file; the caller syncs and closes it. None if there is and was nothing."""
        if not self._entries and not self._exists:
            return None
        self._exists = True
        return self.file.write(self._entries[self.file.written * ENTRY_SIZE :])

    def _first_ending_at(self, offset: int) -> int:
        """Return the first slot whose marker is at or beyond ``offset``."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _entry(self, slot: int) -> AbortedTransaction:
        return AbortedTransaction(*_ENTRY.unpack_from(self._entries, slot * ENTRY_SIZE)[1:])
