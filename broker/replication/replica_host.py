"""What all partitions of one broker share: who it is, its clock, and whom it asks.

A broker that is alone has no followers, so it looks nobody up and proposes nothing.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from oncelog.broker.replication.follower_contacts import FollowerContacts
from oncelog.broker.replication.isr_changes import IsrProposal, propose_to_nobody
from oncelog.protocol.topic_partition import TopicPartition

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None], str], object]
Supervise: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]], str], object]
"""Runs work, by its name, as long as the broker runs; begins it again after an exception."""


def loop_ms() -> int:
    """Milliseconds of the running loop's clock."""
    return int(asyncio.get_running_loop().time() * 1000)


def _is_anybody_alive(broker_id: int) -> bool:
    return True


@dataclass(slots=True, kw_only=True, eq=False)
class ReplicaHost:
    """One broker, as its partitions see it."""

    broker_id: int
    spawn: Spawn
    now_ms: Callable[[], int] = loop_ms
    broker_epoch: Callable[[], int] = lambda: -1
    is_alive: Callable[[int], bool] = _is_anybody_alive
    """Whether another broker is a live member of the cluster, as far as this one knows."""
    is_offline: Callable[[TopicPartition, int], bool] = lambda topic_partition, broker_id: False
    """Whether the controller says that nothing can be written to a broker's replica, because its disk is full, say."""
    replica_lag_time_max_ms: int = 30_000
    desertion_ms: int = 1_500
    """After so long without a fetch of an in-sync follower, a coordinator counts as deserted."""
    propose_isr: Callable[[IsrProposal], None] = propose_to_nobody
    contacts: FollowerContacts = field(default_factory=FollowerContacts)

    def is_present(self, topic_partition: TopicPartition, broker_id: int) -> bool:
        """Whether another broker's replica may be waited for: it is a member, is not silent, and can write."""
        is_there = broker_id not in self.contacts.silent and self.is_alive(broker_id)
        return is_there and not self.is_offline(topic_partition, broker_id)
