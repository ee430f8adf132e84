"""A produced batch in another codec, where its topic has one of its own (``compression.type``).

Nothing is decompressed for this alone: the blocks of the walk over the records
(``oncelog.protocol.records.record_walk``) are compressed again as they pass, and only what is compressed is kept.
"""

from collections.abc import Iterator
from typing import Final

from oncelog.protocol.records.compression import Compression, new_compressor
from oncelog.protocol.records.record_batch import COMPRESSION_MASK, HEADER_SIZE, BatchHeader, assemble_batch
from oncelog.protocol.records.record_walk import WorkBudget

UNITS_PER_KIB: Final = {
    Compression.NONE: 0,
    Compression.GZIP: 30,
    Compression.SNAPPY: 2,
    Compression.LZ4: 2,
    Compression.ZSTD: 5,
}
"""What compressing costs, in the units of a ``WorkBudget``."""


class BatchTooLarge(Exception):
    """A batch in another codec is larger than its topic accepts."""


class Recompression:
    """The records of a batch in another codec, built from the blocks of a walk as they pass."""

    __slots__ = ("_budget", "_compression", "_compressor", "_left", "_parts")

    def __init__(self, compression: Compression, *, max_bytes: int, budget: WorkBudget) -> None:
        """Begin a batch of at most ``max_bytes``."""
        self._compression = compression
        self._compressor = new_compressor(compression)
        self._budget = budget
        self._left = max_bytes - HEADER_SIZE
        self._parts: list[bytes] = []

    def pass_on(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the blocks, having compressed them. Raises BatchTooLarge."""
        for block in blocks:
            self.add(block)
            yield block

    def add(self, block: bytes) -> None:
        """Compress a block. Raises BatchTooLarge."""
        self._add(self._compressor.compress(block))
        self._budget.left -= UNITS_PER_KIB[self._compression] * len(block) // 1024

    def batch(self, header: BatchHeader) -> bytearray:
        """Build the batch from all blocks that have passed. Raises BatchTooLarge."""
        self._add(self._compressor.flush())
        attributes = header.attributes & ~COMPRESSION_MASK | self._compression
        return assemble_batch(header._replace(attributes=attributes), b"".join(self._parts))

    def _add(self, compressed: bytes) -> None:
        self._left -= len(compressed)
        if self._left < 0:
            raise BatchTooLarge
        self._parts.append(compressed)
