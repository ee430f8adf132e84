"""Three brokers and a ZooKeeper, each broker from a code tree that may change when it restarts."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from oncelog.broker.local_cluster.zookeeper_server import ZooKeeperServer
from tests.former_code import code_of, command_of
from tests.processes import OncelogProcess, free_port

BROKERS: Final = 3


class MixedBroker(OncelogProcess):
    """One broker; ``tree`` is the code that its next start runs. Address and data directory stay the same."""

    def __init__(self, directory: Path, broker_id: int, zookeeper: str, settings: Sequence[str], tree: Path) -> None:
        super().__init__(directory, settings)
        self.broker_id = broker_id
        self.tree = tree
        self._zookeeper = zookeeper

    def command(self) -> list[str]:
        words = [*super().command(), "--broker-id", str(self.broker_id), "--zookeeper", self._zookeeper]
        return command_of(self.tree, words)

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **code_of(self.tree)}


class MixedCluster:
    """The processes of one directory; all brokers begin with the same tree."""

    def __init__(self, directory: Path, settings: Sequence[str], tree: Path) -> None:
        self._zookeeper = ZooKeeperServer(directory / "zookeeper", free_port())
        self.brokers = [
            MixedBroker(directory / f"broker-{broker_id}", broker_id, self._zookeeper.address, settings, tree)
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

    async def change(self, broker: MixedBroker, tree: Path, *, kill: bool) -> None:
        """End a broker by SIGTERM or kill -9, and start it with the code of a tree."""
        await self.end(broker, kill=kill)
        broker.tree = tree
        await asyncio.to_thread(broker.start)

    async def end(self, broker: MixedBroker, *, kill: bool) -> None:
        """End a broker by SIGTERM or kill -9, if it runs."""
        await asyncio.to_thread(broker.kill if kill else broker.stop)
