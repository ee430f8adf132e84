"""Which replicas must have a record before it counts as replicated: the arithmetic of in-sync replicas. Pure.

The high watermark is the end of what every in-sync replica has. It advances over the *maximal* ISR: the committed one
and whatever additions were proposed to the controller and not yet decided (a proposed removal still counts until it is
committed), and not at all while the committed ISR is smaller than `min.insync.replicas`, so that an acknowledged record
is on that many replicas. Nor does it advance while the controller counts other replicas as eligible to lead (KIP-966),
also when the minimum has been lowered meanwhile: they have what is acknowledged up to now. A broker that is the only
replica is its own maximal ISR, and the same arithmetic holds.

A follower that is out of the ISR but close behind also holds the high watermark back: else a leader that goes on
writing would stay ahead of it for ever, and it could never join. Source: Kafka's ``cluster/Partition.scala``.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace

from oncelog.broker.replication.follower_state import UNKNOWN_OFFSET, FollowerState


@dataclass(frozen=True, slots=True, kw_only=True)
class InSyncReplicas:
    """The ISR of a partition among its assigned replicas, and the ISR that is proposed to the controller."""

    replicas: tuple[int, ...]
    isr: frozenset[int]
    """The committed ISR."""
    proposed: frozenset[int] | None = None
    """The ISR that is proposed and not yet decided; None without a proposal under way."""
    eligible: frozenset[int] = frozenset()
    """The replicas outside the ISR that the controller counts as eligible leaders."""

    @property
    def maximal_isr(self) -> Set[int]:
        return self.isr if self.proposed is None else self.isr | self.proposed

    @property
    def complete(self) -> Set[int]:
        """The replicas that have everything acknowledged, by what the controller has decided or may decide now."""
        return self.maximal_isr | self.eligible

    def effective_min_isr(self, min_insync_replicas: int) -> int:
        """Return the configured minimum, but never more than the partition has replicas."""
        return min(min_insync_replicas, len(self.replicas))

    def is_under_min_isr(self, min_insync_replicas: int) -> bool:
        if self.eligible:
            return True
        return len(self.isr) < min_insync_replicas and len(self.isr) < len(self.replicas)

    def replicated_end(
        self, leader_id: int, leader_end: int, followers: Mapping[int, FollowerState], is_alive: Callable[[int], bool]
    ) -> int:
        """Return the offset below which every member of the maximal ISR has the log, and every follower to join."""
        end, maximal = leader_end, self.isr if self.proposed is None else self.maximal_isr
        for broker in maximal:
            if broker != leader_id:
                follower = followers.get(broker)
                end = min(end, UNKNOWN_OFFSET if follower is None else follower.end)
        for broker, follower in followers.items():
            if follower.end < end and broker not in maximal and _may_join(broker, follower, is_alive):
                end = follower.end
        return end

    def joining(
        self,
        followers: Mapping[int, FollowerState],
        *,
        high_watermark: int,
        epoch_start_offset: int,
        is_alive: Callable[[int], bool],
    ) -> frozenset[int]:
        """Return the followers out of the ISR, close behind, that have all that is replicated and the epoch's start.

        The second matters while the high watermark lags behind after an election: what lies between was replicated
        under the former leader, and a follower that lacks it must not be elected (KAFKA-7128).
        """
        needed = max(high_watermark, epoch_start_offset)
        return frozenset(
            broker
            for broker, follower in followers.items()
            if broker not in self.isr and follower.end >= needed and _may_join(broker, follower, is_alive)
        )

    def leaving(self, leader_id: int, followers: Mapping[int, FollowerState]) -> frozenset[int]:
        """Return the members that were too far behind for too long at the last check."""
        return frozenset(
            broker
            for broker in self.isr
            if broker != leader_id and not (broker in followers and followers[broker].is_close)
        )

    def leaving_silent(self, silent: Set[int], min_insync_replicas: int) -> frozenset[int]:
        """Return the members that have fallen silent, if enough stay: the minimum, and one beside the leader.

        The leader cannot tell whether they are cut off from the others, or it is.
        """
        leaving, needed = self.isr & silent, max(self.effective_min_isr(min_insync_replicas), 2)
        return leaving if len(self.isr) - len(leaving) >= needed else frozenset()

    def propose(self, isr: Set[int]) -> "InSyncReplicas":
        assert self.proposed is None, self
        return replace(self, proposed=frozenset(isr))

    def withdraw(self) -> "InSyncReplicas":
        """Return the state without the proposal, which the controller did not and will not carry out."""
        return replace(self, proposed=None)

    def commit(self, isr: Set[int], eligible: Set[int] = frozenset()) -> "InSyncReplicas":
        return InSyncReplicas(replicas=self.replicas, isr=frozenset(isr), eligible=frozenset(eligible))


def _may_join(broker: int, follower: FollowerState, is_alive: Callable[[int], bool]) -> bool:
    return follower.is_close and not follower.is_refused and is_alive(broker)
