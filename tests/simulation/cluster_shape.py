"""The shape of a cluster: its size, how it replicates, and so what ``docs/explanation/durability.md`` promises of it.

One machine may lose power at any time, and lose nothing acknowledged, where a record is on two disks or was synced.
With ``min.insync.replicas=1`` and no sync it may only while every replica is in sync; a partition with one replica then
loses what was not synced.
"""

import random
from typing import Final, NamedTuple

SIZES: Final = (1, 2, 3, 5, 7)
_MOST_REPLICAS: Final = 3


class ClusterShape(NamedTuple):
    """The same for all topics of a history."""

    brokers: int = 3
    replication_factor: int = 3
    min_insync_replicas: int = 2
    flushes: bool = False
    """Whether every response waits for an fsync."""
    harsh: bool = False
    """Whether a machine loses power, or all processes are killed, at any time."""
    may_be_lowered: bool = False
    """Whether clients set ``min.insync.replicas`` to 1 at times."""

    @classmethod
    def drawn(cls, seed: int) -> "ClusterShape":
        """Return the shape of a seed; it is harsh only if nothing acknowledged may be lost by that."""
        rng = random.Random(f"shape {seed}")
        brokers = rng.choice(SIZES)
        replicas = min(brokers, _MOST_REPLICAS)
        minimum = min(2, replicas) if replicas != 2 else rng.choice([1, 2])
        shape = cls(brokers, replicas, minimum, flushes=minimum == 1 and rng.random() < 0.5)
        return shape._replace(harsh=shape.flushes or (minimum > 1 and rng.random() < 0.5))

    @property
    def survives_any_power_loss(self) -> bool:
        """Whether one machine may lose power at any time, without loss of what was acknowledged."""
        return self.flushes or (self.min_insync_replicas > 1 and not self.may_be_lowered)

    @property
    def survives_power_loss(self) -> bool:
        """Whether it may at least while every replica is in sync."""
        return self.survives_any_power_loss or self.replication_factor > 1

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(range(1, self.brokers + 1))

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of every broker that the shape consists of."""
        replicas, minimum = str(self.replication_factor), str(self.min_insync_replicas)
        replication = {
            "min.insync.replicas": minimum,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": minimum,
        }
        return replication | ({"log.flush.interval.messages": "1"} if self.flushes else {})

    def replicas(self, partitions: int) -> tuple[tuple[int, ...], ...]:
        """Return the replicas of so many partitions: the first of each on another broker."""
        return tuple(
            tuple((index + number) % self.brokers + 1 for number in range(self.replication_factor))
            for index in range(partitions)
        )


THREE: Final = ClusterShape()
