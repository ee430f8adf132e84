"""``BlockWindow``: bytes that come in blocks, of which whole elements are wanted.

What is behind is dropped, and what is ahead is not fetched before it is wanted, so the window holds about one element
and one block. Blocks are joined once for an element, however many it takes.
"""

from collections.abc import Generator, Iterator
from typing import Final

from oncelog.protocol.records.record_walk import WorkBudget

_BYTES_PER_UNIT: Final = 1024
"""Bytes that are decompressed in about the time of one unit."""


class BlockWindow:
    """A window over blocks: ``held[at:]`` is what comes next."""

    __slots__ = ("_blocks", "_budget", "at", "held")

    def __init__(self, blocks: Iterator[bytes], budget: WorkBudget) -> None:
        self._blocks = blocks
        self._budget = budget
        self.held = b""
        self.at = 0

    @property
    def left(self) -> int:
        """Bytes that the window has from ``at`` on."""
        return len(self.held) - self.at

    def need(self, size: int) -> Generator[None, None, bool]:
        """Hold at least ``size`` bytes from ``at`` on. Returns False if the blocks end before."""
        have = len(self.held) - self.at
        if have >= size:
            return True
        parts = [self.held[self.at :]] if have else []
        budget = self._budget
        while have < size:
            if budget.left <= 0:
                yield
            block = next(self._blocks, None)
            if block is None:
                break
            budget.left -= 1 + len(block) // _BYTES_PER_UNIT
            parts.append(block)
            have += len(block)
        self.held, self.at = b"".join(parts), 0
        return have >= size
