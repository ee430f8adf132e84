"""What all partitions of one broker share: which broker it is, its clock, and the other brokers as it knows them.

A broker that is alone has no followers, so it proposes no changes of an ISR.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from oncelog.broker.replication.follower_contacts import FollowerContacts
from oncelog.broker.replication.isr_changes import IsrProposal, reject_proposal
from oncelog.broker.replication.replication_quota import ReplicationQuota
from oncelog.protocol.topic_partition import TopicPartition

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None], str], object]
Supervise: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]], str], object]
"""Runs work, by its name, as long as the broker runs; begins it again after an exception."""


def loop_ms() -> int:
    """Return the time of the running loop's clock, in milliseconds."""
    return to_ms(asyncio.get_running_loop().time())


def to_ms(seconds: float) -> int:
    """Return a time of a loop's clock as ``loop_ms`` does."""
    return int(seconds * 1000)


def _always_alive(broker_id: int) -> bool:
    return True


def _never_offline(topic_partition: TopicPartition, broker_id: int) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplicaHost:
    """One broker, as its partitions see it."""

    broker_id: int
    spawn: Spawn
    now_ms: Callable[[], int] = loop_ms
    broker_epoch: Callable[[], int] = lambda: -1
    is_alive: Callable[[int], bool] = _always_alive
    """Whether another broker is a live member of the cluster, as far as this one knows."""
    is_offline: Callable[[TopicPartition, int], bool] = _never_offline
    """Whether the controller says that nothing can be written to a broker's replica, because its disk is full, say."""
    replica_lag_time_max_ms: int = 30_000
    desertion_ms: int = 1_500
    """Milliseconds without a fetch of an in-sync follower after which a coordinator counts as deserted."""
    propose_isr: Callable[[IsrProposal], None] = reject_proposal
    contacts: FollowerContacts = field(default_factory=FollowerContacts)
    quota: ReplicationQuota | None = None
    """Of what followers fetch from this broker; None if it is not limited."""

    def is_present(self, topic_partition: TopicPartition, broker_id: int) -> bool:
        """Return whether a broker's replica may hold records back: it is a member, is not silent, and can write."""
        is_member = broker_id not in self.contacts.silent and self.is_alive(broker_id)
        return is_member and not self.is_offline(topic_partition, broker_id)

    def must_throttle(self, topic_partition: TopicPartition) -> bool:
        """Return whether followers that are not in sync have fetched too much for the moment."""
        quota = self.quota
        return quota is not None and quota.is_throttled(topic_partition) and quota.is_exceeded(self.now_ms() / 1000)

    def note_sent(self, topic_partition: TopicPartition, size: int) -> None:
        """Count bytes that a follower, in sync or not, is sent."""
        quota = self.quota
        if quota is not None and quota.is_throttled(topic_partition):
            quota.record(size, self.now_ms() / 1000)
