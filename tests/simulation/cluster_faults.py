"""The faults and orders that may befall a cluster of three, one after the other and at the same time.

A broker may lose power, and with that whatever of its logs was not synced, only while the others have all that it has.
Then another one may die, and the third stays where it is until everybody has everything again: this much is promised by
``min.insync.replicas=2`` where nobody waits for disks, and no more (B57).
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Final

from broker.storage.partition_log import PartitionLog
from coordinator.controller.cluster_image import INTERNAL_TOPICS
from coordinator.controller.leader_elections import ElectionType
from coordinator.controller.topic_plan import NewTopic
from coordinator.metadata_store.store import StoreUnavailable
from protocol.topic_partition import TopicPartition
from tests.simulation.cluster_stories import assignments
from tests.simulation.replication_history import batches
from tests.simulation.sim_zookeeper import Direction
from tests.simulation.simulated_cluster import SESSION_SECONDS, ClusterBroker, SimulatedCluster

BROKERS: Final = (1, 2, 3)
_AT_THE_SAME_TIME: Final = 0.3
_LOOK_SECONDS: Final = 0.1
_MOST_LOOKS: Final = 600
_MORE_TOPICS: Final = ("x", "y")


class Fault(Enum):
    """What may happen next."""

    KILL = auto()
    POWER_LOSS = auto()
    DISK = auto()
    """A log that cannot be written: the broker stops, and is started again with another disk cable."""
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
    CREATE = auto()
    DELETE = auto()
    """A topic, which nobody uses."""
    HEAL = auto()


class ClusterFaults:
    """``befall``, then ``heal``."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._busy: set[int] = set()
        """The brokers that something is being done to, so that nothing else is."""
        self._begun: list[asyncio.Future[None]] = []
        self._deeds: dict[Fault, Callable[[], Awaitable[None]]] = {
            Fault.KILL: self._to_somebody(self._kill),
            Fault.POWER_LOSS: self._lose_power,
            Fault.DISK: self._to_somebody(self._fail_disk),
            Fault.RESTART: self._to_somebody(self._restart),
            Fault.PAUSE: self._to_somebody(self._pause),
            Fault.ISOLATE: self._isolate,
            Fault.CUT_FROM_ENSEMBLE: self._to_somebody(self._cut_from_ensemble),
            Fault.EXPIRE: self._to_somebody(self._expire),
            Fault.ENSEMBLE_DOWN: self._ensemble_down,
            Fault.SUSPECT: self._to_somebody(self._suspect),
            Fault.ELECT: self._to_somebody(self._elect),
            Fault.REASSIGN: self._to_somebody(self._reassign),
            Fault.CREATE: self._to_somebody(self._create_topic),
            Fault.DELETE: self._to_somebody(self._delete_topic),
            Fault.HEAL: self._heal_network,
        }

    async def befall(self, count: int, disturb: Callable[[], Awaitable[None]]) -> None:
        """So many faults, of kinds that are chosen for the whole history; sometimes clients are disturbed, too."""
        chosen = self._rng.sample(list(Fault), self._rng.randint(3, len(Fault)))
        for _ in range(count):
            deed = self._deeds[self._rng.choice(chosen)]
            if deed != self._lose_power and self._rng.random() < _AT_THE_SAME_TIME:
                self._begun.append(asyncio.ensure_future(deed()))  # noqa: TID251
            else:
                await deed()
            if self._rng.random() < 0.1:
                await disturb()
            await asyncio.sleep(self._rng.choice([0.0, 0.05, 0.5, 3.0]) * self._rng.random())

    async def heal(self) -> None:
        """Everything works again, and everybody is there."""
        await asyncio.gather(*self._begun)
        self._begun.clear()
        self._cluster.loop.network.heal()
        self._cluster.ensemble.is_up = True
        for broker in self._cluster.brokers.values():
            if broker.store is not None:
                broker.cut_from_ensemble(Direction.NONE)
            await self._start(broker)

    def _to_somebody(self, deed: Callable[[ClusterBroker], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def do() -> None:
            chosen = self._rng.choice(BROKERS)
            if chosen not in self._busy:
                self._busy.add(chosen)
                await deed(self._cluster[chosen])
                self._busy.discard(chosen)

        return do

    # What happens to one broker

    async def _kill(self, broker: ClusterBroker) -> None:
        if broker.broker is not None:
            broker.kill()
        await asyncio.sleep(self._rng.choice([0.0, 0.3, 2.0]))
        await self._start(broker)

    async def _lose_power(self) -> None:
        await self.heal()
        await asyncio.sleep(SESSION_SECONDS)  # Whose session has ended meanwhile registers again.
        await self._until_everybody_has_everything()
        one, other = self._rng.sample(list(self._cluster.brokers.values()), 2)
        one.crash("power")
        if self._rng.random() < 0.5:
            other.kill()
        for broker in (one, other):
            await asyncio.sleep(self._rng.choice([0.0, 0.3, 2.0]))
            await self._start(broker)
        await self._until_everybody_has_everything()

    async def _until_everybody_has_everything(self) -> None:
        for _ in range(_MOST_LOOKS):
            if self._everybody_has_everything():
                return
            await asyncio.sleep(_LOOK_SECONDS)
        raise AssertionError("the replicas do not become equal")

    def _everybody_has_everything(self) -> bool:
        expected = assignments(self._cluster)
        logs = {partition: self._logs(partition) for partition in expected}
        complete = all(len(logs[partition]) >= len(replicas) for partition, replicas in expected.items())
        return complete and all(_are_equal(partition, replicas) for partition, replicas in logs.items())

    def _logs(self, partition: TopicPartition) -> list[PartitionLog]:
        replicas = [broker.running.replica_manager.partition(partition) for broker in self._cluster.alive]
        return [replica.log for replica in replicas if replica is not None and replica.log is not None]

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

    async def _fail_disk(self, broker: ClusterBroker) -> None:
        if broker.broker is not None:
            broker.disk.fail(self._rng.choice(["append", "sync"]), self._rng.choice([".log", "index", ""]))
            await asyncio.sleep(self._rng.choice([0.1, 1.0]))
            await self._restart(broker)

    async def _restart(self, broker: ClusterBroker) -> None:
        if broker.broker is not None:
            try:
                async with asyncio.timeout(3 * SESSION_SECONDS):
                    await broker.stop()
            except (TimeoutError, OSError):  # A disk that fails may do so now.
                broker.kill()
        await self._start(broker)

    async def _pause(self, broker: ClusterBroker) -> None:
        process = broker.process
        if process is not None:
            process.pause()
            await asyncio.sleep(self._rng.choice([0.1, 1.0, 4.0, 1.5 * SESSION_SECONDS]))
            process.resume()

    async def _cut_from_ensemble(self, broker: ClusterBroker) -> None:
        if broker.store is not None:
            broker.cut_from_ensemble(self._rng.choice([Direction.TO_CLIENT, Direction.TO_ENSEMBLE, Direction.BOTH]))
            await asyncio.sleep(self._rng.choice([0.1, 1.0, 1.5 * SESSION_SECONDS]))
            broker.cut_from_ensemble(Direction.NONE)

    async def _expire(self, broker: ClusterBroker) -> None:
        if broker.store is not None and broker.store.session is not None:
            self._cluster.ensemble.expire(broker.store.session.session_id)

    async def _suspect(self, broker: ClusterBroker) -> None:
        if broker.broker is not None:
            broker.broker.controller.report_unreachable(self._rng.choice(BROKERS))

    async def _elect(self, broker: ClusterBroker) -> None:
        if broker.broker is not None and broker.process is not None:
            broker.process.run(self._hold_election(broker))

    async def _hold_election(self, broker: ClusterBroker) -> None:
        await broker.running.controller.elect_leaders(None, ElectionType.PREFERRED)

    async def _reassign(self, broker: ClusterBroker) -> None:
        if broker.broker is not None and broker.process is not None:
            broker.process.run(self._move(broker))

    async def _move(self, broker: ClusterBroker) -> None:
        partition = self._rng.choice(sorted(assignments(self._cluster)))
        target = self._rng.choice([None, self._rng.sample(BROKERS, 2), self._rng.sample(BROKERS, 3)])
        await broker.running.controller.alter_reassignments({partition: target})

    async def _create_topic(self, broker: ClusterBroker) -> None:
        if broker.broker is not None and broker.process is not None:
            topic = NewTopic(name=self._rng.choice(_MORE_TOPICS), partition_count=2, replication_factor=2)
            broker.process.run(broker.running.controller.create_topics([topic]))

    async def _delete_topic(self, broker: ClusterBroker) -> None:
        if broker.broker is not None and broker.process is not None:
            name = self._rng.choice(_MORE_TOPICS)
            broker.process.run(broker.running.controller.delete_topics([name], timeout_seconds=1.0))

    # What happens to all of them

    async def _isolate(self) -> None:
        one, other, _ = self._rng.sample(BROKERS, 3)
        self._cluster.isolate(one, *self._rng.choice([(), (other,)]))
        await asyncio.sleep(self._rng.choice([0.1, 1.0, 5.0]))
        if self._rng.random() < 0.7:
            self._cluster.loop.network.heal()

    async def _ensemble_down(self) -> None:
        self._cluster.ensemble.is_up = False
        await asyncio.sleep(self._rng.choice([0.1, 1.0, SESSION_SECONDS]))
        self._cluster.ensemble.is_up = True

    async def _heal_network(self) -> None:
        self._cluster.loop.network.heal()


def _are_equal(partition: TopicPartition, logs: list[PartitionLog]) -> bool:
    """Up to the furthest high watermark. Each replica of an internal topic is compacted at its own time."""
    end = max(log.high_watermark for log in logs)
    if any(log.log_end_offset < end for log in logs):
        return False
    if partition.topic in INTERNAL_TOPICS:
        return True
    contents = [{base: content for base, content in batches(log, 0).items() if base < end} for log in logs]
    return contents.count(contents[0]) == len(contents)
