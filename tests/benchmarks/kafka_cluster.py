"""Apache Kafka 3.9 in ZooKeeper mode as a cluster on this machine: a ZooKeeper server and broker processes."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from oncelog.broker.local_cluster.zookeeper_server import JARS_VARIABLE, ZooKeeperServer
from tests.processes import KAFKA_3_9, KafkaProcess, free_port


class KafkaMember(KafkaProcess):
    """One broker, with the defaults of Kafka's scripts (a heap of 1 GiB) and the replication of ``oncelog cluster``."""

    name = "kafka 3.9"

    def __init__(self, directory: Path, broker_id: int, zookeeper: str, settings: Sequence[str]) -> None:
        super().__init__(directory, settings, KAFKA_3_9)
        self._broker_id = broker_id
        self._zookeeper = zookeeper

    def prepare(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [
            f"broker.id={self._broker_id}",
            f"zookeeper.connect={self._zookeeper}/kafka",
            f"listeners=PLAINTEXT://127.0.0.1:{self.port}",
            f"log.dirs={self.data_directory}",
            "default.replication.factor=3",
            "min.insync.replicas=2",
            "group.initial.rebalance.delay.ms=0",
            *self.settings,
        ]
        self.properties_file.write_text("\n".join(lines) + "\n")


class KafkaCluster:
    """A context manager; ``address`` names all brokers."""

    name = KafkaMember.name

    def __init__(self, directory: Path, brokers: int = 3, settings: Sequence[str] = ()) -> None:
        self._zookeeper = ZooKeeperServer(directory / "zookeeper", free_port())
        self.members = [
            KafkaMember(directory / f"broker-{number}", number, self._zookeeper.address, settings)
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
