"""The broker under test: ours, or Apache Kafka with ``INTEROP_BROKER=kafka``, to prove the scenarios themselves.

``INTEROP_BROKER=kafka-3.9`` is Apache Kafka 3.9, the last before version 2 of the transaction protocol.
"""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.interop.drivers.kafka_tools import KafkaTools
from tests.interop.drivers.program import Kcat, Program, lacking_peer
from tests.processes import KAFKA_3_9, BrokerProcess, KafkaProcess, OncelogProcess

BROKER = os.environ.get("INTEROP_BROKER", "oncelog")
_TOOLS = "kafka-4", "java"
_NEEDED = {
    "test_kafka_tools": _TOOLS,
    "test_stuck_transactions": _TOOLS,
    "test_disk_compatibility": _TOOLS,
    "test_transaction_versions": ("java-client-4", "java"),
}
"""What a file's tests need that their ``client`` parameter does not tell: peer and program."""


def broker_process(directory: Path, settings: Sequence[str]) -> BrokerProcess:
    """The broker under test, with settings of its own."""
    if BROKER == "kafka-3.9":
        return KafkaProcess(directory, settings, KAFKA_3_9)
    kind = {"oncelog": OncelogProcess, "kafka": KafkaProcess}[BROKER]
    return kind(directory, settings)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory: Path = tmp_path_factory.mktemp("broker")
    with broker_process(directory, ["num.partitions=2"]) as process:
        yield process


@pytest.fixture(scope="session")
def transaction_version() -> int:
    """The version of the transaction protocol that the broker under test offers its clients."""
    return 1 if BROKER == "kafka-3.9" else 2


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
