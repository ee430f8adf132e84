"""Spark as tests, benchmarks and demos start it: small, on loopback only, and with no process left behind."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.processes import PEERS, REPOSITORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_KAFKA = PEERS / "spark-kafka" / "lib"
"""Spark's own connector, if it is installed (``.peers/spark-kafka``)."""
_STOP_SECONDS = 30.0
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.app.name": "oncelog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
QUICK_START = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Half of the processor time of Spark's start, at the price of slower code later."""
ENVIRONMENT = {
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_DRIVER_PYTHON": sys.executable,
    "PYTHONPATH": str(REPOSITORY),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYTHONDONTWRITEBYTECODE": "",  # Spark starts many Pythons: compiled modules are kept for the next.
}


def spark_home(directory: Path) -> Path:
    """Spark's home without its zipped PySpark: every Python that Spark starts would compile that anew, for a second."""
    import pyspark

    home = directory / "spark-home"
    home.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars"):
        if not (home / name).exists():
            (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return home


def temporary_files(directory: Path) -> dict[str, str]:
    """Settings of a JVM that will be killed: it cannot delete its temporary files, so they are in ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    return {
        "spark.local.dir": str(directory),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={directory}",
    }


@contextmanager
def spark_session(
    directory: Path, settings: Mapping[str, str] | None = None, *, quick_start: bool = True
) -> Iterator["SparkSession"]:
    """A session in a JVM of its own, which is gone afterwards; Spark's own connector is on its class path."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    jars = {"spark.jars": ",".join(map(str, sorted(SPARK_KAFKA.glob("*.jar"))))} if SPARK_KAFKA.is_dir() else {}
    for name, value in {**_SETTINGS, **jars, **(settings or {})}.items():
        builder = builder.config(name, value)
    home = {"SPARK_HOME": str(spark_home(directory))}
    with _environment({**ENVIRONMENT, **home, **(QUICK_START if quick_start else {})}):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        _end(session)


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Only while Spark starts, which hands it down to its workers: other processes are not meant."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _end(session: "SparkSession") -> None:
    """The JVM ends when its standard input does; its Python workers end with it."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    session.stop()
    assert gateway is not None
    gateway.shutdown()
    process: subprocess.Popen[bytes] = gateway.proc
    SparkContext._gateway = SparkContext._jvm = None
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
