"""The stream reader, as Spark calls it; ``stream_planner`` decides, ``stream_offset`` is what Spark stores.

One instance stays in one process of the driver for a whole run of the query and plans offsets and partitions; a second
one is pickled to the executors for ``read``. So connections are made on first use.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from oncelog.clients.errors import ClientError
from oncelog.spark_connector.offset_ranges import cut
from oncelog.spark_connector.plain_errors import plain_errors
from oncelog.spark_connector.process_client import process_client
from oncelog.spark_connector.reading.range_reader import RangeReader
from oncelog.spark_connector.reading.read_options import ReadOptions
from oncelog.spark_connector.reading.reader import RangePartition, range_reader
from oncelog.spark_connector.reading.stream_planner import StreamPlanner
from oncelog.spark_connector.stream_offset import Json, StreamOffset, initial_json, nested, parse_offset

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_log = logging.getLogger(__name__)

_GROUP_COMMIT_SECONDS: Final = 10.0
"""The time-out of an offset commit; the group is only for monitoring."""


class OncelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream.format("oncelog")``."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._range_reader: RangeReader = range_reader(options)
        self._planner: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, object]:
        """Return the state for tasks: without the planner."""
        return {"_options": self._options, "_range_reader": self._range_reader, "_planner": None}

    # On the driver

    def initialOffset(self) -> Json:
        return initial_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._run_with(self._make_planner().fix_target())

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Return the end of the next batch: all offsets without a limit (Trigger.Once), else by the query's limits."""
        planner = self._make_planner()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        previous = parse_offset(start)
        if previous is None:
            with plain_errors():
                return self._run_with(planner.begin(max_offsets=most)).to_json()
        may_wait = self._options.min_offsets_per_trigger is not None and not isinstance(limit, ReadAllAvailable)
        following = self._run_with(planner.advance(previous, max_offsets=most, may_wait=may_wait))
        return start if following is previous else following.to_json()

    def reportLatestOffset(self) -> Json:
        """Return the ends of the logs, as last looked up, for the progress report."""
        return nested(self._make_planner().latest)

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Return the tasks of ``end``, which has the start too; none if both are equal (a batch of other sources)."""
        offset = parse_offset(end)
        if offset is None or start == end:
            return []
        tasks = cut(
            offset.ranges(),
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )
        return [RangePartition(task) for task in tasks]

    def commit(self, end: Json) -> None:
        """Commit the end of a finished batch to ``groupId``, for tools that monitor lag; Spark's checkpoint counts."""
        offset = parse_offset(end)
        if self._options.group_id is None or offset is None:
            return
        try:
            self._run_with(self._commit_to_group(self._options.group_id, offset))
        except (ClientError, TimeoutError) as error:
            reason = str(error) or f"no response within {_GROUP_COMMIT_SECONDS:g} s"
            _log.warning("offsets were not committed to group %s: %s", self._options.group_id, reason)

    async def _commit_to_group(self, group_id: str, offset: StreamOffset) -> None:
        async with asyncio.timeout(_GROUP_COMMIT_SECONDS):  # The next batch waits for it.
            outcomes = await process_client(self._options.client).admin.alter_group_offsets(group_id, offset.end)
        refused = {str(tp): outcome for tp, outcome in outcomes.items() if outcome is not None}
        if refused:
            _log.warning("offsets were not committed to group %s: %s", group_id, refused)

    def stop(self) -> None:
        """Do nothing: Spark ends the process after this call."""

    def _make_planner(self) -> StreamPlanner:
        if self._planner is None:
            client = process_client(self._options.client)
            with plain_errors():
                client.reach()
            self._planner = StreamPlanner(client.cluster, self._options)
        return self._planner

    def _run_with(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return process_client(self._options.client).run(coroutine)

    # In tasks

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        if isinstance(partition, RangePartition):
            yield from self._range_reader.read(partition.offset_range)
