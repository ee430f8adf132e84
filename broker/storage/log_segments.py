"""``LogSegments``: the segments of one log in the order of their offsets; the last one, ``active``, takes appends."""

from bisect import bisect_right
from collections.abc import Generator, Iterator

from oncelog.broker.storage.log_segment import LogSegment
from oncelog.broker.storage.segment_read import ReadRequest, read_segment
from oncelog.broker.storage.transaction_index import AbortedTransaction
from oncelog.protocol.schema import Buffer


class LogSegments:
    """The segments; never none, except while a log is being emptied."""

    __slots__ = ("_bases", "_segments", "active")

    def __init__(self, segments: list[LogSegment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __getitem__(self, slot: int) -> LogSegment:
        return self._segments[slot]

    @property
    def first(self) -> LogSegment:
        return self._segments[0]

    @property
    def closed(self) -> list[LogSegment]:
        return self._segments[:-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    def slot_of(self, offset: int) -> int:
        """Return the position of the segment that an offset belongs to; 0 if it lies before all of them."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def from_offset(self, offset: int) -> list[LogSegment]:
        """Return the segment that an offset belongs to, and all that follow."""
        return self._segments[self.slot_of(offset) :]

    def add(self, segment: LogSegment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def remove(self, start: int, end: int) -> list[LogSegment]:
        """Take the segments of some slots out of the log."""
        removed = self._segments[start:end]
        self._splice(start, end, [])
        return removed

    def replace(self, removed: list[LogSegment], replacement: LogSegment) -> None:
        """Put one segment in the place of neighbouring others."""
        start = self._segments.index(removed[0])
        assert self._segments[start : start + len(removed)] == removed
        self._splice(start, start + len(removed), [replacement])

    def _splice(self, start: int, end: int, segments: list[LogSegment]) -> None:
        self._segments[start:end] = segments
        self._bases[start:end] = [segment.base_offset for segment in segments]
        if self._segments:
            self.active = self._segments[-1]

    def read(
        self, start_offset: int, max_bytes: int, upper_offset: int, end_offset: int, min_one_batch: bool
    ) -> Generator[ReadRequest, Buffer, tuple[Buffer, int]]:
        """Find batches as ``read_segment`` does, and an offset that all of them are below.

        ``end_offset`` is the log's, ``upper_offset`` is not beyond it.
        """
        bases, slot = self._bases, bisect_right(self._bases, start_offset) - 1
        while start_offset < upper_offset and slot < len(bases) and bases[slot] < upper_offset:
            segment_end = bases[slot + 1] if slot + 1 < len(bases) else end_offset
            segment = self._segments[slot]
            upper = upper_offset if upper_offset < segment_end else None
            found = yield from read_segment(segment, start_offset, max_bytes, upper, min_one_batch)
            if found is not None:
                next_offset = segment_end if found.next_offset is None else found.next_offset
                return found.records, max(start_offset, min(next_offset, upper_offset))
            slot += 1  # Compaction has left nothing at these offsets.
        return b"", start_offset

    def aborted_transactions(self, start_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap [start, upper)."""
        found: list[AbortedTransaction] = []
        for segment in self.from_offset(start_offset):
            if segment.indexes.transactions.collect(start_offset, upper_offset, found):
                break
        return found

    def size_between(self, start_offset: int, end_offset: int) -> int:
        """Estimate the bytes between two offsets by the offset indexes."""
        first, last = self.slot_of(start_offset), self.slot_of(end_offset)
        size = sum(segment.size for segment in self._segments[first:last])
        size += self._segments[last].indexes.offset.lookup(end_offset)
        return max(0, size - self._segments[first].indexes.offset.lookup(start_offset))
