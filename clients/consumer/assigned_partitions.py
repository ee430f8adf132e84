"""The partitions that are assigned to a consumer, and the position of each. Pure: time is an argument.

A partition is in one of four phases. ``FETCHING`` is the only one in which it is read::

    INITIALIZING ── committed offset, seek ──> AWAITING_VALIDATION ──┐
         │    └───────────────── no epoch known ───────────────────> FETCHING
         └── nothing committed ──> AWAITING_RESET ── offset found ──> FETCHING

A new leader sends a position whose epoch is known to AWAITING_VALIDATION: OffsetForLeaderEpoch returns where that epoch
ends in the leader's log, and if that is before the position, the records there have been truncated (KIP-320). A
position that is out of range goes to AWAITING_RESET. A seek may come in any phase.

A position is the offset of the next record to return, with the leader epoch of the record before it, which is also what
is committed. It moves past what is never returned, too: markers, aborted records, offsets that compaction emptied.

The rules are those of Kafka's ``SubscriptionState.java``.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from oncelog.clients.consumer.consumer_errors import LogTruncated, NoOffsetForPartition
from oncelog.clients.errors import IllegalState
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.protocol.topic_partition import TopicPartition

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
NO_NODE: Final = -1
TIMER_SLACK: Final = 0.001
"""Seconds that a timer of the loop may fire before its time; work is due by then."""


AFTER_METADATA: Final = math.inf
"""The time of a retry that has to wait for new metadata."""


class Phase(Enum):
    """The state of a partition's position."""

    INITIALIZING = auto()
    """It has just been assigned: the committed offset is not known yet."""
    FETCHING = auto()
    """Its position is valid: it can be read."""
    AWAITING_RESET = auto()
    """The offset that the reset policy means."""
    AWAITING_VALIDATION = auto()
    """The leader's confirmation that the records before the position are still in its log."""


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    """Where to go on when there is no position (``auto.offset.reset``)."""

    timestamp: int | None
    """The timestamp for ListOffsets, or one of its special values; None leaves it to the application."""
    is_age: bool = False
    """Whether the timestamp is a number of milliseconds before now (KIP-1106)."""


RESET_TO_EARLIEST: Final = ResetPolicy(-2)
RESET_TO_LATEST: Final = ResetPolicy(-1)
NO_RESET: Final = ResetPolicy(None)


@dataclass(frozen=True, slots=True)
class Leader:
    """A partition's leader: the id of its broker and its epoch, -1 where they are not known."""

    node_id: int = NO_NODE
    epoch: int = NO_EPOCH


NO_LEADER: Final = Leader()


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """The offset to read next, the epoch of the record before it (-1 unknown), and the leader it is to be read from."""

    offset: int
    offset_epoch: int = NO_EPOCH
    leader: Leader = NO_LEADER


class AssignedPartition:
    """The position of one assigned partition."""

    __slots__ = (
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "paused",
        "pending_revocation",
        "phase",
        "position",
        "preferred_replica",
        "preferred_until",
        "reset_policy",
        "retry_at",
    )

    def __init__(self) -> None:
        self.phase = Phase.INITIALIZING
        self.position = FetchPosition(NO_OFFSET)
        """Meaningless while INITIALIZING and AWAITING_RESET."""
        self.paused = False
        self.pending_revocation = False
        """It is about to be revoked: no records are fetched or returned."""
        self.reset_policy = NO_RESET
        self.retry_at = 0.0
        """Time of the next lookup of its position, on the loop's clock."""
        self.preferred_replica: int | None = None
        self.preferred_until = 0.0
        self.high_watermark = self.last_stable_offset = self.log_start_offset = NO_OFFSET

    @property
    def is_fetchable(self) -> bool:
        return self.phase is Phase.FETCHING and not self.paused and not self.pending_revocation

    def seek(self, position: FetchPosition) -> None:
        """Set the position. It is validated first if its leader epoch and the leader's are known."""
        self.position = position
        self.reset_policy = NO_RESET
        self.retry_at = 0.0
        needs_validation = position.offset_epoch != NO_EPOCH and position.leader.epoch != NO_EPOCH
        self.phase = Phase.AWAITING_VALIDATION if needs_validation else Phase.FETCHING

    def reset(self, policy: ResetPolicy) -> None:
        self.phase = Phase.AWAITING_RESET
        self.reset_policy = policy
        self.retry_at = 0.0

    def follow(self, leader: Leader) -> None:
        """Apply the leader of new metadata: a position that was read from another one is validated again."""
        if leader.node_id == NO_NODE or self.phase in (Phase.INITIALIZING, Phase.AWAITING_RESET):
            return
        if self.position.leader != leader:
            self.preferred_replica = None
            self.seek(replace(self.position, leader=leader))


class AssignedPartitions(dict[TopicPartition, AssignedPartition]):
    """The assigned partitions, with the transitions that responses about positions cause.

    A transition names the request that its response belongs to: if the partition has changed since, it does nothing.
    """

    def __init__(self, default_reset: ResetPolicy) -> None:
        super().__init__()
        self.default_reset = default_reset

    def __missing__(self, topic_partition: TopicPartition) -> AssignedPartition:
        raise IllegalState(f"{topic_partition} is not assigned")

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Replace the assignment. Partitions that stay keep their positions."""
        assigned = {partition: self.get(partition) or AssignedPartition() for partition in partitions}
        self.clear()
        self.update(assigned)

    def in_phase(self, phase: Phase, now: float) -> dict[TopicPartition, AssignedPartition]:
        """Return the partitions in this phase that may be looked up now."""
        return {
            topic_partition: partition
            for topic_partition, partition in self.items()
            if partition.phase is phase and partition.retry_at <= now + TIMER_SLACK and not partition.pending_revocation
        }

    @property
    def has_all_positions(self) -> bool:
        """Return whether every partition has a valid position."""
        return all(partition.phase is Phase.FETCHING for partition in self.values())

    @property
    def next_retry_at(self) -> float:
        """Return the earliest time of a lookup of a partition without a valid position; infinite if all have one."""
        partitions = self.values()
        waiting = [p.retry_at for p in partitions if p.phase is not Phase.FETCHING and not p.pending_revocation]
        return min(waiting, default=math.inf)

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit: the valid positions."""
        return {
            topic_partition: OffsetAndMetadata(partition.position.offset, partition.position.offset_epoch)
            for topic_partition, partition in self.items()
            if partition.phase is Phase.FETCHING
        }

    def mark_pending_revocation(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching and returning records of these: they are about to be revoked."""
        for topic_partition in partitions:
            self[topic_partition].pending_revocation = True

    def retry_later(self, partitions: Collection[TopicPartition], at: float) -> None:
        """Set the time of the next lookup of those that are still assigned."""
        for topic_partition in partitions:
            partition = self.get(topic_partition)
            if partition is not None:
                partition.retry_at = at

    # Results of position lookups

    def reset_initializing(self, partitions: Collection[TopicPartition]) -> None:
        """Reset partitions without a committed offset. Raises ``NoOffsetForPartition`` without a reset policy."""
        waiting = [tp for tp in partitions if (p := self.get(tp)) and p.phase is Phase.INITIALIZING]
        if waiting and self.default_reset == NO_RESET:
            raise NoOffsetForPartition(waiting)
        for topic_partition in waiting:
            self[topic_partition].reset(self.default_reset)

    def complete_reset(self, topic_partition: TopicPartition, policy: ResetPolicy, position: FetchPosition) -> None:
        """Set the position that a reset policy has found."""
        partition = self.get(topic_partition)
        if partition is not None and partition.phase is Phase.AWAITING_RESET and partition.reset_policy == policy:
            partition.seek(position)

    def complete_validation(
        self, topic_partition: TopicPartition, validated: FetchPosition, end_epoch: int, end_offset: int
    ) -> None:
        """Apply the end of a position's leader epoch, or of the last epoch before it, in the leader's log.

        Raises ``LogTruncated`` if that is before the position and there is no reset policy. With one, reading goes on
        where the logs part, or where the policy says if the leader does not know.
        """
        partition = self.get(topic_partition)
        if partition is None or partition.phase is not Phase.AWAITING_VALIDATION or partition.position != validated:
            return
        is_known = end_offset != NO_OFFSET and end_epoch != NO_EPOCH
        if is_known and end_offset >= validated.offset:
            partition.phase = Phase.FETCHING
        elif self.default_reset == NO_RESET:
            diverging = OffsetAndMetadata(end_offset, end_epoch) if is_known else None
            raise LogTruncated(topic_partition, validated.offset, diverging)
        elif is_known:
            partition.position = FetchPosition(end_offset, end_epoch, validated.leader)
            partition.phase = Phase.FETCHING
        else:
            partition.reset(self.default_reset)

    # Leaders and replicas

    def follow_leaders(self, leader_of: Callable[[TopicPartition], Leader]) -> None:
        """Apply the leaders of new metadata. Partitions of ``AFTER_METADATA`` may be looked up now."""
        for topic_partition, partition in self.items():
            partition.follow(leader_of(topic_partition))
            if partition.retry_at == AFTER_METADATA:
                partition.retry_at = 0.0

    def prefer_replica(self, topic_partition: TopicPartition, node_id: int, until: float) -> None:
        """Prefer the replica that the leader recommends (KIP-392). The time of a known preference is not extended."""
        partition = self.get(topic_partition)
        if partition is not None and partition.preferred_replica != node_id:
            partition.preferred_replica = node_id
            partition.preferred_until = until

    def read_replica(self, topic_partition: TopicPartition, now: float) -> int:
        """Return the broker to fetch from: the preferred replica until its time, else the leader; -1 if unknown."""
        partition = self[topic_partition]
        if partition.preferred_replica is not None:
            if now <= partition.preferred_until:
                return partition.preferred_replica
            partition.preferred_replica = None
        return partition.position.leader.node_id
