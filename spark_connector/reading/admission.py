"""How many of the new offsets one micro-batch reads: ``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger``. Pure.

The rules are those of Spark's ``KafkaMicroBatchStream``.
"""

import math
from collections.abc import Mapping

from oncelog.protocol.topic_partition import TopicPartition

Offsets = Mapping[TopicPartition, int]


def new_offsets(start: Offsets, latest: Offsets) -> int:
    """Return the number of offsets from ``start`` to ``latest``."""
    return sum(max(0, latest[tp] - offset) for tp, offset in start.items())


def limited_end(start: Offsets, latest: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Return ends that admit about ``limit`` offsets, from each partition in proportion to its new ones.

    At least one offset is admitted of each partition that has new ones, so that none starves: the sum may exceed the
    limit by one for each partition.
    """
    total = new_offsets(start, latest)
    if total <= limit:
        return {tp: max(offset, latest[tp]) for tp, offset in start.items()}
    return {
        tp: min(max(offset, latest[tp]), offset + _share(max(0, latest[tp] - offset), total, limit))
        for tp, offset in start.items()
    }


def _share(lag: int, total: int, limit: int) -> int:
    share = limit * lag / total
    return math.ceil(share) if share < 1 else math.floor(share)


class TriggerDelay:
    """Delays a batch until it is large enough, or the delay is over. The first batch is never delayed."""

    def __init__(self, min_offsets: int, max_delay_seconds: float) -> None:
        self._min_offsets = min_offsets
        self._max_delay_seconds = max_delay_seconds
        self._last_trigger = -math.inf

    def holds_back(self, count: int, now: float) -> bool:
        """Return whether a batch of ``count`` new offsets has to wait; ``now`` is seconds of the caller's clock."""
        if count < self._min_offsets and now - self._last_trigger < self._max_delay_seconds:
            return True
        self._last_trigger = now
        return False
