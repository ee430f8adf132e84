"""What of Apache Kafka runs on a cluster but is no broker: Connect, MirrorMaker 2, Streams; each a process."""

import json
import re
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.interop.broker_under_test import REPLICATION_FACTOR
from tests.interop.drivers.program import compiled, java
from tests.processes import LIMIT_SECONDS, PEERS, BrokerProcess, class_path, free_port

PLATFORM: Final = PEERS / "platform-4" / "lib"
_LOG_TO_OUTPUT: Final = "-Dorg.slf4j.simpleLogger.logFile=System.out"


class ConnectWorker(BrokerProcess):
    """A distributed worker of Connect whose source connectors write exactly once."""

    name = "connect"
    ready_line = re.compile(r"Kafka Connect started")

    def __init__(self, directory: Path, bootstrap: str, group: str) -> None:
        super().__init__(directory)
        self._port = free_port()
        self._properties = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "listeners": f"http://127.0.0.1:{self._port}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": f"{group}-configs",
            "offset.storage.topic": f"{group}-offsets",
            "offset.storage.partitions": "3",
            "status.storage.topic": f"{group}-status",
            "status.storage.partitions": "3",
            **{
                f"{each}.storage.replication.factor": str(REPLICATION_FACTOR) for each in ("config", "offset", "status")
            },
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": "500",
        }

    def command(self) -> list[str]:
        words = java(class_path(PLATFORM), "org.apache.kafka.connect.cli.ConnectDistributed", self._file())
        return [words[0], _LOG_TO_OUTPUT, *words[1:]]

    def _file(self) -> Path:
        return write_properties(self.directory / "worker.properties", self._properties)

    def put(self, connector: str, config: Mapping[str, str]) -> None:
        """Create a connector, or change it."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/connectors/{connector}/config",
            json.dumps(config).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS):
            pass

    def status(self, connector: str) -> Any:
        url = f"http://127.0.0.1:{self._port}/connectors/{connector}/status"
        with urllib.request.urlopen(url, timeout=LIMIT_SECONDS) as response:
            return json.load(response)


class MirrorMaker(BrokerProcess):
    """MirrorMaker 2 from one cluster, ``left``, to another, ``right``."""

    name = "mirror maker"
    ready_line = re.compile(r"Kafka MirrorMaker (started|initialized)|Kafka Connect started")

    def __init__(self, directory: Path, left: str, right: str, topic: str) -> None:
        super().__init__(directory)
        self._properties = {
            "clusters": "left, right",
            "left.bootstrap.servers": left,
            "right.bootstrap.servers": right,
            "left->right.enabled": "true",
            "right->left.enabled": "false",
            "left->right.topics": topic,
            "left.replication.factor": "1",
            "replication.factor": str(REPLICATION_FACTOR),
            "checkpoints.topic.replication.factor": str(REPLICATION_FACTOR),
            "heartbeats.topic.replication.factor": str(REPLICATION_FACTOR),
            "offset-syncs.topic.replication.factor": "1",
            **{
                f"{cluster}.{each}.storage.replication.factor": factor
                for cluster, factor in (("left", "1"), ("right", str(REPLICATION_FACTOR)))
                for each in ("offset", "status", "config")
            },
            "refresh.topics.interval.seconds": "5",
        }

    def command(self) -> list[str]:
        file = write_properties(self.directory / "mirror.properties", self._properties)
        words = java(class_path(PLATFORM), "org.apache.kafka.connect.mirror.MirrorMaker", file)
        return [words[0], _LOG_TO_OUTPUT, *words[1:]]


class StreamsApplication(BrokerProcess):
    """``programs/StreamsCount.java``: a count for each key, exactly once, with its changelog."""

    name = "streams"
    ready_line = re.compile(r"^state RUNNING", re.MULTILINE)

    def __init__(self, directory: Path, bootstrap: str, topics: tuple[str, str], application: str) -> None:
        super().__init__(directory)
        self._words = bootstrap, *topics, application, directory / "state", REPLICATION_FACTOR

    def command(self) -> list[str]:
        words = java(compiled("StreamsCount", PLATFORM), "StreamsCount", *self._words)
        return [words[0], _LOG_TO_OUTPUT, *words[1:]]


def write_properties(file: Path, properties: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return file
