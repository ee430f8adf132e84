"""A PySpark job of a user whose own modules are called like folders of ours, with the wheel installed."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.spark.other_end import OtherEnd
from tests.spark_session import spark_home
from tests.wheel import build_wheel, install_wheel, make_users_project

_SECONDS = 400
_PROGRAM = """
import sys, broker, clients, coordinator, protocol, spark_connector
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
servers, topic = {"kafka.bootstrap.servers": sys.argv[1]}, sys.argv[2]
whose = udf(lambda value: f"{protocol.WHOSE} {value}")
rows = spark.sql("select 'v' as value").select(whose("value").alias("value"))
rows.write.format("oncelog").options(**servers).option("topic", topic).mode("append").save()
read = spark.read.format("oncelog").options(**servers, subscribe=topic).load()
print("read", [bytes(row.value).decode() for row in read.collect()])
"""


def test_job_finds_the_format_and_the_users_modules(
    other_end: OtherEnd, new_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = other_end.create(new_name("topic"))
    project = make_users_project(tmp_path / "project")
    python = install_wheel(build_wheel(tmp_path), tmp_path / "venv") / "python"
    (project / "program.py").write_text(_PROGRAM)
    environment = {
        **os.environ,
        "PYTHONPATH": str(project),
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "PYSPARK_SUBMIT_ARGS": "--master local[1] --driver-memory 512m --conf spark.ui.enabled=false pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(spark_home(tmp_path)),
    }
    command = [python, "program.py", other_end.address, topic]
    done = subprocess.run(command, env=environment, cwd=project, capture_output=True, text=True, timeout=_SECONDS)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "read ['mine: protocol.py v']" in done.stdout
