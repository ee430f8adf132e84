"""Where reading starts and ends, as the options define it, before any request to the cluster. Pure.

For each partition a bound becomes a timestamp for ListOffsets (ms since the epoch, or ``EARLIEST``, ``LATEST``), or an
offset that needs no request. The names and rules are those of Spark's Kafka source.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.offset_ranges import listed
from oncelog.spark_connector.plain_errors import UserError
from oncelog.spark_connector.reading.topic_selection import parse_partition_numbers

EARLIEST: Final = -2
LATEST: Final = -1
"""Timestamps of ListOffsets; ``startingOffsets`` has the same numbers in JSON."""


class BoundInvalid(UserError):
    """A bound does not fit the partitions that exist."""


@dataclass(frozen=True, slots=True)
class Everywhere:
    """``EARLIEST`` or ``LATEST`` of every partition."""

    position: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset for each partition, or ``EARLIEST``, ``LATEST``."""

    option: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The first record of each partition that is not older (ms since the epoch)."""

    option: str
    timestamp: int
    or_latest: bool


@dataclass(frozen=True, slots=True)
class Timestamps:
    """The same, with a timestamp for each partition."""

    option: str
    timestamps: Mapping[TopicPartition, int]
    or_latest: bool


Bound = Everywhere | Offsets | Timestamp | Timestamps
FROM_EARLIEST: Final = Everywhere(EARLIEST)
FROM_LATEST: Final = Everywhere(LATEST)


@dataclass(frozen=True, slots=True)
class BoundOffsets:
    """A bound by partitions: the timestamps to look up by ListOffsets, and the offsets that are known without it."""

    timestamps: Mapping[TopicPartition, int]
    known: Mapping[TopicPartition, int]


def offsets_of(bound: Bound, partitions: Collection[TopicPartition]) -> BoundOffsets:
    """Return the bound of each partition.

    Raises ``BoundInvalid`` if a bound with numbers for partitions does not name exactly these partitions.
    """
    match bound:
        case Everywhere(position):
            return BoundOffsets(dict.fromkeys(partitions, position), {})
        case Timestamp(_, timestamp, _):
            return BoundOffsets(dict.fromkeys(partitions, timestamp), {})
        case Timestamps(option, timestamps, _):
            _must_name(option, timestamps, partitions)
            return BoundOffsets(dict(timestamps), {})
        case Offsets(option, offsets):
            _must_name(option, offsets, partitions)
            named = {tp: offset for tp, offset in offsets.items() if offset < 0}
            return BoundOffsets(named, {tp: offset for tp, offset in offsets.items() if offset >= 0})


def require_found(bound: Bound, missing: Collection[TopicPartition]) -> None:
    """Raise ``BoundInvalid`` if partitions without a record after the bound's time may not begin at their ends.

    ``missing`` are these partitions.
    """
    if missing and isinstance(bound, Timestamp | Timestamps) and not bound.or_latest:
        raise BoundInvalid(
            f"{bound.option}: no record is as young as that in {listed(missing)}; "
            "startingOffsetsByTimestampStrategy=latest begins at the end there"
        )


def reversed_times(start: Bound, end: Bound) -> list[TopicPartition]:
    """Return the partitions whose start time is after their end time, if both options have times by partition.

    Offsets are compared when they are known; those of two times are equal in a partition without records.
    """
    if not (isinstance(start, Timestamps) and isinstance(end, Timestamps)):
        return []
    return [tp for tp, time in start.timestamps.items() if time > end.timestamps.get(tp, time)]


def _must_name(option: str, numbers: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]) -> None:
    missing, unknown = set(partitions) - numbers.keys(), numbers.keys() - set(partitions)
    if missing:
        raise BoundInvalid(f"{option}: has to name every partition that is read, and leaves out {listed(missing)}")
    if unknown:
        raise BoundInvalid(f"{option}: names {listed(unknown)}, which is not read or does not exist")


@dataclass(frozen=True, slots=True)
class BoundParser:
    """Parses ``startingOffsets`` or ``endingOffsets``: a name of ``named``, or JSON with numbers from ``lowest``."""

    option: str
    named: Mapping[str, Everywhere]
    lowest: int

    def __call__(self, text: str) -> Bound:
        if text.strip().lower() in self.named:
            return self.named[text.strip().lower()]
        if not text.strip().startswith("{"):
            raise ValueError
        return Offsets(self.option, _checked(parse_partition_numbers(text), self.lowest))

    @property
    def valid(self) -> str:
        names = ", ".join(self.named)
        allowed = "-1 for latest" if self.lowest == LATEST else "-2 for earliest and -1 for latest"
        return f'{names} or JSON as {{"topic": {{"0": 23, "1": -1}}}}, where a number is an offset, or {allowed}'


def parse_timestamps(text: str) -> dict[TopicPartition, int]:
    """Parse ``{"topic": {"0": 1700000000000}}``: milliseconds since the epoch."""
    return _checked(parse_partition_numbers(text), 0)


def _checked(numbers: dict[TopicPartition, int], lowest: int) -> dict[TopicPartition, int]:
    if low := [number for number in numbers.values() if number < lowest]:
        raise ValueError(f"{low[0]} is not allowed")
    return numbers
