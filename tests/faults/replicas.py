"""Whether the replicas of a partition hold the same bytes, up to the high watermark. Reads their segment files."""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_HEAD: Final = struct.Struct(">qi")
"""A batch's base offset, and how many bytes follow these twelve (KIP-98)."""


def log_directories(place: Path) -> dict[str, Path]:
    """The partitions in a broker's data directory, by ``topic-index``."""
    return {
        entry.name: entry
        for entry in place.iterdir()
        if entry.is_dir() and entry.name.rpartition("-")[2].isdecimal() and (entry / "partition.metadata").exists()
    }


def read_log(directory: Path) -> bytes:
    """All segments of a log, one after the other."""
    return b"".join(segment.read_bytes() for segment in sorted(directory.glob("*.log")))


def below(log: bytes, high_watermark: int) -> bytes:
    """The batches that begin below an offset. What is not a whole batch ends it."""
    end = 0
    for position, base_offset, size in batches(log):
        if base_offset >= high_watermark:
            break
        end = position + size
    return log[:end]


def batches(log: bytes) -> Iterator[tuple[int, int, int]]:
    """(position, base offset, size in bytes) of each batch that is there as a whole."""
    position = 0
    while position + _HEAD.size <= len(log):
        base_offset, length = _HEAD.unpack_from(log, position)
        size = _HEAD.size + length
        if length <= 0 or position + size > len(log):
            return
        yield position, base_offset, size
        position += size


def difference(logs: Mapping[int, bytes], high_watermark: int) -> str | None:
    """Where replicas (by broker) differ below the high watermark; None if they do not."""
    cut = {broker_id: below(log, high_watermark) for broker_id, log in logs.items()}
    first_id, first = next(iter(cut.items()))
    for broker_id, other in cut.items():
        if other != first:
            return f"{_where(first, other)}; bytes: broker {first_id} {len(first)}, broker {broker_id} {len(other)}"
    return None


def _where(one: bytes, other: bytes) -> str:
    for (position, offset, size), (_, other_offset, other_size) in zip(batches(one), batches(other), strict=False):
        if offset != other_offset or one[position : position + size] != other[position : position + other_size]:
            return f"the batch at offset {offset} differs (there {other_offset}, {size} and {other_size} bytes)"
    return "one ends before the other"
