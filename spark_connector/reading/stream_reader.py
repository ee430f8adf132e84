"""The stream reader, as Spark calls it; what it decides is in ``stream_planner``, what it keeps in ``stream_offset``.

One instance lives in one process of the driver for a whole run of the query and is asked for offsets and partitions; a
second one is pickled to the executors for ``read``. So nothing is connected before it is asked for.
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

_TELL_SECONDS: Final = 10.0
"""For a group that only watches."""


class OncelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream.format("oncelog")``."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._range_reader: RangeReader = range_reader(options)
        self._planner: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, object]:
        """What tasks need: no planner."""
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
        self._run_with(self._make_planner().aim())

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Without a limit (Trigger.Once) all that there is; otherwise by this query's own limits."""
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
        """For the progress report: where the log ends, as far as was seen."""
        return nested(self._make_planner().latest)

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """By the end only, which says where the batch starts. The same offset twice is a batch of other sources."""
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
        """The batch is done. Spark's checkpoint knows that; a group is told for those who watch its lag."""
        offset = parse_offset(end)
        if self._options.group_id is None or offset is None:
            return
        try:
            self._run_with(self._tell(self._options.group_id, offset))
        except (ClientError, TimeoutError) as error:
            reason = str(error) or f"no answer within {_TELL_SECONDS:g} s"
            _log.warning("offsets were not committed to group %s: %s", self._options.group_id, reason)

    async def _tell(self, group_id: str, offset: StreamOffset) -> None:
        async with asyncio.timeout(_TELL_SECONDS):  # The next batch waits for it.
            outcomes = await process_client(self._options.client).admin.alter_group_offsets(group_id, offset.end)
        refused = {str(tp): outcome for tp, outcome in outcomes.items() if outcome is not None}
        if refused:
            _log.warning("offsets were not committed to group %s: %s", group_id, refused)

    def stop(self) -> None:
        """Spark ends the process after this."""

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
