"""The clients of a cluster history that just write, with acks=all: what was acknowledged is there, in its order."""

import asyncio
import random
from collections.abc import Mapping
from typing import Final

from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_history import HEALING_SECONDS, log_of
from tests.simulation.cluster_stories import create, state_of
from tests.simulation.replication_history import batches
from tests.simulation.simulated_cluster import SimulatedCluster

_REPLICAS: Final = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
_PAUSES: Final = (0.05, 0.2, 0.5)
_PATIENCE: Final = (0.3, 1.0, 5.0)


class AcknowledgedWriters:
    """One for each partition of a topic."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._writers = [
            AcknowledgedWriter(
                cluster, TopicPartition("t", index), pause=rng.choice(_PAUSES), response_within=rng.choice(_PATIENCE)
            )
            for index in range(len(_REPLICAS))
        ]
        self._writing: list[asyncio.Future[None]] = []

    async def setup(self) -> None:
        await create(self._cluster, "t", *_REPLICAS)

    def start(self) -> None:
        self._writing = [asyncio.ensure_future(writer.run()) for writer in self._writers]  # noqa: TID251

    async def disturb(self) -> None:
        pass

    def progress(self) -> Mapping[TopicPartition, int]:
        return {writer.partition: len(writer.acknowledged) for writer in self._writers}

    async def finish(self) -> None:
        for writer in self._writers:
            writer.stop()
        async with asyncio.timeout(HEALING_SECONDS):
            await asyncio.gather(*self._writing)

    async def check(self) -> None:
        for writer in self._writers:
            leader = state_of(self._cluster, *writer.partition).leader
            log = batches(log_of(self._cluster, leader, writer.partition), 0)
            writer.assert_nothing_is_lost(b"".join(content for _, content in log.values()))
