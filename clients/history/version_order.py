"""Pass B: the values of one partition in the order of its log, without its holes.

Everything that a consumer returned is in it, and every committed write whose offset is known. Markers, aborted records
and what compaction removed leave holes in the offsets, so two values are neighbours if nothing known lies between.
"""

from collections.abc import Iterator, Sequence


class VersionOrder:
    """``insert`` as often as needed, ``freeze`` once, then look up."""

    __slots__ = ("_conflicts", "_first", "_indexes", "_last", "_values", "offsets")

    def __init__(self) -> None:
        self._values: dict[int, str] = {}
        """By offset; the first that was inserted."""
        self._conflicts: dict[int, set[str]] = {}
        self.offsets: Sequence[int] = ()
        self._indexes: dict[int, int] = {}
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}
        """Of values at more than one offset."""

    def insert(self, offset: int, value: str) -> None:
        """Add the value that was seen at an offset; again, if it was seen before."""
        known = self._values.setdefault(offset, value)
        if known != value:
            self._conflicts.setdefault(offset, {known}).add(value)

    def freeze(self) -> None:
        """Give the offsets their indexes, without holes."""
        self.offsets = sorted(self._values)
        self._indexes = {offset: index for index, offset in enumerate(self.offsets)}
        for index, offset in enumerate(self.offsets):
            for value in self._conflicts.get(offset) or (self._values[offset],):
                if self._first.setdefault(value, index) != index:
                    self._last[value] = index

    def __len__(self) -> int:
        return len(self.offsets)

    def value(self, index: int) -> str:
        """Return the value at an index; the one that was seen first, where there are several."""
        return self._values[self.offsets[index]]

    def values(self) -> Iterator[str]:
        """Return all values, in the order of their first offsets."""
        return iter(self._first)

    def index(self, offset: int, value: str) -> int | None:
        """Return the index of an offset; None if the value was not seen there."""
        index = self._indexes.get(offset)
        if index is None or value in self._conflicts.get(offset, (self._values[offset],)):
            return index
        return None

    def first(self, value: str) -> int | None:
        """Return the lowest index of a value; None if its offset is unknown."""
        return self._first.get(value)

    def last(self, value: str) -> int | None:
        """Return the highest index of a value; None if its offset is unknown."""
        return self._last.get(value, self._first.get(value))

    def conflicts(self) -> Iterator[tuple[int, list[str]]]:
        """Return the offsets at which several values were seen, and these."""
        return ((offset, sorted(values)) for offset, values in sorted(self._conflicts.items()))

    def duplicates(self) -> Iterator[tuple[str, list[int]]]:
        """Return the values at several offsets, and these."""
        offsets: dict[str, list[int]] = {value: [] for value in self._last}
        for offset in self.offsets if offsets else ():
            for value in self._conflicts.get(offset) or (self._values[offset],):
                if value in offsets:
                    offsets[value].append(offset)
        return iter(offsets.items())
