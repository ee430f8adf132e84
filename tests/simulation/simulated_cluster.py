"""Several brokers on a simulated ensemble, in one process and in virtual time.

Each has its own disk and process, so it can be killed, paused, cut off from others or from the ensemble, and started
again. As with ZooKeeper, a broker that starts again ends the session of its former incarnation; a test can take the
file away that lets it.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.metadata.store_choice import OnFailure
from oncelog.broker.parts import Broker
from oncelog.broker.storage.disk import Disk
from oncelog.coordinator.metadata_store.store import MetadataStore, StoreUnavailable
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.sim_zookeeper import Direction, SimStore, SimZooKeeper
from tests.simulation.simulated_broker import SimulatedBroker
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.wire_client import WireClient

SESSION_SECONDS = 6.0
_START_SECONDS = 3 * SESSION_SECONDS
_MOST_STARTS = 20
CLUSTERED: Mapping[str, str] = {
    "zookeeper.connect": "simulated",
    "zookeeper.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


PER_BROKER: Mapping[str, str] = {"broker.rack": "rack-{broker_id}"}
"""Settings that are another one for each broker, where a cluster has them."""


class ClusterBroker(SimulatedBroker):
    """One member."""

    def __init__(
        self,
        broker_id: int,
        loop: VirtualLoop,
        rng: random.Random,
        ensemble: SimZooKeeper,
        settings: Mapping[str, str],
    ) -> None:
        self.broker_id = broker_id
        self.port = 9_100 + broker_id
        self.ensemble = ensemble
        self.ends_old_session = True
        self.store: SimStore | None = None
        own = {"broker.id": str(broker_id), "listeners": f"PLAINTEXT://127.0.0.1:{self.port}"}
        own |= {
            key: value.format(broker_id=broker_id) for key, value in PER_BROKER.items() if settings.get(key) == value
        }
        super().__init__(
            loop, rng, {**CLUSTERED, **settings, **own}, name=f"broker {broker_id}", open_store=self._connect
        )

    async def _connect(
        self, config: BrokerConfig, disk: Disk, resources: AsyncExitStack, on_failure: OnFailure
    ) -> MetadataStore:
        if self.store is not None and self.store.session is not None and self.ends_old_session:
            self.ensemble.expire(self.store.session.session_id)
        self.store = self.ensemble.connect(session_timeout=config.zookeeper_session_timeout_ms / 1000)
        resources.push_async_callback(self.store.close)
        return self.store

    @property
    def running(self) -> Broker:
        assert self.broker is not None, f"broker {self.broker_id} does not run"
        return self.broker

    def content(self, partition: TopicPartition) -> bytes:
        """The bytes of a replica that has one segment."""
        return self.disk.read(f"/data/{partition}/{0:020d}.log")

    async def try_to_start(self) -> bool:
        """Start, as a supervisor does that lets another process begin when one has ended; return whether it serves.

        A broker that cannot use the ensemble when it starts ends. It is started again as long as it can reach it.
        """
        for _ in range(_MOST_STARTS):
            try:
                async with asyncio.timeout(_START_SECONDS):
                    await self.start()
                return True
            except (StoreUnavailable, TimeoutError):
                self.kill()
            if not self.ensemble.is_up or (self.store is not None and self.store.cut):
                break
        return False

    def kill(self) -> None:
        """kill -9."""
        self.crash("process")

    def cut_from_ensemble(self, direction: Direction = Direction.BOTH) -> None:
        assert self.store is not None
        self.store.cut = direction

    async def client(self) -> WireClient:
        return await WireClient.connect(self.port)


class SimulatedCluster:
    """The members by id."""

    def __init__(
        self,
        loop: VirtualLoop,
        rng: random.Random,
        broker_ids: Sequence[int] = (1, 2, 3),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.loop = loop
        self.ensemble = SimZooKeeper(rng)
        self.brokers = {
            broker_id: ClusterBroker(broker_id, loop, rng, self.ensemble, settings or {}) for broker_id in broker_ids
        }

    def __getitem__(self, broker_id: int) -> ClusterBroker:
        return self.brokers[broker_id]

    async def start(self) -> None:
        for broker in self.brokers.values():
            assert await broker.try_to_start(), f"broker {broker.broker_id} does not start"

    @property
    def alive(self) -> list[ClusterBroker]:
        return [broker for broker in self.brokers.values() if broker.broker is not None]

    @property
    def controllers(self) -> list[int]:
        """The ids of the brokers that act as controller."""
        return [broker.broker_id for broker in self.alive if broker.running.controller.is_active]

    def isolate(self, broker_id: int, *others: int) -> None:
        """Nothing passes between a broker and others (or all others), in either direction, until the network heals."""
        for other in others or [other for other in self.brokers if other != broker_id]:
            self.loop.network.sever(f"broker {broker_id}", f"broker {other}")
            self.loop.network.sever(f"broker {other}", f"broker {broker_id}")
