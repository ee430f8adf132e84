"""The programs of ``docs/spark.md`` as they are written there, but for the address and the folder of the checkpoint."""

import re
import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.processes import REPOSITORY
from tests.spark.other_end import OtherEnd
from tests.spark.streams import on_a_busy_machine
from tests.spark.test_stream_write import values

GUIDE = (REPOSITORY / "docs" / "spark.md").read_text()


def program(name: str) -> str:
    """The first block of Python after the name of its file."""
    found = re.search(rf"`{re.escape(name)}`.*?```python\n(.*?)```", GUIDE, re.DOTALL)
    assert found is not None, name
    return found[1]


def test_every_program_runs(
    spark: SparkSession, other_end: OtherEnd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str) -> None:
        text = program(name).replace("localhost:9092", other_end.address).replace('"checkpoints/', f'"{tmp_path}/')
        (tmp_path / name).write_text(text)
        on_a_busy_machine(lambda: runpy.run_path(str(tmp_path / name), run_name="__main__"))

    for topic in ("orders", "invoices"):
        other_end.create(topic, 3)
    run("first_batch.py")
    shown = capsys.readouterr().out
    schema = shown[shown.index("root") : shown.index("+---")].strip()
    assert schema in GUIDE
    assert shown.count("|ann|") == 2
    run("first_stream.py")
    run("pipeline.py")
    other_end.write("orders", [(b"cid", b"4 cherries")])
    run("pipeline.py")
    expected = [b"apples 3", b"pears 5", b"plums 1", b"4 cherries"]
    assert values(other_end, "invoices") == sorted(b"invoice for " + order for order in expected)
