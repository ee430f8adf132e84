"""Where to begin in a partition, as users say it: at an end, an offset, so many records before the end, at a time."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Final

from oncelog.clients.admin.offsets import EARLIEST, LATEST, FoundOffset, list_offsets
from oncelog.clients.cluster import Cluster
from oncelog.protocol.topic_partition import TopicPartition

_WORDS: Final = {"beginning": EARLIEST, "start": EARLIEST, "earliest": EARLIEST, "end": LATEST, "latest": LATEST}


class PositionKind(Enum):
    """How a position's number is meant."""

    OFFSET = auto()
    BEFORE_END = auto()
    TIMESTAMP = auto()
    """Milliseconds since the epoch, or ``EARLIEST`` or ``LATEST``."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a log that is the same words for every partition."""

    kind: PositionKind
    number: int


BEGINNING: Final = Position(PositionKind.TIMESTAMP, EARLIEST)
END: Final = Position(PositionKind.TIMESTAMP, LATEST)


def parse_position(text: str) -> Position:
    """Parse ``beginning``, ``end``, ``42``, ``-10`` (before the end), ``@1718000000000`` or ``@2024-06-10T08:00``."""
    if text in _WORDS:
        return Position(PositionKind.TIMESTAMP, _WORDS[text])
    if text.startswith("@"):
        return Position(PositionKind.TIMESTAMP, _parse_time(text[1:]))
    try:
        number = int(text)
    except ValueError:
        hint = f"; a time has an @ in front: @{text}" if _is_time(text) else ""
        raise ValueError(f"{text!r} is not beginning, end, OFFSET, -COUNT or @TIME{hint}") from None
    return Position(PositionKind.OFFSET, number) if number >= 0 else Position(PositionKind.BEFORE_END, -number)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _parse_time(text: str) -> int:
    """Parse milliseconds or ISO 8601, in local time unless it names another zone."""
    if text.isdecimal():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ValueError(f"{text!r} is neither milliseconds nor a time like 2024-06-10T08:00:00+02:00") from None


async def resolve_position(
    cluster: Cluster, partitions: Collection[TopicPartition], position: Position, *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    """Return the offset that a position means in each partition. Raises ``BrokerRefused``.

    An offset is taken as it is; a distance ends at the beginning; a time that no record reaches is the end.
    """
    if position.kind is PositionKind.OFFSET:
        return dict.fromkeys(partitions, position.number)
    ends = _offsets(await _find(cluster, partitions, LATEST, read_committed=read_committed))
    if position == END:
        return ends
    if position.kind is PositionKind.BEFORE_END:
        beginnings = _offsets(await _find(cluster, partitions, EARLIEST))
        return {tp: max(beginnings[tp], end - position.number) for tp, end in ends.items()}
    found = await _find(cluster, partitions, position.number, read_committed=read_committed)
    return {tp: ends[tp] if at.offset is None else at.offset for tp, at in found.items()}


async def _find(
    cluster: Cluster, partitions: Iterable[TopicPartition], timestamp: int, *, read_committed: bool = False
) -> dict[TopicPartition, FoundOffset]:
    results = await list_offsets(cluster, dict.fromkeys(partitions, timestamp), read_committed=read_committed)
    return results.require_all()


def _offsets(found: Mapping[TopicPartition, FoundOffset]) -> dict[TopicPartition, int]:
    return {topic_partition: at.offset or 0 for topic_partition, at in found.items()}
