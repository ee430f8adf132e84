"""Apache Kafka 3.9 in ZooKeeper mode as a cluster on this machine: a ZooKeeper server and broker processes."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from oncelog.broker.local_cluster.zookeeper_server import JARS_VARIABLE, ZooKeeperServer
from tests.kafka_on_zookeeper import KafkaOnZooKeeper
from tests.processes import KAFKA_3_9, free_port

REPLICATION: Final = ("default.replication.factor=3", "min.insync.replicas=2")
"""That of ``oncelog cluster``."""


class KafkaCluster:
    """A context manager; ``address`` names all brokers."""

    name = KafkaOnZooKeeper.name

    def __init__(self, directory: Path, brokers: int = 3, settings: Sequence[str] = ()) -> None:
        self._zookeeper = ZooKeeperServer(directory / "zookeeper", free_port())
        self.members = [
            KafkaOnZooKeeper(
                directory / f"broker-{number}",
                number,
                f"{self._zookeeper.address}/kafka",
                [*REPLICATION, *settings],
            )
            for number in range(1, brokers + 1)
        ]
        self.address = ",".join(member.address for member in self.members)
        self._running = ExitStack()

    @property
    def pids(self) -> list[int]:
        return [member.pid for member in self.members]

    def __enter__(self) -> Self:
        os.environ.setdefault(JARS_VARIABLE, str(KAFKA_3_9))
        with ExitStack() as stack:
            stack.enter_context(self._zookeeper)
            for member in self.members:
                stack.enter_context(member)
            self._running = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()
