"""One Spark and one broker for all tests of this folder, both real; each is stopped at the end, by its process."""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.processes import KAFKA_4, REPOSITORY, KafkaProcess, OncelogProcess
from tests.spark.other_end import OtherEnd

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STOP_SECONDS = 30.0
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.app.name": "oncelog tests",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
}


def _lacking(what: str) -> None:
    """Skip what this machine cannot do; in CI nothing may be lacking."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(what)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    if shutil.which("java") is None:
        _lacking("Java is missing: apt-get install openjdk-17-jre-headless")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    directory: Path = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(REPOSITORY))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        gateway = SparkContext._gateway
        session.stop()
        assert gateway is not None
        gateway.shutdown()
        _end(gateway.proc)
        SparkContext._gateway = SparkContext._jvm = None


def _end(process: "subprocess.Popen[bytes]") -> None:
    """The JVM ends when its standard input does; its Python workers end with it."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OncelogProcess]:
    with OncelogProcess(tmp_path_factory.mktemp("broker"), ["num.partitions=2"]) as process:
        yield process


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    """Apache Kafka 4."""
    if not KAFKA_4.is_dir():
        _lacking("Apache Kafka is missing: run `make peers`")
    with KafkaProcess(tmp_path_factory.mktemp("kafka"), ["num.partitions=2"]) as process:
        yield process


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
