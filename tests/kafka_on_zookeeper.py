"""``KafkaOnZooKeeper``: Apache Kafka 3.9 as a broker of a ZooKeeper, started from its Maven artifacts."""

from collections.abc import Sequence
from pathlib import Path

from tests.processes import KAFKA_3_9, KafkaProcess


class KafkaOnZooKeeper(KafkaProcess):
    """One broker, with the defaults of Kafka's scripts (a heap of 1 GiB)."""

    name = "kafka 3.9"

    def __init__(self, directory: Path, broker_id: int, zookeeper: str, settings: Sequence[str] = ()) -> None:
        """``settings`` replace those of the broker that have the same key."""
        super().__init__(directory, settings, KAFKA_3_9)
        self._broker_id = broker_id
        self._zookeeper = zookeeper

    def prepare(self) -> None:
        """Write ``server.properties``."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [
            f"broker.id={self._broker_id}",
            f"zookeeper.connect={self._zookeeper}",
            f"listeners=PLAINTEXT://127.0.0.1:{self.port}",
            f"log.dirs={self.data_directory}",
            "group.initial.rebalance.delay.ms=0",
            *self.settings,
        ]
        self.properties_file.write_text("\n".join(lines) + "\n")
