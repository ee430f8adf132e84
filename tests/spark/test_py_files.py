"""``spark-submit --py-files`` with the wheel under the name ``oncelog.zip``, where the project is not installed."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark

from tests.spark.other_end import OtherEnd
from tests.wheel import build_wheel

_SECONDS = 400
_PROGRAM = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
from oncelog.spark_connector.source import OncelogDataSource

spark.dataSource.register(OncelogDataSource)
broker, topic = {"kafka.bootstrap.servers": sys.argv[1]}, sys.argv[2]
rows = spark.sql("select 'v' as value")
rows.write.format("oncelog").options(**broker).option("topic", topic).mode("append").save()
read = spark.read.format("oncelog").options(**broker, subscribe=topic).load()
print("read", read.count(), "by", sys.modules["oncelog.spark_connector"].__file__)
"""


def make_archive(directory: Path) -> Path:
    """Build the wheel and give it the name that Spark takes."""
    return build_wheel(directory).rename(directory / "oncelog.zip")


def make_python(directory: Path) -> Path:
    """A Python that has the dependencies, and not the project: without ``site``, no editable installation counts."""
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


def test_spark_submit_with_the_archive(other_end: OtherEnd, new_name: Callable[[str], str], tmp_path: Path) -> None:
    topic = other_end.create(new_name("topic"))
    (tmp_path / "program.py").write_text(_PROGRAM)
    python, home = make_python(tmp_path), Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "PYTHONPATH": str(home.parent),
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(home),
    }
    command = [home / "bin" / "spark-submit", "--master", "local[1]", "--driver-memory", "512m"]
    command += ["--conf", "spark.ui.enabled=false", "--py-files", make_archive(tmp_path)]
    command += ["program.py", other_end.address, topic]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=_SECONDS)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "read 1 by " in done.stdout
    assert "oncelog.zip" in done.stdout
