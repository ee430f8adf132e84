"""The broker under test: ours, or Apache Kafka with ``INTEROP_BROKER=kafka`` to prove the scenarios themselves."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes import BrokerProcess, KafkaProcess, OncelogProcess


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("broker")
    kind = {"oncelog": OncelogProcess, "kafka": KafkaProcess}[os.environ.get("INTEROP_BROKER", "oncelog")]
    with kind(directory, ["num.partitions=2"]) as process:
        yield process


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names that no other scenario uses."""
    numbers = itertools.count()
    scenario = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return lambda what: f"{scenario}-{what}-{next(numbers)}"
