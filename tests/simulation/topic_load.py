"""The clients of a history of topics that change: one to three kinds of change, each on a topic of its own."""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.cluster_history import HEALING_SECONDS
from tests.simulation.cluster_shape import ClusterShape
from tests.simulation.compacted_topic import CompactedTopic
from tests.simulation.follower_reads import SETTINGS as NEAR_SETTINGS
from tests.simulation.follower_reads import FollowerReads
from tests.simulation.minimum_changes import MinimumChanges
from tests.simulation.record_deletion import SETTINGS as DELETION_SETTINGS
from tests.simulation.record_deletion import RecordDeletion
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.topic_recreation import TopicRecreation

SETTINGS: Final[Mapping[str, str]] = {**NEAR_SETTINGS, **DELETION_SETTINGS, "log.cleaner.backoff.ms": "200"}


class Change(Protocol):
    """A topic and its clients."""

    async def setup(self) -> None: ...

    def start(self) -> None: ...

    async def finish(self) -> None: ...

    def check(self) -> None: ...


_CHANGES: Final[tuple[Callable[[SimulatedCluster, random.Random, ClusterShape], Change], ...]] = (
    TopicRecreation,
    RecordDeletion,
    CompactedTopic,
    MinimumChanges,
    FollowerReads,
)


class TopicLoad:
    """``setup``, ``start``, ``finish``, ``check``, in this order."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random, shape: ClusterShape) -> None:
        chosen = rng.sample(_CHANGES, rng.choice([1, 2, 3]))
        self._changes: list[Change] = [change(cluster, random.Random(rng.random()), shape) for change in chosen]

    async def setup(self) -> None:
        for change in self._changes:
            await change.setup()

    def start(self) -> None:
        for change in self._changes:
            change.start()

    async def disturb(self) -> None:
        """Nothing: what befalls these clients they do themselves."""

    def progress(self) -> Mapping[TopicPartition, int]:
        """Nothing: writes may have to wait for every replica."""
        return {}

    def power_lost(self, broker: object) -> None:
        """Nothing: these clients are promised that nothing is lost."""

    async def finish(self) -> None:
        async with asyncio.timeout(HEALING_SECONDS):
            for change in self._changes:
                await change.finish()

    async def check(self) -> None:
        for change in self._changes:
            change.check()
