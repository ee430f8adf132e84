"""``write`` and ``foreachBatch``, on real Spark and a real broker."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.processes import KafkaProcess
from tests.spark.other_end import OtherEnd
from tests.spark.streams import stream_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession


@pytest.fixture
def kafka_end(kafka: KafkaProcess) -> Iterator[OtherEnd]:
    with OtherEnd(kafka.address) as end:
        yield end


def to_topic(rows: "DataFrame", other_end: OtherEnd, topic: str | None) -> "DataFrameWriter":
    writer = rows.write.format("oncelog").mode("append").option("kafka.bootstrap.servers", other_end.address)
    return writer if topic is None else writer.option("topic", topic)


def records(other_end: OtherEnd, topic: str) -> list[tuple[Any, ...]]:
    other_end.wait_until_ended(topic)
    found = other_end.read(topic)
    return sorted((each.key, each.value, each.headers) for partition in found.values() for each in partition)


def numbers(spark: "SparkSession", count: int) -> "DataFrame":
    return spark.range(count).selectExpr("cast(id as string) as key", "concat('value ', id) as value")


def expected(count: int) -> list[tuple[Any, ...]]:
    return sorted((b"%d" % number, b"value %d" % number, []) for number in range(count))


def open_transactions(other_end: OtherEnd) -> list[str]:
    listed = other_end.client.run(other_end.client.admin.list_transactions(states=["Ongoing"]))
    return [each.transactional_id for each in listed]


def test_batch_write_arrives_as_a_whole(
    spark: "SparkSession", other_end: OtherEnd, new_name: Callable[[str], str]
) -> None:
    topic = other_end.create(new_name("t"), 3)
    to_topic(numbers(spark, 1000).repartition(3), other_end, topic).option("kafka.compression.type", "lz4").save()
    assert records(other_end, topic) == expected(1000)
    assert not open_transactions(other_end)


def test_topic_and_partition_columns_decide_where_rows_go(
    spark: "SparkSession", other_end: OtherEnd, new_name: Callable[[str], str]
) -> None:
    one, two = other_end.create(new_name("one"), 2), other_end.create(new_name("two"), 2)
    rows = spark.sql(
        f"""select '{one}' as topic, 1 as partition, binary('v') as value, 'k' as key,
            array(named_struct('key', 'h', 'value', binary('1'))) as headers, 5 as other
            union all select '{two}', 0, null, null, null, 6"""
    )
    to_topic(rows, other_end, None).save()
    assert other_end.read(one)[1][0][2:] == (b"k", b"v", [("h", b"1")])
    assert other_end.read(two)[0][0][2:] == (None, None, [])


def test_task_that_fails_leaves_no_rows(
    spark: "SparkSession", other_end: OtherEnd, new_name: Callable[[str], str]
) -> None:
    """The other task is done by then, and its rows are never seen."""
    topic = other_end.create(new_name("t"), 1)
    rows = spark.range(0, 20, 1, 2).selectExpr(
        "cast(if(id < 19, id, raise_error('this row fails')) as string) as value"
    )
    with pytest.raises(Exception, match="this row fails"):
        to_topic(rows, other_end, topic).save()
    assert records(other_end, topic) == []
    assert not open_transactions(other_end)


def test_rows_that_cannot_be_written_are_named_in_the_error(
    spark: "SparkSession", other_end: OtherEnd, new_name: Callable[[str], str]
) -> None:
    topic = other_end.create(new_name("t"), 1)
    rows = spark.sql("select 'v' as value, 7 as partition")
    with pytest.raises(Exception, match=r"a row is for partition 7 of .*, which has 1"):
        to_topic(rows, other_end, topic).save()


def test_write_with_several_wrong_options_reports_all_before_any_task(spark: "SparkSession") -> None:
    complaints = r"(?s)(?=.*column key: is int)(?=.*delivery\.guarantee: 'none')(?=.*topic: is required)"
    with pytest.raises(Exception, match=complaints):
        spark.sql("select 1 as key, 'v' as value").write.format("oncelog").mode("append").option(
            "delivery.guarantee", "none"
        ).option("kafka.bootstrap.servers", "x:1").save()


def test_version_that_is_saved_twice_is_written_once(
    spark: "SparkSession", other_end: OtherEnd, new_name: Callable[[str], str]
) -> None:
    topic = other_end.create(new_name("t"), 2)

    def save(version: int) -> None:
        writer = to_topic(numbers(spark, 10), other_end, topic)
        writer.option("txnAppId", topic).option("txnVersion", str(version)).save()

    save(4)
    save(4)
    with pytest.raises(Exception, match="CheckpointRewound"):
        save(3)
    save(5)
    assert records(other_end, topic) == sorted(expected(10) * 2)


def test_second_save_of_a_version_to_other_topics_of_the_column_is_refused(
    spark: "SparkSession", other_end: OtherEnd, new_name: Callable[[str], str]
) -> None:
    """All topics of the column are one sink: which they are is not known before the rows are."""
    topics, application = [other_end.create(new_name("t"), 1) for _ in range(2)], new_name("a")

    def save(topic: str) -> None:
        rows = numbers(spark, 10).selectExpr("*", f"'{topic}' as topic")
        to_topic(rows, other_end, None).option("txnAppId", application).option("txnVersion", "1").save()

    save(topics[0])
    save(topics[0])
    with pytest.raises(Exception, match=r"(?s)CheckpointRewound.*needs a txnAppId of its own"):
        save(topics[1])
    assert [records(other_end, topic) for topic in topics] == [expected(10), []]


def test_foreach_batch_run_again_writes_each_version_once(
    spark: "SparkSession", other_end: OtherEnd, new_name: Callable[[str], str], tmp_path: Path
) -> None:
    """A function that fails after it has written is called again with the same batch."""
    source, target = other_end.create(new_name("in"), 1), other_end.create(new_name("out"), 2)
    other_end.write(source, [(b"%d" % number, b"value %d" % number) for number in range(50)])
    failures = iter([True, False])

    def copy(batch: "DataFrame", number: int) -> None:
        writer = to_topic(batch.select("key", "value"), other_end, target)
        writer.option("txnAppId", source).option("txnVersion", str(number)).save()
        if next(failures, False):
            raise RuntimeError("after the write")

    def run() -> None:
        rows = spark.readStream.format("oncelog").option("kafka.bootstrap.servers", other_end.address)
        rows = rows.option("subscribe", source).option("startingOffsets", "earliest")
        stream = rows.load().writeStream.foreachBatch(copy).option("checkpointLocation", str(tmp_path / "c"))
        stream.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="after the write"):
        run()
    run()
    assert records(other_end, target) == expected(50)


def test_write_at_least_once_needs_no_transaction(
    spark: "SparkSession", other_end: OtherEnd, new_name: Callable[[str], str]
) -> None:
    topic = other_end.create(new_name("t"), 2)
    to_topic(numbers(spark, 100), other_end, topic).option("delivery.guarantee", "at-least-once").save()
    assert records(other_end, topic) == expected(100)
    known = other_end.client.run(other_end.client.admin.list_transactions())
    assert topic not in {each.transactional_id for each in known}


def test_apache_kafka_is_written_to(spark: "SparkSession", kafka_end: OtherEnd, new_name: Callable[[str], str]) -> None:
    topic = kafka_end.create(new_name("t"), 3)
    to_topic(numbers(spark, 1000).repartition(3), kafka_end, topic).save()
    for version in (1, 1, 2):
        writer = to_topic(numbers(spark, 10), kafka_end, topic)
        writer.option("txnAppId", topic).option("txnVersion", str(version)).save()
    assert records(kafka_end, topic) == sorted(expected(1000) + expected(10) * 2)
    assert not open_transactions(kafka_end)


def test_time_out_that_brokers_do_not_allow_is_refused_by_the_options_name(
    spark: "SparkSession", other_end: OtherEnd, new_name: Callable[[str], str]
) -> None:
    writer = to_topic(numbers(spark, 1), other_end, other_end.create(new_name("t"), 1))
    writer = writer.option("txnAppId", "a").option("txnVersion", "1").option("transactionTimeoutMs", "900001")
    with pytest.raises(Exception, match=r"transactionTimeoutMs: .*transaction\.max\.timeout\.ms"):
        writer.save()


@pytest.mark.parametrize("group", ["", "nightly"])
def test_second_save_of_a_version_in_one_batch_is_refused_until_it_has_its_own_application(
    spark: "SparkSession", other_end: OtherEnd, new_name: Callable[[str], str], tmp_path: Path, group: str
) -> None:
    """Delta skips it. Here no row may be lost silently, and none written twice when the query is started again."""
    source, target = other_end.create(new_name("in")), other_end.create(new_name("out"), 2)
    other_end.write(source, [(None, b"1"), (None, b"2")])
    applications = [source, source]

    def copy(batch: "DataFrame", number: int) -> None:
        if group:
            spark.sparkContext.setJobGroup(group, "of the program's own")
        for application, word in zip(applications, ("first", "second"), strict=True):
            rows = batch.selectExpr(f"concat('{word} ', cast(value as string)) as value")
            writer = rows.write.format("oncelog").option("kafka.bootstrap.servers", other_end.address).mode("append")
            writer = writer.option("topic", target).option("txnAppId", application)
            writer.option("txnVersion", str(number)).save()

    def run() -> None:
        stream = stream_of(spark, other_end.address, {"subscribe": source, "startingOffsets": "earliest"})
        writer = stream.writeStream.foreachBatch(copy).option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(240)

    def found() -> list[bytes]:
        return [value for _, value, _ in records(other_end, target)]

    for _ in range(2):
        with pytest.raises(Exception, match=r"(?s)SaveRepeated.*Give it a txnAppId of its own"):
            run()
        assert found() == [b"first 1", b"first 2"]
    applications[1] = f"{source}-second"
    run()
    assert found() == [b"first 1", b"first 2", b"second 1", b"second 2"]


def test_saved_version_is_skipped_by_the_next_run_though_all_runs_have_one_job_group(
    spark: "SparkSession", other_end: OtherEnd, new_name: Callable[[str], str], tmp_path: Path
) -> None:
    """As the batch fails after it was saved, the next run saves it again: that is no second ``save()`` of one run."""
    source, target = other_end.create(new_name("in")), other_end.create(new_name("out"), 2)
    other_end.write(source, [(None, b"1"), (None, b"2")])
    fails = [True, False]

    def copy(batch: "DataFrame", number: int) -> None:
        spark.sparkContext.setJobGroup("00000000-0000-4000-8000-000000000000", "of the program's own")
        writer = batch.select("value").write.format("oncelog").mode("append").option("topic", target)
        writer = writer.option("kafka.bootstrap.servers", other_end.address).option("txnAppId", source)
        writer.option("txnVersion", str(number)).save()
        if fails.pop(0):
            raise RuntimeError("after the save")

    def run() -> None:
        stream = stream_of(spark, other_end.address, {"subscribe": source, "startingOffsets": "earliest"})
        writer = stream.writeStream.foreachBatch(copy).option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(240)

    with pytest.raises(Exception, match="after the save"):
        run()
    run()
    assert [value for _, value, _ in records(other_end, target)] == [b"1", b"2"]
