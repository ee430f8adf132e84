"""Reading topics as tables, with Spark itself."""

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from oncelog.spark_connector.reading.reader import SPARK_KEEPS_PLANS_APART
from tests.spark.other_end import Codec, OtherEnd

NewName = Callable[[str], str]
NOON = 1_700_000_000_000


def table(spark: SparkSession, other_end: OtherEnd, topic: str, **options: object) -> DataFrame:
    reader = spark.read.format("oncelog").option("kafka.bootstrap.servers", other_end.address)
    for name, value in {"subscribe": topic, **options}.items():
        reader = reader.option(name.replace("__", "."), str(value))
    return reader.load()


def values(frame: DataFrame) -> list[bytes]:
    return [bytes(row.value) for row in frame.orderBy("partition", "offset").collect()]


def messages(count: int) -> list[tuple[None, bytes]]:
    return [(None, b"v%d" % n) for n in range(count)]


@pytest.mark.smoke
def test_batch_read_of_a_topic_returns_a_table(spark: SparkSession, other_end: OtherEnd, new_name: NewName) -> None:
    topic = other_end.create(new_name("topic"), 2)
    other_end.write(topic, [(b"k%d" % n, b"v%d" % n) for n in range(1000)], partition=0, timestamp_ms=NOON + 123)
    other_end.write(topic, [(None, None)], partition=1)
    frame = table(spark, other_end, topic)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    rows = frame.where("partition = 0").orderBy("offset").collect()
    assert [(bytes(row.key), bytes(row.value), row.offset) for row in rows] == [
        (b"k%d" % n, b"v%d" % n, n) for n in range(1000)
    ]
    assert {(row.topic, row.timestamp.microsecond, row.timestampType) for row in rows} == {(topic, 123_000, 0)}
    assert [tuple(row)[:5] for row in frame.where("partition = 1").collect()] == [(None, None, topic, 1, 0)]


def test_headers_column_is_read_with_include_headers(
    spark: SparkSession, other_end: OtherEnd, new_name: NewName
) -> None:
    topic = other_end.create(new_name("topic"))
    other_end.write(topic, [(None, b"with")], headers=[("a", b"1"), ("b", None), ("a", b"")])
    other_end.write(topic, [(None, b"without")])
    frame = table(spark, other_end, topic, includeHeaders=True)
    assert frame.schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    first, second = (row.headers for row in frame.orderBy("offset").collect())
    assert [(each.key, each.value) for each in first] == [("a", b"1"), ("b", None), ("a", b"")]
    assert second is None


def test_columns_option_reads_only_some_columns(spark: SparkSession, other_end: OtherEnd, new_name: NewName) -> None:
    topic = other_end.create(new_name("topic"))
    other_end.write(topic, messages(3))
    frame = table(spark, other_end, topic, columns="offset,value")
    assert [(row.offset, bytes(row.value)) for row in frame.orderBy("offset").collect()] == [
        (0, b"v0"),
        (1, b"v1"),
        (2, b"v2"),
    ]


def test_ranges_are_cut_into_the_tasks_that_the_options_allow(
    spark: SparkSession, other_end: OtherEnd, new_name: NewName
) -> None:
    topic = other_end.create(new_name("topic"))
    other_end.write(topic, messages(100))
    bounds = {
        "startingOffsets": f'{{"{topic}": {{"0": 20}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": 80}}}}',
    }
    frame = table(spark, other_end, topic, minPartitions=3, **bounds)
    assert frame.rdd.getNumPartitions() == 3
    assert values(frame) == [b"v%d" % n for n in range(20, 80)]
    assert table(spark, other_end, topic, maxRecordsPerPartition=7, **bounds).rdd.getNumPartitions() == 9


def test_batch_read_by_time_begins_and_ends_at_these_times(
    spark: SparkSession, other_end: OtherEnd, new_name: NewName
) -> None:
    topic = other_end.create(new_name("topic"), 2)
    for hour in range(3):
        for partition in range(2):
            rows = [(None, b"%d-%d" % (hour, partition))]
            other_end.write(topic, rows, partition=partition, timestamp_ms=NOON + hour * 3_600_000)
    one = NOON + 3_600_000
    assert values(table(spark, other_end, topic, startingTimestamp=one, endingTimestamp=one + 1)) == [b"1-0", b"1-1"]
    each = f'{{"{topic}": {{"0": {NOON}, "1": {one + 1}}}}}'
    assert values(table(spark, other_end, topic, startingOffsetsByTimestamp=each, endingTimestamp=one + 1)) == [
        b"0-0",
        b"1-0",
    ]
    late = {"startingTimestamp": NOON * 2}
    with pytest.raises(PySparkException, match="startingTimestamp: no record is as young as that"):
        table(spark, other_end, topic, **late).collect()
    assert values(table(spark, other_end, topic, startingOffsetsByTimestampStrategy="latest", **late)) == []


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_topics_are_read_as_written(
    spark: SparkSession, other_end: OtherEnd, new_name: NewName, codec: Codec
) -> None:
    topic = other_end.create(new_name("topic"))
    other_end.write(topic, messages(500), compression=codec)
    assert values(table(spark, other_end, topic)) == [b"v%d" % n for n in range(500)]


def test_transactions_are_read_as_the_isolation_level_says(
    spark: SparkSession, other_end: OtherEnd, new_name: NewName
) -> None:
    topic = other_end.create(new_name("topic"))
    other_end.write(topic, [(None, b"aborted")], transactional_id=new_name("id"), commit=False)
    other_end.write(topic, [(None, b"committed")], transactional_id=new_name("id"))
    assert values(table(spark, other_end, topic)) == [b"committed"]
    everything = table(spark, other_end, topic, kafka__isolation__level="read_uncommitted")
    assert values(everything) == [b"aborted", b"committed"]


def test_table_used_twice_with_pushed_filters_is_read_right_or_refused(
    spark: SparkSession, other_end: OtherEnd, new_name: NewName
) -> None:
    """Refused where Spark would read all uses of a DataFrame by the filter that was pushed last."""
    topic = other_end.create(new_name("topic"))
    other_end.write(topic, messages(31))
    frame = table(spark, other_end, topic, pushFilters=True)
    if not SPARK_KEEPS_PLANS_APART:
        with pytest.raises(PySparkException, match="pushFilters: cannot be true with this version of Spark"):
            frame.collect()
        frame = table(spark, other_end, topic, pushFilters=False)
    low, high = frame.where("offset < 10"), frame.where("offset >= 10")
    counts = low.selectExpr("'low' as part").union(high.selectExpr("'high' as part")).groupBy("part").count()
    assert {row.part: row["count"] for row in counts.collect()} == {"low": 10, "high": 21}


@pytest.mark.smoke
def test_read_with_several_wrong_options_reports_all_at_once(
    spark: SparkSession, other_end: OtherEnd, new_name: NewName
) -> None:
    options = {"startingOffset": "earliest", "minPartitions": 0, "kafka.sasl.mechanism": "PLAIN"}
    with pytest.raises(PySparkException) as raised:
        table(spark, other_end, "any", **options).collect()
    message = str(raised.value)
    assert "3 options are not valid for format oncelog" in message
    assert "minPartitions: '0' is not valid; it may be a whole number from 1 to" in message
    assert "startingoffset: there is no such option; did you mean startingOffsets?" in message
    assert "kafka.sasl.mechanism: has no effect without kafka.security.protocol=" in message


def test_read_of_topics_that_do_not_exist_is_refused(
    spark: SparkSession, other_end: OtherEnd, new_name: NewName
) -> None:
    topic = new_name("topic")
    with pytest.raises(PySparkException, match=f"subscribe: there is no topic {topic}"):
        table(spark, other_end, topic).collect()
    nothing = spark.read.format("oncelog").option("subscribePattern", f"{topic}.*")
    assert nothing.option("kafka.bootstrap.servers", other_end.address).load().count() == 0


def test_records_that_retention_deleted_are_data_loss(
    spark: SparkSession, other_end: OtherEnd, new_name: NewName
) -> None:
    topic = other_end.create(new_name("topic"))
    other_end.write(topic, messages(10))
    other_end.delete_records(topic, 4)
    from_the_start = {"startingOffsets": f'{{"{topic}": {{"0": 0}}}}'}
    with pytest.raises(
        PySparkException, match=r"the log begins at 4, offsets from 0 on are gone.*failOnDataLoss=false"
    ):
        table(spark, other_end, topic, **from_the_start).collect()
    assert values(table(spark, other_end, topic, failOnDataLoss=False, **from_the_start)) == [
        b"v%d" % n for n in range(4, 10)
    ]


def test_registered_source_is_read_from_sql(spark: SparkSession, other_end: OtherEnd, new_name: NewName) -> None:
    topic = other_end.create(new_name("topic"))
    other_end.write(topic, messages(3))
    options = f"'kafka.bootstrap.servers' '{other_end.address}', subscribe '{topic}'"
    spark.sql(f"CREATE TABLE purchases USING oncelog OPTIONS ({options})")
    try:
        rows = spark.sql("SELECT decode(value, 'utf-8') AS text FROM purchases ORDER BY offset").collect()
        assert [row.text for row in rows] == ["v0", "v1", "v2"]
        later = f"""WITH (startingOffsets = '{{"{topic}": {{"0": 2}}}}')"""
        assert [row.offset for row in spark.sql(f"SELECT offset FROM purchases {later}").collect()] == [2]
    finally:
        spark.sql("DROP TABLE purchases")
    spark.sql(f"CREATE TEMPORARY VIEW recent USING oncelog OPTIONS ({options}, columns 'offset')")
    assert spark.sql("SELECT * FROM recent").count() == 3
    from oncelog.spark_connector.source import OncelogDataSource

    spark.dataSource.register(OncelogDataSource)
    assert table(spark, other_end, topic).count() == 3


def test_read_with_another_schema_is_refused(spark: SparkSession, other_end: OtherEnd, new_name: NewName) -> None:
    topic = other_end.create(new_name("topic"))
    reader = spark.read.format("oncelog").schema("value string").option("subscribe", topic)
    with pytest.raises(PySparkException, match=r"leave .schema\(...\) out"):
        reader.option("kafka.bootstrap.servers", other_end.address).load().collect()


def test_read_with_a_limit_leaves_nothing_open(spark: SparkSession, other_end: OtherEnd, new_name: NewName) -> None:
    """A task that is stopped in the middle leaves a response under way; the next one reads on the same connection."""
    topic = other_end.create(new_name("topic"))
    other_end.write(topic, [(None, b"%d" % n + b"x" * 1000) for n in range(3000)])
    frame = table(spark, other_end, topic, kafka__max__partition__fetch__bytes=100_000)
    for _ in range(3):
        assert len(frame.limit(5).collect()) == 5
    assert frame.count() == 3000
