"""The batch reader as Spark calls it, without Spark: filters in, ranges and rows out."""

import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, StringStartsWith

from oncelog.spark_connector.reading.offset_bounds import BoundInvalid
from oncelog.spark_connector.reading.read_options import read_options
from oncelog.spark_connector.reading.reader import OncelogFilteringReader, OncelogReader
from tests.spark.other_end import OtherEnd

NOON = datetime(2023, 11, 14, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def topic(other_end: OtherEnd, new_name: Callable[[str], str]) -> str:
    """Two partitions with records ``<partition>-<n>``, a second apart from noon on."""
    name = other_end.create(new_name("topic"), 2)
    for partition in range(2):
        for n in range(4):
            rows = [(None, b"%d-%d" % (partition, n))]
            other_end.write(name, rows, partition=partition, timestamp_ms=NOON_MS + n * 1000)
    return name


def read(other_end: OtherEnd, topic: str, filters: list[Filter]) -> tuple[list[bytes], list[Filter], int]:
    """The values, which of the filters are left to Spark, and how many tasks there are."""
    options = {"kafka.bootstrap.servers": other_end.address, "subscribe": topic, "pushFilters": "true"}
    reader = OncelogFilteringReader(read_options(options, streaming=False, spark_keeps_plans_apart=True))
    left = list(reader.pushFilters(filters))
    tasks = reader.partitions()
    in_task = pickle.loads(pickle.dumps(reader))
    values = [value for task in tasks for batch in in_task.read(task) for value in batch["value"].to_pylist()]
    return sorted(values), left, len(tasks)


def test_comparisons_of_partition_and_offset_are_kept_exactly(other_end: OtherEnd, topic: str) -> None:
    both = [EqualTo(("partition",), 1), GreaterThanOrEqual(("offset",), 2)]
    assert read(other_end, topic, both) == ([b"1-2", b"1-3"], [], 1)
    assert read(other_end, topic, [In(("partition",), (0,)), LessThan(("offset",), 1)]) == ([b"0-0"], [], 1)
    assert read(other_end, topic, [EqualTo(("offset",), 9)])[:2] == ([], [])


def test_time_filter_raises_the_start_and_spark_still_filters(other_end: OtherEnd, topic: str) -> None:
    recent = GreaterThanOrEqual(("timestamp",), NOON + timedelta(seconds=3))
    assert read(other_end, topic, [recent]) == ([b"0-3", b"1-3"], [recent], 2)
    later = GreaterThan(("timestamp",), NOON + timedelta(days=1))
    assert read(other_end, topic, [later])[:2] == ([], [later])


@pytest.mark.parametrize("milliseconds", [1, 2, 3, 4, 5, 6, 1000, 86_400_000])
def test_times_before_1970_leave_all_rows(other_end: OtherEnd, topic: str, milliseconds: int) -> None:
    before = GreaterThanOrEqual(("timestamp",), EPOCH - timedelta(milliseconds=milliseconds))
    values, left, _ = read(other_end, topic, [before])
    assert len(values) == 8
    assert left == [before]


def test_filters_that_are_not_supported_are_left_to_spark(other_end: OtherEnd, topic: str) -> None:
    other = StringStartsWith(("topic",), "t")
    values, left, _ = read(other_end, topic, [other])
    assert len(values) == 8
    assert left == [other]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_start_after_the_end_is_refused_whatever_fail_on_data_loss_is(
    other_end: OtherEnd, topic: str, fails: str
) -> None:
    options = {"kafka.bootstrap.servers": other_end.address, "assign": f'{{"{topic}": [0]}}', "failOnDataLoss": fails}
    options |= {"startingOffsets": f'{{"{topic}": {{"0": 3}}}}', "endingOffsets": f'{{"{topic}": {{"0": 1}}}}'}
    with pytest.raises(BoundInvalid, match=f"{topic}-0: the start, 3, is after the end, 1"):
        OncelogReader(read_options(options, streaming=False)).partitions()
