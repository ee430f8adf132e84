"""Any sequence of faults and orders that may befall a cluster of three, while producers write; and what must hold.

At the end everything heals. Then the brokers agree, one controller reigns, every partition is led and whole, its
replicas are equal byte for byte, and every record that was acknowledged to acks=all is there, in its order.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto
from typing import Final

from coordinator.controller.leader_elections import ElectionType
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import StoreUnavailable
from coordinator.metadata_store.znodes import decode_topic
from protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import assert_agreement, state_of
from tests.simulation.sim_zookeeper import Direction
from tests.simulation.simulated_cluster import SESSION_SECONDS, ClusterBroker, SimulatedCluster

PARTITIONS: Final = 3
HEALING_SECONDS: Final = 10 * SESSION_SECONDS
"""After so long without faults a cluster is whole."""
LOOK_SECONDS: Final = 0.5
PAUSES: Final = (0.05, 0.2, 0.5)
"""Of writers, between two records."""
SETTINGS: Final[Mapping[str, str]] = {"min.insync.replicas": "2", "controlled.shutdown.retry.backoff.ms": "200"}


class Event(Enum):
    """What may happen next."""

    KILL = auto()
    RESTART = auto()
    """In an orderly way."""
    PAUSE = auto()
    ISOLATE = auto()
    """One broker from the others, or two from each other."""
    CUT_FROM_ENSEMBLE = auto()
    EXPIRE = auto()
    ENSEMBLE_DOWN = auto()
    SUSPECT = auto()
    ELECT = auto()
    REASSIGN = auto()
    HEAL = auto()


class ClusterHistory:
    """One history."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self.writers = [self._writer(TopicPartition("t", index)) for index in range(PARTITIONS)]
        self._deeds: dict[Event, Callable[[], Awaitable[None]]] = {
            Event.KILL: self._kill,
            Event.RESTART: self._restart,
            Event.PAUSE: self._pause,
            Event.ISOLATE: self._isolate,
            Event.CUT_FROM_ENSEMBLE: self._cut_from_ensemble,
            Event.EXPIRE: self._expire,
            Event.ENSEMBLE_DOWN: self._ensemble_down,
            Event.SUSPECT: self._suspect,
            Event.ELECT: self._elect,
            Event.REASSIGN: self._reassign,
            Event.HEAL: self._heal,
        }

    def _writer(self, partition: TopicPartition) -> AcknowledgedWriter:
        answer_within = self._rng.choice([0.3, 1.0, 5.0])
        return AcknowledgedWriter(self._cluster, partition, pause=self._rng.choice(PAUSES), answer_within=answer_within)

    async def run(self, count: int) -> None:
        """Let so much happen, heal, and check."""
        chosen = self._rng.sample(list(Event), self._rng.randint(3, len(Event)))  # Not all kinds in every history.
        writing = [asyncio.ensure_future(writer.run()) for writer in self.writers]  # noqa: TID251
        for _ in range(count):
            await self._deeds[self._rng.choice(chosen)]()
            await asyncio.sleep(self._rng.choice([0.0, 0.05, 0.5, 3.0]) * self._rng.random())
        await self._heal_everything()
        await self._until_whole()
        for writer in self.writers:
            writer.stop()
        async with asyncio.timeout(HEALING_SECONDS):
            await asyncio.gather(*writing)
        await asyncio.sleep(SESSION_SECONDS)
        self._check()

    async def _until_whole(self) -> None:
        deadline = self._cluster.loop.time() + HEALING_SECONDS
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                self._check_agreement()
                return
            except AssertionError:
                if self._cluster.loop.time() > deadline:
                    raise

    # What happens

    def _somebody(self) -> ClusterBroker:
        return self._cluster[self._rng.choice([1, 2, 3])]

    async def _kill(self) -> None:
        broker = self._somebody()
        if broker.broker is not None:
            broker.kill()
        await asyncio.sleep(self._rng.choice([0.0, 0.3, 2.0]))
        await self._start(broker)

    async def _start(self, broker: ClusterBroker) -> None:
        """It may not be able to, as long as the ensemble is away; then it tries again when everything has healed."""
        if broker.broker is None:
            try:
                async with asyncio.timeout(3 * SESSION_SECONDS):
                    await broker.start()
            except (StoreUnavailable, TimeoutError):
                assert broker.process is not None
                broker.process.kill()
                broker.disk.crash("process", self._rng)
                broker.process = None

    async def _restart(self) -> None:
        broker = self._somebody()
        if broker.broker is not None and broker.process is not None and not broker.process.paused:
            try:
                async with asyncio.timeout(3 * SESSION_SECONDS):
                    await broker.stop()
            except TimeoutError:
                broker.kill()
        await self._start(broker)

    async def _pause(self) -> None:
        process = self._somebody().process
        if process is not None:
            process.pause()
            await asyncio.sleep(self._rng.choice([0.1, 1.0, 4.0, 1.5 * SESSION_SECONDS]))
            process.resume()

    async def _isolate(self) -> None:
        one, other, _ = self._rng.sample([1, 2, 3], 3)
        self._cluster.isolate(one, *self._rng.choice([(), (other,)]))
        await asyncio.sleep(self._rng.choice([0.1, 1.0, 5.0]))
        if self._rng.random() < 0.7:
            self._cluster.loop.network.heal()

    async def _cut_from_ensemble(self) -> None:
        broker = self._somebody()
        if broker.store is not None:
            broker.cut_from_ensemble(self._rng.choice([Direction.TO_CLIENT, Direction.TO_ENSEMBLE, Direction.BOTH]))
            await asyncio.sleep(self._rng.choice([0.1, 1.0, 1.5 * SESSION_SECONDS]))
            broker.cut_from_ensemble(Direction.NONE)

    async def _expire(self) -> None:
        store = self._somebody().store
        if store is not None and store.session is not None:
            self._cluster.ensemble.expire(store.session.session_id)

    async def _ensemble_down(self) -> None:
        self._cluster.ensemble.is_up = False
        await asyncio.sleep(self._rng.choice([0.1, 1.0, SESSION_SECONDS]))
        self._cluster.ensemble.is_up = True

    async def _suspect(self) -> None:
        broker = self._somebody()
        if broker.broker is not None:
            broker.broker.controller.report_unreachable(self._rng.choice([1, 2, 3]))

    async def _elect(self) -> None:
        broker = self._somebody()
        if broker.broker is not None and broker.process is not None and not broker.process.paused:
            broker.process.run(self._hold_election(broker))

    async def _hold_election(self, broker: ClusterBroker) -> None:
        await broker.running.controller.elect_leaders(None, ElectionType.PREFERRED)

    async def _reassign(self) -> None:
        broker = self._somebody()
        if broker.broker is not None and broker.process is not None and not broker.process.paused:
            broker.process.run(self._move(broker))

    async def _move(self, broker: ClusterBroker) -> None:
        partition = TopicPartition("t", self._rng.randrange(PARTITIONS))
        target = self._rng.choice([None, self._rng.sample([1, 2, 3], 2), self._rng.sample([1, 2, 3], 3)])
        await broker.running.controller.alter_reassignments({partition: target})

    async def _heal(self) -> None:
        self._cluster.loop.network.heal()

    async def _heal_everything(self) -> None:
        self._cluster.loop.network.heal()
        self._cluster.ensemble.is_up = True
        for broker in self._cluster.brokers.values():
            if broker.store is not None:
                broker.cut_from_ensemble(Direction.NONE)
            await self._start(broker)

    # What must hold

    def _check_agreement(self) -> None:
        assert_agreement(self._cluster)
        for name, index in [writer.partition for writer in self.writers]:
            state, replicas = state_of(self._cluster, name, index), self._replicas(name, index)
            assert set(state.isr) == set(replicas), (state, replicas)

    def _check(self) -> None:
        self._check_agreement()
        for writer in self.writers:
            name, index = writer.partition
            state, replicas = state_of(self._cluster, name, index), self._replicas(name, index)
            contents = {broker_id: self._cluster[broker_id].content(writer.partition) for broker_id in replicas}
            assert len(set(contents.values())) == 1, f"the replicas of {writer.partition} differ"
            writer.assert_nothing_is_lost(contents[state.leader])

    def _replicas(self, name: str, index: int) -> tuple[int, ...]:
        topic = self._cluster.ensemble.tree.get(paths.topic(name))
        assert topic is not None
        return decode_topic(topic.data).partitions[index].replicas
