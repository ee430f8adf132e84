"""A ZooKeeper server for the tests of this folder; its jars are those of the Kafka 3.9 peer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.broker.local_cluster.zookeeper_server import JARS_VARIABLE, ZooKeeperServer
from tests.processes import PEERS, free_port


@pytest.fixture(scope="session")
def zookeeper_jars() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        jars: Path = PEERS / "kafka-3.9" / "lib"
        patch.setenv(JARS_VARIABLE, str(jars))
        yield


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory, zookeeper_jars: None) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), free_port(), tick_ms=200) as server:
        yield server
