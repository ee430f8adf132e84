"""The broker under test: ours, or Apache Kafka with ``INTEROP_BROKER=kafka`` to prove the scenarios themselves."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.drivers.program import Kcat, Program, lacking_peer
from tests.processes import BrokerProcess, KafkaProcess, OncelogProcess


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("broker")
    kind = {"oncelog": OncelogProcess, "kafka": KafkaProcess}[os.environ.get("INTEROP_BROKER", "oncelog")]
    with kind(directory, ["num.partitions=2"]) as process:
        yield process


@pytest.fixture(autouse=True)
def toolchain(request: pytest.FixtureRequest) -> None:
    """Skip what this machine lacks, saying which command installs it; in CI nothing may be lacking."""
    callspec = getattr(request.node, "callspec", None)
    client = callspec.params.get("client") if callspec else None
    lacking = client.lacking() if isinstance(client, Program | Kcat) else None
    if client is None and request.node.path.stem in ("test_kafka_tools", "test_disk_compatibility"):
        lacking = lacking_peer("kafka-4", "java")
    if lacking:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(lacking)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names that no other scenario uses."""
    numbers = itertools.count()
    scenario = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return lambda what: f"{scenario}-{what}-{next(numbers)}"
