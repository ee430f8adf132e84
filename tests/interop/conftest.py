"""What every interop test is given: the broker under test, Kafka's tools, names; and what a machine lacks."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.broker_under_test import BROKER, broker_process
from tests.interop.drivers.kafka_tools import KafkaTools
from tests.interop.drivers.program import Kcat, Program, lacking_peer
from tests.processes import BrokerProcess

_TOOLS = "kafka-4", "java"
_NEEDED = {
    "test_kafka_tools": _TOOLS,
    "test_stuck_transactions": _TOOLS,
    "test_disk_compatibility": _TOOLS,
    "test_reassignment": _TOOLS,
    "test_feature_change": _TOOLS,
    "test_authentication": _TOOLS,
    "test_lists_of_kafka": ("kafka-3.9", "java"),
    "test_platform": ("platform-4", "java"),
    "test_transaction_versions": ("java-client-4", "java"),
}
"""What a file's tests need that their ``client`` parameter does not tell: peer and program."""


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("broker")
    with broker_process(directory, ["num.partitions=2"]) as process:
        yield process


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Of the kind under test, for what would change the cluster under other tests."""
    with broker_process(tmp_path, ["num.partitions=2"]) as process:
        yield process


@pytest.fixture(scope="session")
def kafka_tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    with KafkaTools(tmp_path_factory.mktemp("tools") / "stderr.log") as tools:
        yield tools


@pytest.fixture(autouse=True)
def toolchain(request: pytest.FixtureRequest) -> None:
    """Skip what this machine lacks, saying which command installs it; in CI nothing may be lacking."""
    callspec = getattr(request.node, "callspec", None)
    client = callspec.params.get("client") if callspec else None
    lacking = client.lacking() if isinstance(client, Program | Kcat) else None
    if not lacking and BROKER == "cluster":
        lacking = lacking_peer("kafka-3.9", "java")  # ZooKeeper's jars.
    if not lacking:
        needed = _NEEDED.get(request.node.path.stem)
        lacking = lacking_peer(*needed) if needed else lacking
    if lacking:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(lacking)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names that no other scenario uses."""
    numbers = itertools.count()
    scenario = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return lambda what: f"{scenario}-{what}-{next(numbers)}"
