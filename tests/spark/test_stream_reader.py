"""The stream reader as Spark calls it, without Spark: offsets in, ranges out, and what travels to tasks."""

import pickle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from oncelog.spark_connector.offset_ranges import OffsetRange
from oncelog.spark_connector.reading.read_options import read_options
from oncelog.spark_connector.reading.reader import RangePartition
from oncelog.spark_connector.reading.stream_reader import OncelogStreamReader
from oncelog.spark_connector.stream_offset import OffsetUnreadable
from tests.spark.other_end import OtherEnd

ID = bytes(range(16))
BEFORE = {"v": 1, "start": {"t": {"0": 0}}, "end": {"t": {"0": 4}}, "ids": {"t": ID.hex()}}
BATCH = {"v": 1, "start": {"t": {"0": 4, "1": 0}}, "end": {"t": {"0": 9, "1": 0}}, "ids": {"t": ID.hex()}}


def reader(address: str = "localhost:1", **options: str) -> OncelogStreamReader:
    given = {"kafka.bootstrap.servers": address, "subscribe": "t", **options}
    return OncelogStreamReader(read_options(given, streaming=True))


def ranges(start: dict[str, Any], end: dict[str, Any], **options: str) -> list[OffsetRange]:
    partitions = reader(**options).partitions(start, end)
    assert all(isinstance(each, RangePartition) for each in partitions)
    return [each.value for each in partitions]


def test_partitions_of_a_batch_are_those_of_its_end_offset() -> None:
    """After a crash Spark asks for the initial offset anew; the batch that is run again must be the same."""
    for start in (BEFORE, reader().initialOffset()):
        assert ranges(start, BATCH) == [OffsetRange("t", 0, 4, 9, ID)]


def test_batch_of_another_source_reads_nothing() -> None:
    assert ranges(BATCH, BATCH) == []
    assert ranges(reader().initialOffset(), reader().initialOffset()) == []


def test_large_ranges_are_cut_into_tasks() -> None:
    assert len(ranges(BEFORE, BATCH, minPartitions="3")) == 3
    assert [each.size for each in ranges(BEFORE, BATCH, maxRecordsPerPartition="2")] == [1, 2, 2]


def test_checkpoints_of_another_source_are_refused() -> None:
    with pytest.raises(OffsetUnreadable):
        ranges({"t": {"0": 4}}, {"t": {"0": 9}})


def test_limits_are_those_of_the_options() -> None:
    assert reader().getDefaultReadLimit() == ReadAllAvailable()
    assert reader(maxOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)
    assert reader(minOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMinRows(7)
    assert reader(minOffsetsPerTrigger="7", maxOffsetsPerTrigger="9").getDefaultReadLimit() == ReadMaxRows(9)


def test_trigger_once_takes_everything(other_end: OtherEnd) -> None:
    other_end.create("t")
    other_end.write("t", [(None, b"v")] * 20)
    reading = reader(other_end.address, startingOffsets="earliest", minOffsetsPerTrigger="5", maxOffsetsPerTrigger="10")
    first = reading.latestOffset(reading.initialOffset(), ReadMaxRows(10))
    assert first["end"] == {"t": {"0": 10}}
    assert reading.latestOffset(first, ReadAllAvailable())["end"] == {"t": {"0": 20}}
    assert reading.reportLatestOffset() == {"t": {"0": 20}}
    connected = pickle.loads(pickle.dumps(reading))
    (task,) = connected.partitions(reading.initialOffset(), first)
    assert sum(batch.num_rows for batch in connected.read(task)) == 10


def test_failed_commit_to_the_group_does_not_stop_the_query(
    other_end: OtherEnd, caplog: pytest.LogCaptureFixture
) -> None:
    other_end.create("told")
    end = {"v": 1, "start": {"told": {"0": 0}}, "end": {"told": {"0": 9}}, "ids": {}}
    reading = reader(other_end.address, groupId="watchers")
    reading.commit(reading.initialOffset())
    assert other_end.committed("watchers") == {}
    reading.commit(end)
    assert other_end.committed("watchers") == {("told", 0): 9}
    assert not caplog.records
    reader("localhost:1", groupId="watchers").commit(end)
    assert "offsets were not committed to group watchers" in caplog.text
