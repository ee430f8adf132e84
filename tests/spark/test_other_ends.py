"""The connector among others: Apache Kafka as the cluster, and Spark's own connector as the other reader and writer.

What Spark's own connector says is the reference: both formats read the same rows, column by column, and send the same
keys to the same partitions.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from oncelog.clients.admin.transactions import ONGOING, list_transactions
from tests.processes import KafkaProcess, OncelogProcess
from tests.spark.other_end import Codec, OtherEnd
from tests.spark.streams import on_a_busy_machine
from tests.spark.test_stream_write import copying, values
from tests.spark_session import SPARK_KAFKA

NewName = Callable[[str], str]
_SECONDS = 240
_CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")

pytestmark = pytest.mark.skipif(not SPARK_KAFKA.is_dir(), reason="Spark's own connector is missing: make spark-test")


@pytest.fixture
def kafka_end(kafka: KafkaProcess) -> Iterator[OtherEnd]:
    with OtherEnd(kafka.address) as end:
        yield end


@pytest.fixture(params=["oncelog", "kafka"])
def either_end(request: pytest.FixtureRequest) -> Iterator[OtherEnd]:
    """Our broker, then Apache Kafka."""
    process: OncelogProcess | KafkaProcess = request.getfixturevalue(
        "broker" if request.param == "oncelog" else "kafka"
    )
    with OtherEnd(process.address) as end:
        yield end


def table(spark: SparkSession, source: str, end: OtherEnd, topic: str) -> DataFrame:
    """All that is committed, with headers, as one of the formats reads it."""
    return (
        spark.read.format(source)
        .option("kafka.bootstrap.servers", end.address)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )


def assert_both_read_the_same(spark: SparkSession, end: OtherEnd, topic: str, count: int) -> None:
    ours, theirs = (table(spark, source, end, topic) for source in ("oncelog", "kafka"))
    assert ours.schema.simpleString() == theirs.schema.simpleString()
    assert sorted(map(repr, ours.collect())) == sorted(map(repr, theirs.collect()))
    assert ours.count() == count


def open_transactions(end: OtherEnd, prefix: str) -> list[str]:
    listed = end.client.run(list_transactions(end.client.cluster, states=[ONGOING]))
    return [each.transactional_id for each in listed if each.transactional_id.startswith(prefix)]


def mixed_rows(spark: SparkSession, count: int) -> DataFrame:
    """Keys, some of them null, values, and headers on every third row."""
    headers = f.array(
        f.struct(f.lit("n").alias("key"), f.col("id").cast("string").cast("binary").alias("value")),
        f.struct(f.lit("none").alias("key"), f.lit(None).cast("binary").alias("value")),
    )
    return spark.range(0, count, 1, 2).select(
        f.when(f.col("id") % 5 != 0, f.concat(f.lit("key "), f.col("id"))).cast("binary").alias("key"),
        f.concat(f.lit("value "), f.col("id")).cast("binary").alias("value"),
        f.when(f.col("id") % 3 == 0, headers).alias("headers"),
    )


def write(rows: DataFrame, sink: str, end: OtherEnd, topic: str, **options: object) -> None:
    writer = rows.write.format(sink).mode("append").option("kafka.bootstrap.servers", end.address)
    writer = writer.option("topic", topic).option("includeHeaders", "true")
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.save()


def test_both_formats_read_the_same_of_what_either_wrote(
    spark: SparkSession, either_end: OtherEnd, new_name: NewName
) -> None:
    topic = either_end.create(new_name("topic"), 3)
    write(mixed_rows(spark, 300), "kafka", either_end, topic)
    write(mixed_rows(spark, 200), "oncelog", either_end, topic)
    for codec in _CODECS:
        identifier = new_name("id")
        either_end.write(topic, [(b"k", b"committed")], compression=codec, transactional_id=identifier)
        either_end.write(topic, [(b"k", b"aborted")], compression=codec, transactional_id=identifier, commit=False)
    assert_both_read_the_same(spark, either_end, topic, 500 + len(_CODECS))


def test_both_formats_send_a_key_to_the_same_partition(
    spark: SparkSession, other_end: OtherEnd, new_name: NewName
) -> None:
    rows = spark.range(500).select(f.expr("repeat(cast(id as string), cast(id % 9 as int))").alias("key"))
    homes = []
    for sink in ("oncelog", "kafka"):
        topic = other_end.create(new_name(sink), 7)
        write(rows.withColumn("value", f.lit("v")), sink, other_end, topic)
        found = table(spark, "oncelog", other_end, topic).collect()
        homes.append({bytes(row.key): row.partition for row in found})
    assert homes[0] == homes[1]
    assert len(set(homes[0].values())) == 7


def test_rows_of_a_failed_batch_are_visible_to_no_consumer(
    spark: SparkSession, either_end: OtherEnd, new_name: NewName
) -> None:
    topic = either_end.create(new_name("topic"), 2)
    rows = mixed_rows(spark, 1_000)
    failing = rows.withColumn("value", f.expr("if(value = 'value 999', raise_error('on purpose'), value)"))
    with pytest.raises(PySparkException, match="on purpose"):
        write(failing, "oncelog", either_end, topic, txnAppId=topic, txnVersion=1)
    assert_both_read_the_same(spark, either_end, topic, 0)
    for version in (1, 1, 2):
        write(rows, "oncelog", either_end, topic, txnAppId=topic, txnVersion=version)
    assert_both_read_the_same(spark, either_end, topic, 2_000)


def test_stream_over_restarts_writes_a_repeated_batch_once(
    spark: SparkSession, either_end: OtherEnd, new_name: NewName, tmp_path: Path
) -> None:
    source, target = either_end.create(new_name("in"), 2), either_end.create(new_name("out"), 3)
    prefix = new_name("sink")

    def run() -> None:
        writer: Any = copying(spark, either_end, source, target, tmp_path / "c")
        query = writer.option("transactionalIdPrefix", prefix).trigger(availableNow=True).start()
        assert query.awaitTermination(_SECONDS)

    rows = [(b"%d" % number, b"value %d" % number) for number in range(500)]
    either_end.write(source, rows)
    on_a_busy_machine(run)
    newest = max((tmp_path / "c/commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()  # As after a crash when the sink had committed, and Spark did not know it yet.
    newest.with_name(f".{newest.name}.crc").unlink()
    either_end.write(source, [(None, b"more")])
    on_a_busy_machine(run)
    assert values(either_end, target) == sorted([*(value for _, value in rows), b"more"])
    assert_both_read_the_same(spark, either_end, target, 501)
    assert open_transactions(either_end, f"{prefix}.") == []


def test_open_transaction_of_a_dead_task_is_aborted(
    spark: SparkSession, kafka_end: OtherEnd, new_name: NewName, tmp_path: Path
) -> None:
    source, target = kafka_end.create(new_name("in")), kafka_end.create(new_name("out"))
    prefix = new_name("sink")
    dead = Producer({"bootstrap.servers": kafka_end.address, "transactional.id": f"{prefix}.0.0123456789abcdef.0"})
    dead.init_transactions()
    dead.begin_transaction()
    dead.produce(target, b"of a dead task")
    assert dead.flush(60) == 0
    assert open_transactions(kafka_end, f"{prefix}.")
    kafka_end.write(source, [(None, b"alive")])
    writer: Any = copying(spark, kafka_end, source, target, tmp_path / "c")
    writer = writer.option("transactionalIdPrefix", prefix).trigger(availableNow=True)
    on_a_busy_machine(lambda: writer.start().awaitTermination(_SECONDS))
    assert open_transactions(kafka_end, f"{prefix}.") == []
    assert values(kafka_end, target) == [b"alive"]


def test_streams_of_both_formats_one_after_the_other(
    spark: SparkSession, either_end: OtherEnd, new_name: NewName, tmp_path: Path
) -> None:
    """Each stream reads with one format and writes with the other, what the one before has written."""
    topics = [either_end.create(new_name("topic"), 2) for _ in range(3)]
    rows = [(b"%d" % number, b"value %d" % number) for number in range(300)]
    either_end.write(topics[0], rows)

    def copy(source: str, source_topic: str, sink: str, sink_topic: str) -> None:
        stream = (
            spark.readStream.format(source)
            .option("kafka.bootstrap.servers", either_end.address)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", source_topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        writer = (
            stream.select("key", "value")
            .writeStream.format(sink)
            .option("kafka.bootstrap.servers", either_end.address)
            .option("topic", sink_topic)
            .option("checkpointLocation", str(tmp_path / source))
            .trigger(availableNow=True)
        )
        on_a_busy_machine(lambda: writer.start().awaitTermination(_SECONDS))
        assert values(either_end, sink_topic) == sorted(value for _, value in rows)

    copy("kafka", topics[0], "oncelog", topics[1])
    copy("oncelog", topics[1], "kafka", topics[2])
