"""One Spark and one broker for all tests of this folder, both real; each is stopped at the end, by its process."""

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.clients.admin.features import FeatureUpdate
from tests.processes import KAFKA_4, KafkaProcess, OncelogProcess
from tests.spark.copying_case import Case
from tests.spark.forked_query import PARTITIONS, Query, warm_up
from tests.spark.other_end import OtherEnd
from tests.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_BROKER_SETTINGS = ("num.partitions=2", "log.cleaner.backoff.ms=100", "log.retention.ms=-1")


def _lacking(what: str) -> None:
    """Skip what this machine cannot do; in CI nothing may be lacking."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(what)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    if shutil.which("java") is None:
        _lacking("Java is missing: apt-get install openjdk-17-jre-headless")
    settings = {"spark.sql.python.filterPushdown.enabled": "true"}
    with spark_session(tmp_path_factory.mktemp("spark"), settings) as session:
        yield session


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OncelogProcess]:
    with OncelogProcess(tmp_path_factory.mktemp("broker"), _BROKER_SETTINGS) as process:
        yield process


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    """Apache Kafka 4."""
    if not KAFKA_4.is_dir():
        _lacking("Apache Kafka is missing: run `make peers`")
    process = KafkaProcess(tmp_path_factory.mktemp("kafka"), _BROKER_SETTINGS)
    process.start(seconds=180)
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
def other_end(broker: OncelogProcess) -> Iterator[OtherEnd]:
    """Topics and records from outside of Spark, on the broker that all tests share."""
    with OtherEnd(broker.address) as end:
        yield end


@pytest.fixture(scope="session")
def numbers() -> "itertools.count[int]":
    return itertools.count()


@pytest.fixture
def new_name(request: pytest.FixtureRequest, numbers: "itertools.count[int]") -> Callable[[str], str]:
    """Names that no other test uses, on brokers that tests share."""
    return lambda what: f"{what}-{request.node.originalname.removeprefix('test_')[:60]}-{next(numbers)}"


@pytest.fixture(scope="session")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OncelogProcess]:
    """All transactions on it are of the query under test, and time out when they should.

    Its one state partition is shared by all sinks.
    """
    settings = ["transaction.abort.timed.out.transaction.cleanup.interval.ms=200"]
    with OncelogProcess(tmp_path_factory.mktemp("kills"), settings) as process:
        with OtherEnd(process.address) as end:
            end.create("__spark_sink_state", 1, {"cleanup.policy": "compact"})
        yield process


@pytest.fixture
def case(own_broker: OncelogProcess, new_name: Callable[[str], str], tmp_path: Path) -> Iterator[Case]:
    with OtherEnd(own_broker.address) as end:
        yield Case(end, new_name, tmp_path)


@pytest.fixture(scope="module", params=["2", "1", "kafka"])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, numbers: "itertools.count[int]"
) -> Iterator[str]:
    """A broker of its own, with one state partition for all sinks; ours with either version of the protocol."""
    directory = tmp_path_factory.mktemp(f"sink-{request.param}")
    if request.param == "kafka":
        process: KafkaProcess = request.getfixturevalue("kafka")
        warm_up(process.address, f"warm-up-{next(numbers)}")
        yield process.address
        return
    with OncelogProcess(directory) as own:
        with OtherEnd(own.address) as end:
            end.create("__spark_sink_state", 1, {"cleanup.policy": "compact"})
            if request.param == "1":
                level = FeatureUpdate(1, allow_downgrade=True)
                assert end.client.run(end.client.admin.update_features({"transaction.version": level})) == {
                    "transaction.version": None
                }
        warm_up(own.address, "warm-up")
        yield own.address


@pytest.fixture
def make_query(
    address: str, new_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[[str, str, int], Query]]:
    with OtherEnd(address) as end:
        yield lambda point, action, seed: Query(
            end, end.create(new_name("out"), PARTITIONS), tmp_path, point, action, seed
        )
