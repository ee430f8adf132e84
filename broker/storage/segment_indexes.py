"""``SegmentIndexes``: the three index files of a segment. They follow from its batches and can be derived again."""

from collections.abc import Callable

from oncelog.broker.storage.disk import Disk, File
from oncelog.broker.storage.index_file import CorruptIndex
from oncelog.broker.storage.log_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from oncelog.broker.storage.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from oncelog.broker.storage.offset_index import OffsetIndex
from oncelog.broker.storage.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from oncelog.broker.storage.time_index import TimeIndex
from oncelog.broker.storage.transaction_index import TransactionIndex


class SegmentIndexes:
    """The indexes of one segment."""

    __slots__ = ("offset", "time", "transactions")

    def __init__(self, disk: Disk, path_of: Callable[[str], str], base_offset: int) -> None:
        """Make empty indexes. ``path_of`` returns the path of the segment's file with a suffix."""
        self.offset = OffsetIndex(disk, path_of(OFFSET_INDEX_SUFFIX), base_offset)
        self.time = TimeIndex(disk, path_of(TIME_INDEX_SUFFIX), base_offset)
        self.transactions = TransactionIndex(disk, path_of(TRANSACTION_INDEX_SUFFIX), base_offset)

    def open(self, names: frozenset[str]) -> None:
        """Take over the files; ``names`` are those in their directory. Raise ``CorruptIndex``."""
        for index in (self.offset, self.time):
            if _name(index) not in names:
                raise CorruptIndex(f"{_name(index)} is missing")
            index.open()
        if _name(self.transactions) in names:
            self.transactions.open()

    def load(self) -> None:
        """Read the entries that are not in memory. Raise ``OSError``."""
        self.offset.load()
        self.time.load()

    def move(self, path_of: Callable[[str], str]) -> None:
        """Note that the files have other names."""
        self.offset.file.path = path_of(OFFSET_INDEX_SUFFIX)
        self.time.file.path = path_of(TIME_INDEX_SUFFIX)
        self.transactions.file.path = path_of(TRANSACTION_INDEX_SUFFIX)

    def reset(self) -> None:
        """Remove all entries, to derive them again."""
        self.offset.reset()
        self.time.reset()
        self.transactions.reset()

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at or beyond ``offset``."""
        self.offset.truncate_to(offset)
        self.time.truncate_to(offset)
        self.transactions.truncate_to(offset)

    def write(self) -> list[File]:
        """Write the entries that are not in the files yet. Return the files, for the caller to sync and close."""
        files = [self.offset.write(), self.time.write()]
        transactions = self.transactions.write()
        return files if transactions is None else [*files, transactions]

    def release(self) -> None:
        """Release the memory of the entries that are in the files."""
        self.offset.release()
        self.time.release()

    def sparse_entries_exceed(self, max_bytes: int) -> bool:
        """Return whether the next entries of the two sparse indexes would exceed the maximum size of an index.

        One entry of the time index is kept free for the largest timestamp, which is added when the segment is rolled.
        """
        if (len(self.offset) + 1) * OFFSET_ENTRY_SIZE > max_bytes:
            return True
        return (len(self.time) + 2) * TIME_ENTRY_SIZE > max_bytes

    @property
    def sparse_bytes(self) -> int:
        """Return the size of the larger of the two sparse indexes."""
        return max(len(self.offset) * OFFSET_ENTRY_SIZE, len(self.time) * TIME_ENTRY_SIZE)


def _name(index: OffsetIndex | TimeIndex | TransactionIndex) -> str:
    return index.file.path.rpartition("/")[2]
