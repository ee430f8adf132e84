"""A broker process for a module of tests, and the command line that talks to it.

``INTEROP_BROKER=kafka`` takes Apache Kafka, to prove that the verbs ask nothing special of a broker.
"""

import os
from collections.abc import Iterator

import pytest

from tests.command import Oncelog
from tests.processes import BrokerProcess, KafkaProcess, OncelogProcess

IS_KAFKA = os.environ.get("INTEROP_BROKER") == "kafka"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    kind = KafkaProcess if IS_KAFKA else OncelogProcess
    with kind(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture(scope="module")
def oncelog(broker: BrokerProcess) -> Oncelog:
    return Oncelog(broker.address)


@pytest.fixture
def topic(oncelog: Oncelog, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions, named like the test."""
    name: str = request.node.name.replace("[", "-").replace("]", "")
    oncelog(f"topic create {name} --partitions 2 --replication-factor 1")
    return name
