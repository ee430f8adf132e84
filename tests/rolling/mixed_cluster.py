"""Three brokers and a ZooKeeper, each broker from a code tree that may change when it restarts."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.former_code import code_of, command_of
from tests.rolling.rolling_cluster import RollingBroker, RollingCluster


class MixedBroker(RollingBroker):
    """One broker; ``tree`` is the code that its next start runs."""

    def __init__(self, directory: Path, broker_id: int, zookeeper: str, settings: Sequence[str], tree: Path) -> None:
        super().__init__(directory, broker_id, zookeeper)
        self.settings = settings
        self.tree = tree

    def command(self) -> list[str]:
        words = [*super().command(), "--broker-id", str(self.broker_id), "--zookeeper", self.zookeeper]
        return command_of(self.tree, words)

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **code_of(self.tree)}


class MixedCluster(RollingCluster[MixedBroker]):
    """All brokers begin with the same tree."""

    def __init__(self, directory: Path, settings: Sequence[str], tree: Path) -> None:
        super().__init__(
            directory, lambda place, broker, zookeeper: MixedBroker(place, broker, zookeeper, settings, tree)
        )

    async def change(self, broker: MixedBroker, tree: Path, *, kill: bool) -> None:
        """End a broker by SIGTERM or kill -9, and start it with the code of a tree."""
        await self.end(broker, kill=kill)
        broker.tree = tree
        await asyncio.to_thread(broker.start)
