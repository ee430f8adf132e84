"""Topics that change under a stream that is running: source and sink, on Spark itself."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.processes import OncelogProcess
from tests.spark.other_end import OtherEnd, Row
from tests.spark.streams import stream_of, wait_for

NewName = Callable[[str], str]

pytestmark = pytest.mark.kills

_SECONDS = 240


def rows(start: int, stop: int) -> list[Row]:
    return [(b"%d" % number, b"value %d" % number) for number in range(start, stop)]


class Copy:
    """A stream that copies one topic to another, and goes on."""

    def __init__(self, spark: SparkSession, end: OtherEnd, name: NewName, directory: Path, partitions: int = 2) -> None:
        self.spark = spark
        self.end = end
        self.source = end.create(name("in"), partitions)
        self.target = end.create(name("out"), 2)
        self.checkpoint = directory / "checkpoint"

    @contextmanager
    def running(self, **options: str) -> Iterator[StreamingQuery]:
        given = {"subscribe": self.source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 200, **options}
        stream = stream_of(self.spark, self.end.address, given).select("key", "value")
        writer = stream.writeStream.format("oncelog").option("kafka.bootstrap.servers", self.end.address)
        query = writer.option("topic", self.target).option("checkpointLocation", str(self.checkpoint)).start()
        try:
            yield query
        finally:
            query.stop()

    def found(self) -> list[Row]:
        read = self.end.read(self.target)
        return sorted((each.key, each.value) for records in read.values() for each in records)

    def wait_until_found(self, query: StreamingQuery, expected: list[Row]) -> None:
        wait_for(query, lambda: len(self.found()) >= len(expected))
        self.end.wait_until_ended(self.target)
        assert self.found() == sorted(expected)

    def failure_of(self, query: StreamingQuery) -> str:
        """How it ends by itself."""
        with pytest.raises(Exception, match="STREAM_FAILED") as failed:
            query.awaitTermination(_SECONDS)
        return str(failed.value)


@pytest.fixture
def copy(spark: SparkSession, other_end: OtherEnd, new_name: NewName, tmp_path: Path) -> Copy:
    return Copy(spark, other_end, new_name, tmp_path)


def test_partitions_added_to_source_and_target_are_read_and_written(copy: Copy) -> None:
    with copy.running() as query:
        copy.end.write(copy.source, rows(0, 300))
        copy.wait_until_found(query, rows(0, 300))
        copy.end.add_partitions(copy.source, 4)
        copy.end.add_partitions(copy.target, 5)
        for partition in range(4):
            first = 300 + 100 * partition
            copy.end.write(copy.source, rows(first, first + 100), partition=partition)
        copy.wait_until_found(query, rows(0, 700))


@pytest.mark.parametrize("fails", ["true", "false"])
def test_source_deleted_and_created_again_is_data_loss(copy: Copy, fails: str) -> None:
    with copy.running(failOnDataLoss=fails) as query:
        copy.end.write(copy.source, rows(0, 300))
        copy.wait_until_found(query, rows(0, 300))
        copy.end.delete(copy.source)
        copy.end.create(copy.source, 2)
        copy.end.write(copy.source, rows(300, 700))
        if fails == "true":
            failure = copy.failure_of(query)
            assert "deleted and created again" in failure or "do not exist any more" in failure
            assert "failOnDataLoss=false" in failure
        else:
            copy.wait_until_found(query, rows(0, 700))
    if fails == "true":
        assert copy.found() == sorted(rows(0, 300))
        with copy.running(failOnDataLoss="false") as query:
            copy.wait_until_found(query, rows(0, 700))


def test_target_deleted_and_created_again_gets_later_rows_once(copy: Copy) -> None:
    """What was in it is gone with it; what comes later is there once."""
    with copy.running() as query:
        copy.end.write(copy.source, rows(0, 300))
        copy.wait_until_found(query, rows(0, 300))
        copy.end.delete(copy.target)
        copy.end.create(copy.target, 3)
        copy.end.write(copy.source, rows(300, 700))
        copy.wait_until_found(query, rows(300, 700))


@pytest.mark.parametrize("fails", ["true", "false"])
def test_records_deleted_before_they_are_read_are_data_loss(
    spark: SparkSession, other_end: OtherEnd, new_name: NewName, tmp_path: Path, fails: str
) -> None:
    """As retention does it, between two runs."""
    copy = Copy(spark, other_end, new_name, tmp_path, partitions=1)
    with copy.running() as query:
        copy.end.write(copy.source, rows(0, 300))
        copy.wait_until_found(query, rows(0, 300))
    copy.end.write(copy.source, rows(300, 700))
    copy.end.delete_records(copy.source, 500)
    with copy.running(failOnDataLoss=fails) as query:
        if fails == "true":
            failure = copy.failure_of(query)
            assert "DataLoss" in failure
            assert "failOnDataLoss=false" in failure
        else:
            copy.wait_until_found(query, rows(0, 300) + rows(500, 700))
    if fails == "true":
        assert copy.found() == sorted(rows(0, 300))


def test_records_compacted_away_before_they_are_read_are_no_data_loss(
    spark: SparkSession, new_name: NewName, tmp_path: Path
) -> None:
    """Whole batches of a stream have no record left then: that is no loss."""
    settings = ["log.cleaner.backoff.ms=100", "log.cleaner.min.cleanable.ratio=0.01"]
    with OncelogProcess(tmp_path / "broker", settings) as broker, OtherEnd(broker.address) as end:
        copy = Copy(spark, end, new_name, tmp_path)
        copy.source = end.create("compacted", 1, {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)})
        end.write(copy.source, rows(0, 300))
        with copy.running() as query:
            copy.wait_until_found(query, rows(0, 300))
        for number in range(3, 9):
            end.write(copy.source, [(b"%d" % (row % 40), b"%d" % number + b"x" * 1000) for row in range(1000)])
        _wait_until(lambda: len(end.read(copy.source)[0]) < 3000)
        left = [(each.key, each.value) for each in end.read(copy.source)[0] if each.offset >= 300]
        with copy.running(failOnDataLoss="true", maxOffsetsPerTrigger="700") as query:
            copy.wait_until_found(query, rows(0, 300) + left)


def _wait_until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(_SECONDS):
        if condition():
            return
        pause.wait(1)
    raise AssertionError(f"it did not happen within {_SECONDS} s")
