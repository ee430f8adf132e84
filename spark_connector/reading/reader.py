"""The batch reader: the ranges are planned once, on the driver; tasks read them.

A second action on the same DataFrame reads the same plan: the ends are those of the first action, until the DataFrame
is loaded again.
"""

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from oncelog.clients.cluster import Cluster
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.offset_ranges import OffsetRange, cut
from oncelog.spark_connector.plain_errors import plain_errors
from oncelog.spark_connector.process_client import process_client
from oncelog.spark_connector.reading.offset_bounds import BoundInvalid
from oncelog.spark_connector.reading.offset_lookup import (
    find_offsets,
    latest_offsets,
    require_partitions,
    resolve_bound,
)
from oncelog.spark_connector.reading.pushed_filters import Comparison, Operator, PushedFilters
from oncelog.spark_connector.reading.range_reader import RangeReader
from oncelog.spark_connector.reading.read_options import ReadOptions
from oncelog.spark_connector.retry import retry_operation

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter  # Of pyspark 4.1.

_OPERATORS: Final[dict[str, Operator]] = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "In": "in",
}

SPARK_KEEPS_PLANS_APART: Final = hasattr(DataSourceReader, "pushLimit")
"""Whether each scan has a read plan of its own.

Up to Spark 4.3 the plan that ``pushFilters`` leads to belongs to the data source (``PythonDataSourceV2.readInfo``), so
that all scans of a DataFrame read by the last one. The version that also pushes limits (SPARK-58551) keeps it in the
scan.
"""

_column_and_value: Final = attrgetter("attribute", "value")
"""Of one of Spark's comparisons: the path of the column, and the value."""


class RangePartition(InputPartition):
    """A task's share, as Spark carries it."""

    def __init__(self, offset_range: OffsetRange) -> None:
        super().__init__(offset_range)

    @property
    def offset_range(self) -> OffsetRange:
        assert isinstance(self.value, OffsetRange)
        return self.value


class OncelogReader(DataSourceReader):
    """``spark.read.format("oncelog")``."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._range_reader = range_reader(options)
        self._pushed = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        client = process_client(self._options.client)
        with plain_errors():
            client.reach()
            ranges = client.run(plan_batch(client.cluster, self._options, self._pushed))
        tasks = cut(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )
        return [RangePartition(task) for task in tasks] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        if isinstance(partition, RangePartition):
            yield from self._range_reader.read(partition.offset_range)


class OncelogFilteringReader(OncelogReader):
    """A reader with ``pushFilters=true``: Spark refuses readers with ``pushFilters`` while its own setting is off."""

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":
        for each in filters:
            if not self._push(each):
                yield each

    def _push(self, pushed: "Filter") -> bool:
        operator = _OPERATORS.get(type(pushed).__name__)
        if operator is None:
            return False
        attribute, value = _column_and_value(pushed)
        return len(attribute) == 1 and self._pushed.push(Comparison(attribute[0], operator, value))


def range_reader(options: ReadOptions) -> RangeReader:
    return RangeReader(
        client=options.client,
        fetch=options.fetch,
        columns=options.columns,
        fail_on_data_loss=options.fail_on_data_loss,
    )


async def plan_batch(cluster: Cluster, options: ReadOptions, pushed: PushedFilters) -> list[OffsetRange]:
    """Return the range of each partition. Raises ``NothingToRead`` or ``BoundInvalid``."""
    committed = options.fetch.read_committed

    async def plan() -> list[OffsetRange]:
        found = await require_partitions(cluster, options.selection)
        start = await resolve_bound(cluster, options.start, found, read_committed=committed)
        end = await resolve_bound(cluster, options.end, found, read_committed=committed)
        latest = await latest_offsets(cluster, found, read_committed=committed)
        _check(options, start, end, latest)
        ranges = [
            OffsetRange(tp.topic, tp.partition, start[tp], min(end[tp], latest[tp]), topic_id)
            for tp, topic_id in sorted(found.items())
        ]
        young = {} if pushed.min_timestamp is None else dict.fromkeys(found, pushed.min_timestamp)
        first = await find_offsets(cluster, young, read_committed=committed)
        return pushed.narrowed(ranges, {tp: latest[tp] if at is None else at for tp, at in first.items()})

    return await retry_operation(cluster, options.fetch.patience_seconds, plan)


def _check(
    options: ReadOptions,
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    latest: dict[TopicPartition, int],
) -> None:
    """Raise ``BoundInvalid`` for a start after the end, and for an end that the log does not reach.

    The second may be a loss of records, so ``failOnDataLoss=false`` allows it.
    """
    for tp, offset in sorted(end.items()):
        if options.fail_on_data_loss and offset > latest[tp]:
            raise BoundInvalid(f"{tp.topic}-{tp.partition} ends at {latest[tp]}, and endingOffsets is {offset}")
        if start[tp] > offset:
            raise BoundInvalid(f"{tp.topic}-{tp.partition}: the start, {start[tp]}, is after the end, {offset}")
