"""Filters that narrow the ranges to read, instead of dropping rows afterwards: partition, offset, timestamp. Pure.

A comparison of partition or offset is applied exactly, so Spark need not apply it again. One of timestamp only raises
the start: the broker knows the first offset whose record is not older than a time, and all records before it are older;
records after it may be older too, so Spark still has to filter. (An upper bound does not narrow anything: a late record
may be at any offset.)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.offset_ranges import OffsetRange

Operator = Literal["=", "<", "<=", ">", ">=", "in"]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column operator value``; for ``in`` the value is a tuple."""

    column: str
    operator: Operator
    value: object


@dataclass(slots=True)
class PushedFilters:
    """The filters that Spark has pushed into one read."""

    min_timestamp: int | None = None
    """Milliseconds since the epoch, never negative; None to begin where the range does."""
    _kept: list[Comparison] = field(default_factory=list)

    def push(self, comparison: Comparison) -> bool:
        """Take a comparison into account; return whether it then holds for every row that is read."""
        column = comparison.column.lower()
        if column in ("partition", "offset") and _is_about_integers(comparison):
            self._kept.append(comparison)
            return True
        if column == "timestamp" and comparison.operator in ("=", ">", ">="):
            self._raise_min_timestamp(comparison.value)
        return False

    def _raise_min_timestamp(self, value: object) -> None:
        if isinstance(value, datetime) and value.tzinfo is not None:
            timestamp = (value - _EPOCH) // _MILLISECOND
            if timestamp >= 0:  # ListOffsets has no times before 1970: negative numbers stand for positions.
                self.min_timestamp = max(timestamp, timestamp if self.min_timestamp is None else self.min_timestamp)

    def narrowed(self, ranges: Iterable[OffsetRange], from_offsets: Mapping[TopicPartition, int]) -> list[OffsetRange]:
        """Return the parts of ranges that the filters leave; ``from_offsets`` are the offsets of ``min_timestamp``."""
        return [self._narrow(each, from_offsets.get(each.topic_partition, 0)) for each in ranges]

    def _narrow(self, whole: OffsetRange, from_offset: int) -> OffsetRange:
        start, end = max(whole.start, from_offset), whole.end
        for comparison in self._kept:
            if comparison.column.lower() == "partition":
                if not _holds(whole.partition, comparison):
                    end = start
            else:
                lowest, behind = _bounds(comparison)
                start, end = max(start, lowest), min(end, behind)
        return OffsetRange(whole.topic, whole.partition, start, max(start, end), whole.topic_id)


def _is_about_integers(comparison: Comparison) -> bool:
    if comparison.operator == "in":
        return (
            comparison.column.lower() == "partition"
            and isinstance(comparison.value, tuple | list)
            and all(_is_integer(each) for each in comparison.value)
        )
    return _is_integer(comparison.value)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _holds(partition: int, comparison: Comparison) -> bool:
    if isinstance(comparison.value, tuple | list):
        return partition in comparison.value
    lowest, behind = _bounds(comparison)
    return lowest <= partition < behind


def _bounds(comparison: Comparison) -> tuple[int, int]:
    """Return the lowest number for which it holds, and the next one above for which it does not."""
    value = comparison.value
    assert isinstance(value, int), f"a comparison with {type(value).__name__} was kept"
    match comparison.operator:
        case "=":
            return value, value + 1
        case "<":
            return 0, value
        case "<=":
            return 0, value + 1
        case ">":
            return value + 1, 2**63
        case _:
            return value, 2**63
