"""Reading topics as streams, with Spark itself: starts, limits, restarts, and topics that change."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.processes import OncelogProcess
from tests.spark.other_end import OtherEnd
from tests.spark.streams import committed_end, run_available, stream_of, wait_for

NewName = Callable[[str], str]


class Pipeline:
    """A stream of a topic into files, run again and again."""

    def __init__(self, spark: SparkSession, address: str, directory: Path, options: Mapping[str, object]) -> None:
        self._spark = spark
        self._address = address
        self.checkpoint = directory / "checkpoint"
        self.table = directory / "table"
        self.options = dict(options)

    def run(self) -> list[int]:
        return run_available(stream_of(self._spark, self._address, self.options), self.checkpoint, self.table)

    def values(self) -> list[bytes]:
        rows = self._spark.read.parquet(str(self.table)).orderBy("partition", "offset").collect()
        return [bytes(row.value) for row in rows]

    def offsets(self) -> list[dict[str, object]]:
        """The end offset of each batch, as the checkpoint has it."""
        logged = sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return [json.loads(path.read_text().splitlines()[-1]) for path in logged]


def values(start: int, stop: int) -> list[bytes]:
    return [b"v%05d" % n for n in range(start, stop)]


@pytest.mark.smoke
def test_records_are_read_once_over_restarts(
    spark: SparkSession, other_end: OtherEnd, new_name: NewName, tmp_path: Path
) -> None:
    topic = other_end.create(new_name("topic"))
    other_end.write(topic, [(None, value) for value in values(0, 100)])
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 40}
    pipeline = Pipeline(spark, other_end.address, tmp_path, options)
    assert pipeline.run() == [40, 40, 20]
    assert pipeline.run() == []
    other_end.write(topic, [(None, value) for value in values(100, 130)])
    assert pipeline.run() == [30]
    assert pipeline.values() == values(0, 130)


def test_stream_that_starts_at_the_end_reads_all_later_records(
    spark: SparkSession, other_end: OtherEnd, new_name: NewName, tmp_path: Path
) -> None:
    topic = other_end.create(new_name("topic"), 2)
    other_end.write(topic, [(None, b"before")], partition=0)
    pipeline = Pipeline(spark, other_end.address, tmp_path, {"subscribe": topic})
    assert pipeline.run() == []
    (first,) = pipeline.offsets()
    assert first["start"] == first["end"] == {topic: {"0": 1, "1": 0}}
    other_end.write(topic, [(None, b"after")], partition=0)
    assert pipeline.run() == [1]
    assert pipeline.values() == [b"after"]


def test_topic_that_was_created_again_is_data_loss(
    spark: SparkSession, other_end: OtherEnd, new_name: NewName, tmp_path: Path
) -> None:
    topic = other_end.create(new_name("topic"))
    other_end.write(topic, [(None, value) for value in values(0, 10)])
    pipeline = Pipeline(spark, other_end.address, tmp_path, {"subscribe": topic, "startingOffsets": "earliest"})
    assert pipeline.run() == [10]
    other_end.delete(topic)
    other_end.create(topic)
    other_end.write(topic, [(None, value) for value in values(50, 70)])
    with pytest.raises(StreamingQueryException, match=f"deleted and created again: {topic}.*failOnDataLoss=false"):
        pipeline.run()
    pipeline.options["failOnDataLoss"] = "false"
    assert pipeline.run() == [20]
    assert sorted(pipeline.values()) == values(0, 10) + values(50, 70)


def test_new_partitions_and_topics_are_read_from_their_beginning(
    spark: SparkSession, other_end: OtherEnd, new_name: NewName, tmp_path: Path
) -> None:
    prefix = new_name("topic")
    other_end.create(f"{prefix}-a")
    pipeline = Pipeline(spark, other_end.address, tmp_path, {"subscribePattern": f"{prefix}-[a-z]"})
    assert pipeline.run() == []
    other_end.add_partitions(f"{prefix}-a", 2)
    other_end.write(f"{prefix}-a", [(None, b"new partition")], partition=1)
    other_end.create(f"{prefix}-b")
    other_end.write(f"{prefix}-b", [(None, b"new topic")])
    other_end.create(f"{prefix}-10")
    other_end.write(f"{prefix}-10", [(None, b"does not match")])
    assert pipeline.run() == [2]
    assert sorted(pipeline.values()) == [b"new partition", b"new topic"]


def test_committed_records_are_read_and_offsets_are_committed_to_the_group(
    spark: SparkSession, other_end: OtherEnd, new_name: NewName, tmp_path: Path
) -> None:
    topic, group = other_end.create(new_name("topic")), new_name("group")
    other_end.write(topic, [(None, b"aborted")], transactional_id=new_name("id"), commit=False)
    other_end.write(topic, [(None, b"committed")], transactional_id=new_name("id"))
    options = {"subscribe": topic, "startingOffsets": "earliest", "groupId": group}
    pipeline = Pipeline(spark, other_end.address, tmp_path, options)
    assert pipeline.run() == [1]
    other_end.write(topic, [(None, b"more")])
    assert pipeline.run() == [1]
    assert pipeline.values() == [b"committed", b"more"]
    assert other_end.committed(group) == {(topic, 0): 4}


def test_stream_continues_after_a_broker_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    """The stream waits for it, and reads each record once."""
    with OncelogProcess(tmp_path / "broker") as broker, OtherEnd(broker.address) as end:
        end.create("topic")
        end.write("topic", [(None, value) for value in values(0, 3000)])
        options = {"subscribe": "topic", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 1000}
        stream = stream_of(spark, broker.address, options)
        table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
        writer = stream.writeStream.format("parquet").option("path", str(table))
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            wait_for(query, lambda: (checkpoint / "commits" / "0").exists())
            broker.kill()
            broker.start()
            end.write("topic", [(None, value) for value in values(3000, 4000)])
            wait_for(query, lambda: committed_end(checkpoint, "topic") == 4000)
        finally:
            query.stop()
        rows = spark.read.parquet(str(table)).orderBy("offset").collect()
        assert [bytes(row.value) for row in rows] == values(0, 4000)
