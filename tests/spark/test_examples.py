"""The Spark program of ``examples/``; ``tests/integration/test_examples.py`` runs the others."""

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.processes import REPOSITORY
from tests.spark.other_end import OtherEnd
from tests.spark.streams import on_a_busy_machine
from tests.spark.test_stream_write import values


@pytest.mark.smoke
def test_spark_stream_run_twice_writes_every_row_once(
    spark: SparkSession, other_end: OtherEnd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = str(REPOSITORY / "examples" / "spark_stream.py")
    monkeypatch.setattr("sys.argv", [program, other_end.address, str(tmp_path / "checkpoint")])
    source, target = other_end.create("example-clicks", 2), other_end.create("example-pages", 2)
    for value in (b"home", b"basket"):
        other_end.write(source, [(b"ann", value)])
        on_a_busy_machine(lambda: runpy.run_path(program, run_name="__main__"))
    assert values(other_end, target) == [b"BASKET", b"HOME"]
