"""Reading topics as tables, with Spark itself."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from tests.spark.other_end import OtherEnd

NewName = Callable[[str], str]


@pytest.mark.smoke
def test_a_topic_is_a_table(spark: SparkSession, other_end: OtherEnd, new_name: NewName) -> None:
    topic = other_end.create(new_name("topic"), 2)
    other_end.write(topic, [(b"k%d" % n, b"v%d" % n) for n in range(1000)], partition=0, timestamp_ms=1_700_000_000_123)
    other_end.write(topic, [(None, None)], partition=1)
    table = (
        spark.read.format("oncelog")
        .option("kafka.bootstrap.servers", other_end.address)
        .option("subscribe", topic)
        .load()
    )
    assert [(field.name, field.dataType.simpleString()) for field in table.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    rows = table.where("partition = 0").orderBy("offset").collect()
    assert [(bytes(row.key), bytes(row.value), row.offset) for row in rows] == [
        (b"k%d" % n, b"v%d" % n, n) for n in range(1000)
    ]
    assert {(row.topic, row.timestamp.microsecond, row.timestampType) for row in rows} == {(topic, 123_000, 0)}
    assert [tuple(row)[:5] for row in table.where("partition = 1").collect()] == [(None, None, topic, 1, 0)]
