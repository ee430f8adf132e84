"""``writeStream``: Spark's calls for each batch, and which step of the protocol each of them is.

=============================  =================  ====================================================================
Spark                          where              here
=============================  =================  ====================================================================
``streamWriter()``             planner, driver    options are checked
the writer is pickled          planner, driver    the prelude; its permit travels to the tasks inside of the writer
``write()``                    workers            a task, once for each attempt
``streamWriter()``, again      sink runner        options are checked again; nothing else, since this one is not pickled
``commit()`` or ``abort()``    sink runner        the permit comes back in the tasks' messages
=============================  =================  ====================================================================

So only pickling distinguishes the writer that tasks will use from the one that commits.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from oncelog.spark_connector.sink.checkpoint import BatchPlan, read_plan
from oncelog.spark_connector.sink.commit.prelude import Permit
from oncelog.spark_connector.sink.commit.sink_errors import (
    SinkError,
    UnsuitableStateTopic,
    while_aborting,
    while_pickling,
)
from oncelog.spark_connector.sink.commit.state_record import Planned
from oncelog.spark_connector.sink.sink_messages import TaskMessage, columns_of, outcomes_of
from oncelog.spark_connector.sink.sink_name import with_sink_name
from oncelog.spark_connector.sink.sink_session import SinkSession
from oncelog.spark_connector.sink.write_options import Guarantee, WriteOptions, stream_write_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"


def make_stream_writer(options: Mapping[str, str], schema: "StructType", overwrite: bool) -> "OncelogStreamWriter":
    """Return the writer of one batch. Each trigger appends, also in complete mode, as with Spark's own sink."""
    return OncelogStreamWriter(with_sink_name(stream_write_options(options, columns_of(schema))))


def _require_other_source(options: WriteOptions, plan: BatchPlan) -> None:
    """Raise ``UnsuitableStateTopic`` if the query reads its own decisions: each one would make another batch.

    A batch that a former release planned is run as it was planned; this release plans the next ones.
    """
    entry = plan.entry
    if entry is not None and options.state_topic in plan.topics:
        raise UnsuitableStateTopic(
            f"the query reads the state topic {options.state_topic} (stateTopic) of its own sink: each batch writes a "
            "record there, which would be the next batch, for ever. Leave that topic out of subscribe, or name it in "
            "the option stateTopic of the source, too, which leaves it out of subscribePattern. Spark would still run "
            f"batch {entry.name} as it is planned: remove {entry} and "
            f"{entry.with_name(f'.{entry.name}.crc')} while the query is stopped, so that it is planned again"
        )
    if entry is not None and options.state_topic in plan.former_topics:
        _log.warning(
            "a former release planned batch %s with the state topic %s (stateTopic) of this sink among what is read: "
            "the batch is finished as it was planned",
            entry.name,
            options.state_topic,
        )


class OncelogStreamWriter(DataSourceStreamArrowWriter):
    """One batch of a stream."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._sink = options.sink or ""
        assert self._sink or not self._is_exact, "a sink that is exactly once has a name"
        self._permit: Permit | None = None

    def session(self) -> SinkSession:
        """Return this process's session; the first one connects."""
        return SinkSession(self._options)

    @property
    def _is_exact(self) -> bool:
        return self._options.guarantee is Guarantee.EXACTLY_ONCE

    def __getstate__(self) -> dict[str, Any]:
        if self._is_exact and self._permit is None:
            with while_pickling():
                plan = read_plan(self._options.checkpoint)
                _require_other_source(self._options, plan)
                self._permit = self.session().begin(self._sink, plans_name_rows=plan.names_rows)
        return self.__dict__

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        if not self._is_exact:
            self.session().write_plainly(iterator)
            return TaskMessage(None)
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_ID) if context is not None else None
        batch = context.getLocalProperty(BATCH_ID) if context is not None else None
        if query is None or batch is None or self._permit is None:
            raise SinkError("Spark has set no query id or batch id for the task")
        return TaskMessage(self.session().write(self._permit, query, int(batch), iterator))

    def commit(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:
        if self._is_exact:
            options = self._options
            plan = read_plan(options.checkpoint, batchId)
            planned = Planned(options.topic or "", plan.offsets, plan.time, plan.names_rows)
            self.session().commit(outcomes_of(messages), batchId, planned)

    def abort(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:
        if self._is_exact:
            with while_aborting(f"batch {batchId} of sink {self._sink}"):
                self.session().abort(outcomes_of(messages), self._sink, batchId)
