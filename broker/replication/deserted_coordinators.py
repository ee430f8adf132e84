"""Which coordinators of this broker have no in-sync follower that fetches, and what the log says of it. Pure.

A *deserted* partition has other members in its ISR, and none of them has fetched from its leader for
``oncelog.coordinator.silence.max.ms``. They may be stopped, or wait for their disks. Or this broker was stopped, or cut
off, and one of them leads by now. The leader cannot tell which, so a deserted coordinator returns nothing from memory
that its successor might contradict: no committed offsets, nothing about transactions. Requests that wait for
replication need no such rule, because a successor does not fetch from this leader.

One line says when that begins, and one when it is over, however many partitions there are: followers are brokers, so
most of the partitions begin and end together. A partition that comes later is named in a further line.

Times are milliseconds of the event loop's clock.
"""

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog.broker.replication.follower_state import NEVER
from oncelog.protocol.topic_partition import TopicPartition

DEFAULT_MS: Final = 1_500
"""No controller passes over a broker that has been silent for a shorter time (``broker_channel``)."""
WITHOUT_LIMIT: Final = 0
_NEVER_DESERTED_MS: Final = 1 << 63
_FETCHES: Final = 2
"""Minimum silence, in longest waits of a fetch."""
_NAMED: Final = 3
_LOG_MS: Final = 10_000
"""Between two warnings."""

LastFetches = Mapping[TopicPartition, Mapping[int, int]]
"""Deserted partitions: when each other member of the ISR last fetched."""


class Line(NamedTuple):
    """A line of the log."""

    level: int
    text: str


def desertion_ms(silence_ms: int, fetch_wait_ms: int) -> int:
    """Return the milliseconds without a fetch after which a partition is deserted; 0 means never.

    Two fetches can have waited before.
    """
    return max(silence_ms, _FETCHES * fetch_wait_ms) if silence_ms != WITHOUT_LIMIT else _NEVER_DESERTED_MS


class DesertedCoordinators:
    """The deserted partitions that the log has reported."""

    def __init__(self) -> None:
        self._named: frozenset[TopicPartition] = frozenset()
        """The partitions that a warning has counted since their desertion began."""
        self._since_ms = 0
        self._next_warning_ms = 0

    def update(self, now_ms: int, deserted: LastFetches) -> Line | None:
        """Take over the partitions that are deserted now. Return the line to log, or None."""
        if not deserted:
            named, self._named = self._named, frozenset()
            return _end(named, now_ms - max(self._since_ms, 0)) if named else None
        if deserted.keys() <= self._named or now_ms < self._next_warning_ms:
            return None
        if not self._named:
            self._since_ms = max(time_ms for fetches in deserted.values() for time_ms in fetches.values())
        begun = deserted.keys() - self._named
        self._named |= begun
        self._next_warning_ms = now_ms + _LOG_MS
        return _beginning({partition: deserted[partition] for partition in begun}, now_ms)


def _beginning(deserted: LastFetches, now_ms: int) -> Line:
    last: dict[int, int] = {}
    for fetches in deserted.values():
        for broker, time_ms in fetches.items():
            last[broker] = max(last.get(broker, NEVER), time_ms)
    followers = ", ".join(f"broker {broker} {_ago(now_ms, last[broker])}" for broker in sorted(last))
    return Line(
        logging.WARNING,
        f"{_names(deserted)}: no in-sync follower fetches ({followers}). Another broker may coordinate by now, so "
        "committed offsets and transactions are not served; members of groups stay, commits wait for replication",
    )


def _end(named: frozenset[TopicPartition], lasted_ms: int) -> Line:
    text = (
        f"{_names(named)}: an in-sync follower fetches again, or another broker leads, after {lasted_ms / 1000:.1f} s"
    )
    return Line(logging.INFO, text)


def _ago(now_ms: int, time_ms: int) -> str:
    return "never fetched" if time_ms == NEVER else f"last fetched {(now_ms - time_ms) / 1000:.1f} s ago"


def _names(partitions: Mapping[TopicPartition, object] | frozenset[TopicPartition]) -> str:
    names = [str(partition) for partition in sorted(partitions)]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more coordinator partitions" if more > 0 else "")
