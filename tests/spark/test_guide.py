"""The programs of the pages on Spark as written there, but for addresses, names and folders, and the errors."""

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession

from tests.processes import REPOSITORY
from tests.spark.other_end import OtherEnd
from tests.spark.streams import on_a_busy_machine
from tests.spark.test_stream_write import values

PAGES = ("tutorials/spark.md", "how-to/recover-spark-queries.md", "reference/spark.md")
GUIDE = "".join((REPOSITORY / "docs" / page).read_text() for page in PAGES)


def program(name: str) -> str:
    """The first block of Python after the name of its file."""
    found = re.search(rf"`{re.escape(name)}`.*?```python\n(.*?)```", GUIDE, re.DOTALL)
    assert found is not None, name
    return found[1]


def test_programs_of_the_pages_run_as_written(
    spark: SparkSession, other_end: OtherEnd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str) -> None:
        text = program(name).replace("localhost:9092", other_end.address).replace('"checkpoints/', f'"{tmp_path}/')
        (tmp_path / name).write_text(text)
        on_a_busy_machine(lambda: runpy.run_path(str(tmp_path / name), run_name="__main__"))

    for topic in ("shop-orders", "shop-invoices"):
        other_end.create(topic, 3)
    run("first_batch.py")
    shown = capsys.readouterr().out
    schema = shown[shown.index("root") : shown.index("+---")].strip()
    assert schema in GUIDE
    assert shown.count("|ann|") == 2
    run("first_stream.py")
    run("pipeline.py")
    other_end.write("shop-orders", [(b"cid", b"4 cherries")])
    run("pipeline.py")
    expected = [b"apples 3", b"pears 5", b"plums 1", b"4 cherries"]
    assert values(other_end, "shop-invoices") == sorted(b"invoice for " + order for order in expected)


def test_foreach_batch_function_of_the_pages_writes_each_version_once(
    spark: SparkSession, other_end: OtherEnd, new_name: Callable[[str], str]
) -> None:
    found = re.search(r"`foreachBatch` get the same.*?```python\n(.*?)```", GUIDE, re.DOTALL)
    assert found is not None
    topic = other_end.create(new_name("t"), 2)
    names: dict[str, Any] = {"broker": {"kafka.bootstrap.servers": other_end.address}}
    exec(found[1].replace('"shop-invoices"', f'"{topic}"').replace('"invoicing"', f'"{topic}"'), names)  # noqa: S102
    for number in (0, 1, 1, 2):
        names["write"](spark.sql(f"select 'value {number}' as value"), number)
    assert "CheckpointRewound" in GUIDE
    with pytest.raises(PySparkException, match="CheckpointRewound"):
        names["write"](spark.sql("select 'value 0' as value"), 0)
    assert values(other_end, topic) == [b"value 0", b"value 1", b"value 2"]


def test_errors_are_those_of_the_table(
    spark: SparkSession, other_end: OtherEnd, new_name: Callable[[str], str]
) -> None:
    topic = other_end.create(new_name("t"), 1)
    rows = spark.sql("select 'v' as value")

    def reader(**options: str) -> DataFrameReader:
        given = {"kafka.bootstrap.servers": other_end.address, "subscribe": topic, **options}
        return spark.read.format("oncelog").options(**given)

    def writer(frame: DataFrame, mode: str = "append") -> DataFrameWriter:
        given = {"kafka.bootstrap.servers": other_end.address, "topic": topic}
        return frame.write.format("oncelog").options(**given).mode(mode)

    actions: dict[str, Callable[[], object]] = {
        "OptionsInvalid": lambda: reader(startingOfsets="earliest", minPartitions="few").load().collect(),
        "BoundInvalid": lambda: reader(endingOffsets=json.dumps({topic: {"0": 7}})).load().collect(),
        "NothingToRead": lambda: reader(subscribe=new_name("absent")).load().collect(),
        "RowsInvalid": lambda: writer(rows.selectExpr("value", "9 as partition")).save(),
        "leave .schema(...) out": lambda: reader().schema("value string").load().collect(),
        "UNSUPPORTED_DATA_SOURCE_SAVE_MODE": lambda: writer(rows, "error").save(),
    }
    for error, action in actions.items():
        assert error in GUIDE
        with pytest.raises(PySparkException, match=re.escape(error)) as refusal:
            action()
        if error == "OptionsInvalid":  # All of them, and what would do. Spark gives names in lower case.
            for words in ("startingofsets", "startingOffsets", "minPartitions"):
                assert words in str(refusal.value), refusal.value
    assert values(other_end, topic) == []
