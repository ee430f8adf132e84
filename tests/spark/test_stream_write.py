"""``writeStream`` to a topic, on real Spark and a real broker."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.other_end import OtherEnd

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter


def copying(
    spark: "SparkSession", other_end: OtherEnd, source: str, target: str, checkpoint: Path
) -> "DataStreamWriter":
    """A stream from one topic to another."""
    rows = (
        spark.readStream.format("oncelog")
        .option("kafka.bootstrap.servers", other_end.address)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    return (
        rows.select("key", "value")
        .writeStream.format("oncelog")
        .option("kafka.bootstrap.servers", other_end.address)
        .option("topic", target)
        .option("checkpointLocation", str(checkpoint))
    )


def values(other_end: OtherEnd, topic: str) -> list[bytes | None]:
    other_end.wait_until_ended(topic)
    records: dict[int, list[Any]] = other_end.read(topic)
    return sorted(each.value for partition in records.values() for each in partition)


@pytest.mark.parametrize("where", ["broker", "kafka"])
def test_stream_that_is_restarted_copies_rows_once(
    spark: "SparkSession", request: pytest.FixtureRequest, where: str, new_name: Callable[[str], str], tmp_path: Path
) -> None:
    with OtherEnd(request.getfixturevalue(where).address) as other_end:
        source, target = other_end.create(new_name("in"), 2), other_end.create(new_name("out"), 3)
        rows = [(b"%d" % number, b"value %d" % number) for number in range(1000)]
        other_end.write(source, rows)
        query = copying(spark, other_end, source, target, tmp_path / "c").trigger(availableNow=True).start()
        query.awaitTermination()
        assert values(other_end, target) == sorted(value for _, value in rows)
        other_end.write(source, [(None, b"more")])
        query = copying(spark, other_end, source, target, tmp_path / "c").trigger(availableNow=True).start()
        query.awaitTermination()
        assert values(other_end, target) == sorted([*(value for _, value in rows), b"more"])
