"""Who must have a record before it counts as written: the arithmetic of in-sync replicas. Pure.

The high watermark is the end of what every in-sync replica has. It advances over the *maximal* ISR: the committed one
and whatever additions were proposed to the controller and not yet answered (a proposed removal still counts until it is
committed), and not at all while the committed ISR is smaller than `min.insync.replicas`, so that an acknowledged record
is on that many replicas. A broker that is the only replica is its own maximal ISR, and the same arithmetic holds.

Nothing proposes changes of the ISR yet, because followers do not fetch yet: the maximal ISR is the committed one.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Final

UNKNOWN_OFFSET: Final = -1
"""The end of a replica that has not fetched from this leader yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InSyncReplicas:
    """The committed ISR of a partition among its assigned replicas."""

    replicas: tuple[int, ...]
    isr: frozenset[int]

    @property
    def maximal_isr(self) -> Set[int]:
        return self.isr

    def effective_min_isr(self, min_insync_replicas: int) -> int:
        """The configured minimum, but never more than the partition has replicas."""
        return min(min_insync_replicas, len(self.replicas))

    def is_under_min_isr(self, min_insync_replicas: int) -> bool:
        return len(self.isr) < self.effective_min_isr(min_insync_replicas)

    def replicated_end(self, leader_id: int, leader_end: int, follower_ends: Mapping[int, int]) -> int:
        """The offset below which every member of the maximal ISR has the log."""
        ends = [follower_ends.get(broker, UNKNOWN_OFFSET) for broker in self.maximal_isr if broker != leader_id]
        return min([leader_end, *ends])
