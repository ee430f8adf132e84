"""Tables and views of Spark's catalog that are read and written, and what Spark's default types may not change."""

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.other_end import OtherEnd
from tests.spark.streams import run_available, stream_of

NOON = 1_700_000_000_000


@pytest.fixture
def topic(other_end: OtherEnd, new_name: Callable[[str], str]) -> str:
    return other_end.create(new_name("topic"))


@pytest.fixture
def name(spark: SparkSession, numbers: "itertools.count[int]") -> Iterator[str]:
    """Of a table, which is dropped at the end."""
    unused = f"table_{next(numbers)}"
    yield unused
    spark.sql(f"DROP TABLE IF EXISTS {unused}")


def options(other_end: OtherEnd, topic: str) -> str:
    return f"'kafka.bootstrap.servers' '{other_end.address}', subscribe '{topic}', topic '{topic}'"


def test_insert_into_a_view_with_a_topic_and_select_from_it(
    spark: SparkSession, other_end: OtherEnd, topic: str
) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW both USING oncelog OPTIONS ({options(other_end, topic)}, minPartitions '1')")
    spark.sql("INSERT INTO both (value) VALUES (cast('a' AS binary))")
    spark.sql("INSERT INTO both SELECT cast('k' AS binary), cast('b' AS binary), null, 0, null, null, null")
    assert [record.value for record in other_end.read(topic)[0]] == [b"a", b"b"]
    assert [bytes(row.value) for row in spark.sql("SELECT value FROM both ORDER BY offset").collect()] == [b"a", b"b"]
    spark.catalog.dropTempView("both")


def test_insert_into_a_table_of_the_catalog_needs_the_options_in_the_statement(
    spark: SparkSession, other_end: OtherEnd, topic: str, name: str, new_name: Callable[[str], str]
) -> None:
    """Spark does not say which table is meant, and the schema may be that of the table that is read."""
    other = other_end.create(new_name("other"))
    other_end.write(other, [(None, b"from the other")])
    spark.sql(f"CREATE TABLE {name} USING oncelog OPTIONS ({options(other_end, topic)})")
    spark.sql(f"CREATE TABLE {name}_other USING oncelog OPTIONS ({options(other_end, other)})")
    target = f"{name} WITH (`kafka.bootstrap.servers` = '{other_end.address}', topic = '{topic}')"
    try:
        for statement in (
            f"INSERT INTO {name} (value) VALUES (cast('a' AS binary))",
            f"INSERT INTO {name} SELECT * FROM {name}_other",
        ):
            with pytest.raises(PySparkException, match=r"INSERT INTO a table of the catalog: .* WITH \(`kafka"):
                spark.sql(statement)
        spark.sql(f"INSERT INTO {target} (value) VALUES (cast('a' AS binary))")
        spark.sql(f"INSERT INTO {target} SELECT * FROM {name}_other")
        assert spark.sql(f"SELECT * FROM {name}").count() == 2
    finally:
        spark.sql(f"DROP TABLE {name}_other")
    assert [record.value for record in other_end.read(topic)[0]] == [b"a", b"from the other"]
    assert [record.value for record in other_end.read(other)[0]] == [b"from the other"]


def test_table_of_the_catalog_with_a_password_is_refused_without_showing_it(
    spark: SparkSession, other_end: OtherEnd, topic: str, name: str
) -> None:
    secured = "`kafka.security.protocol` 'SSL', `kafka.ssl.key.password` 'wonderland'"
    with pytest.raises(PySparkException, match="would be kept in the catalog") as raised:
        spark.sql(f"CREATE TABLE {name} USING oncelog OPTIONS ({options(other_end, topic)}, {secured})")
    assert "kafka.ssl.key.password" in str(raised.value)
    assert "wonderland" not in str(raised.value)


@pytest.fixture
def default_without_zone(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    yield
    spark.conf.unset("spark.sql.timestampType")


@pytest.mark.usefixtures("default_without_zone")
def test_time_of_a_record_is_an_instant_whatever_sparks_default_is(
    spark: SparkSession, other_end: OtherEnd, topic: str, name: str, tmp_path: Path
) -> None:
    other_end.write(topic, [(None, b"v")], timestamp_ms=NOON)
    batch = spark.read.format("oncelog").option("kafka.bootstrap.servers", other_end.address).option("subscribe", topic)
    spark.sql(f"CREATE TABLE {name} USING oncelog OPTIONS ({options(other_end, topic)})")
    stream = stream_of(spark, other_end.address, {"subscribe": topic, "startingOffsets": "earliest"})
    assert run_available(stream, tmp_path / "checkpoint", tmp_path / "table") == [1]
    for frame in (batch.load(), spark.table(name), spark.read.parquet(str(tmp_path / "table"))):
        assert frame.schema["timestamp"].dataType.simpleString() == "timestamp"
        ((instant,),) = frame.selectExpr("unix_millis(timestamp)").collect()
        assert instant == NOON
    assert batch.load().collect()[0].timestamp.replace(tzinfo=UTC) == datetime.fromtimestamp(NOON / 1000, UTC)
