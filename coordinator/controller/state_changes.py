"""``StateChanges``: what written states change about partitions, in words for the controller's log. Pure.

Changes that are alike are one line, so that the failure of a broker with many partitions gives a few lines. Each change
is put into words when it is added, so that thousands of them do not hold up the loop at once.
"""

from collections.abc import Iterable
from typing import Final

from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.coordinator.metadata_store.znodes import PartitionState
from oncelog.protocol.topic_partition import TopicPartition

_MOST_LINES: Final = 20
_MOST_NAMES: Final = 5


class StateChanges:
    """The changes of one event."""

    def __init__(self) -> None:
        """Begin without changes."""
        self._counts: dict[str, int] = {}
        self._names: dict[str, list[TopicPartition]] = {}

    def add(self, partition: TopicPartition, before: PartitionState, after: PartitionState) -> None:
        """Add what a write changes about a partition, unless leader, ISR and ELR stay the same."""
        words = _words(before, after)
        if not words:
            return
        count = self._counts.get(words, 0)
        self._counts[words] = count + 1
        if count < _MOST_NAMES:
            self._names.setdefault(words, []).append(partition)

    def lines(self) -> list[str]:
        """Return a line for each kind of change, at most ``_MOST_LINES``, that with the most partitions first."""
        ranked = sorted(self._counts, key=lambda words: -self._counts[words])
        rest = sum(self._counts[words] for words in ranked[_MOST_LINES:])
        lines = [self._line(words) for words in ranked[:_MOST_LINES]]
        return [*lines, f"{rest} more partitions changed in other ways"] if rest else lines

    def _line(self, words: str) -> str:
        count, names = self._counts[words], self._names[words]
        if count == 1:
            return f"{names[0]}: {words}"
        more = f" and {count - len(names)} more" if count > len(names) else ""
        return f"{count} partitions: {words} ({', '.join(map(str, names))}{more})"


def _words(before: PartitionState, after: PartitionState) -> str:
    """Return what has changed; empty if leader, ISR and ELR are the same."""
    parts = []
    if before.leader != after.leader:
        parts.append(f"leader {_leader(before.leader)} -> {_leader(after.leader)}")
    elif before.leader_epoch != after.leader_epoch and set(before.isr) == set(after.isr):
        parts.append(f"leader {_leader(after.leader)} elected again")
    for name, old, new in (("ISR", before.isr, after.isr), ("ELR", before.elr, after.elr)):
        if set(old) != set(new):
            parts.append(f"{name} {_ids(old)} -> {_ids(new)}")
    return ", ".join(parts)


def _leader(leader: int) -> str:
    return "none" if leader == NO_LEADER else str(leader)


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(brokers))) or "none"
