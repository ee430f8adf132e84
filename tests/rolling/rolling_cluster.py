"""Three brokers and a ZooKeeper as processes, whose brokers can be restarted one by one in another way."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from oncelog.broker.local_cluster.zookeeper_server import ZooKeeperServer
from tests.processes import OncelogProcess, free_port

BROKERS: Final = 3


class RollingBroker(OncelogProcess):
    """One broker; address and data directory stay the same over restarts."""

    def __init__(self, directory: Path, broker_id: int, zookeeper: str) -> None:
        super().__init__(directory)
        self.broker_id = broker_id
        self.zookeeper = zookeeper


B = TypeVar("B", bound=RollingBroker)


class RollingCluster(Generic[B]):
    """The processes of one directory."""

    def __init__(self, directory: Path, broker: Callable[[Path, int, str], B]) -> None:
        """``broker`` makes one from its directory, its id and the address of ZooKeeper."""
        self._zookeeper = ZooKeeperServer(directory / "zookeeper", free_port())
        self.brokers = [
            broker(directory / f"broker-{broker_id}", broker_id, self._zookeeper.address)
            for broker_id in range(1, BROKERS + 1)
        ]

    @property
    def bootstrap(self) -> str:
        """Where clients connect, all brokers."""
        return ",".join(broker.address for broker in self.brokers)

    @property
    def places(self) -> dict[int, Path]:
        """The brokers' data directories."""
        return {broker.broker_id: broker.data_directory for broker in self.brokers}

    async def start(self) -> None:
        await asyncio.to_thread(self._zookeeper.start)
        async with asyncio.TaskGroup() as group:
            for broker in self.brokers:
                group.create_task(asyncio.to_thread(broker.start))

    async def stop(self) -> None:
        """Stop everything that runs; ZooKeeper is last."""
        try:
            for broker in self.brokers:
                await asyncio.to_thread(broker.stop)
        finally:
            await asyncio.to_thread(self._zookeeper.stop)

    async def end(self, broker: B, *, kill: bool) -> None:
        """End a broker by SIGTERM or kill -9, if it runs."""
        await asyncio.to_thread(broker.kill if kill else broker.stop)
