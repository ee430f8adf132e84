"""``UnstableTransactions``: the transactions of a log that keep its last stable offset back.

A transaction is *open* until its marker is appended, and *unstable* until the high watermark has passed its marker:
until then another leader may not have that marker. Transactions are kept in the order of their first offsets, which is
the order in which they began, so that the oldest one is found at once.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was appended."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of the marker."""
    aborted: bool


class UnstableTransactions:
    """The unstable transactions of one log, by first offset."""

    __slots__ = ("_ongoing", "_unstable", "unreplicated")

    def __init__(self) -> None:
        self._unstable: OrderedDict[int, int] = OrderedDict()
        """First offset to producer id."""
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        """Those of them that are open."""
        self.unreplicated: list[tuple[int, int]] = []
        """(offset of the marker, first offset) of the others, in the order of their markers."""

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Note the first batch of a transaction."""
        self._unstable[first_offset] = self._ongoing[first_offset] = producer_id

    def restore(self, transactions: Iterable[tuple[int, int]]) -> None:
        """Add (first offset, producer id) of open transactions, in the order of their first offsets."""
        for first_offset, producer_id in transactions:
            self.begin(first_offset, producer_id)

    def complete(self, completed: CompletedTransaction) -> None:
        """Note that a marker was appended, and that the transaction index has the transaction if it was aborted."""
        del self._ongoing[completed.first_offset]
        self.unreplicated.append((completed.last_offset, completed.first_offset))

    def on_high_watermark(self, high_watermark: int) -> None:
        """Remove the transactions whose markers lie below the high watermark."""
        replicated = 0
        for last_offset, first_offset in self.unreplicated:
            if last_offset >= high_watermark:
                break
            del self._unstable[first_offset]
            replicated += 1
        del self.unreplicated[:replicated]

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest unstable transaction."""
        for first_offset in self._unstable:
            return first_offset
        return None

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        for first_offset in self._ongoing:
            return first_offset
        return None

    @property
    def first_undecided_producer(self) -> int | None:
        """The producer of the oldest open transaction."""
        for producer_id in self._ongoing.values():
            return producer_id
        return None

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """Return what the transaction index records: the last stable offset once this transaction has ended."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def clear(self) -> None:
        """Forget all."""
        self._unstable.clear()
        self._ongoing.clear()
        self.unreplicated.clear()
