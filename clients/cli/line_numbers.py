"""Line numbers as people write them: ``3, 5-9``. Pure."""

from dataclasses import dataclass, field
from typing import Final

_MOST_RANGES: Final = 1000
_MOST_SHOWN: Final = 20


@dataclass(slots=True)
class LineNumbers:
    """A set of line numbers that are added once each, mostly in order; of very many pieces only their count is kept."""

    count: int = 0
    _ranges: list[list[int]] = field(default_factory=list)
    """First and last number of each, in the order in which they were begun."""

    def add(self, number: int) -> None:
        self.count += 1
        if self._ranges and self._ranges[-1][1] == number - 1:
            self._ranges[-1][1] = number
        elif len(self._ranges) < _MOST_RANGES:
            self._ranges.append([number, number])

    def __str__(self) -> str:
        ranges = _joined(self._ranges)
        shown = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:_MOST_SHOWN]]
        named = sum(last - first + 1 for first, last in ranges[:_MOST_SHOWN])
        more = f" and {self.count - named} more" if self.count > named else ""
        return ", ".join(shown) + more


def _joined(ranges: list[list[int]]) -> list[tuple[int, int]]:
    """Return the ranges in order, adjacent ones joined."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(map(tuple, ranges)):
        if joined and joined[-1][1] == first - 1:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined
