"""``write``: a batch that becomes visible as a whole or not at all.

With ``txnAppId`` and ``txnVersion`` it is one batch of a sink, like those of a stream: written once, however often it
is retried, and completed by the next attempt if the driver dies in the middle of its commit. They are for
``foreachBatch``. Without them a batch has no name and is tried once; its writer is pickled with a permit of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from oncelog.spark_connector.sink.commit.prelude import Permit
from oncelog.spark_connector.sink.commit.sink_errors import while_aborting, while_pickling
from oncelog.spark_connector.sink.query_run import run_of_task
from oncelog.spark_connector.sink.sink_messages import TaskMessage, columns_of, outcomes_of
from oncelog.spark_connector.sink.sink_session import SinkSession
from oncelog.spark_connector.sink.write_options import Guarantee, WriteOptions, batch_write_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def make_writer(options: Mapping[str, str], schema: "StructType", overwrite: bool) -> "OncelogWriter":
    """Return the writer of one batch. Raises ``OptionsInvalid``."""
    return OncelogWriter(batch_write_options(options, columns_of(schema), overwrite=overwrite))


class OncelogWriter(DataSourceArrowWriter):
    """One batch. Tasks and commit get the same pickled writer, and the permit in it."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._permit: Permit | None = None

    def session(self) -> SinkSession:
        """Return this process's session; the first one connects."""
        return SinkSession(self._options)

    @property
    def _is_exact(self) -> bool:
        return self._options.guarantee is Guarantee.EXACTLY_ONCE

    @property
    def _is_named(self) -> bool:
        return self._options.application is not None

    def __getstate__(self) -> dict[str, Any]:
        if self._is_exact and self._permit is None:
            with while_pickling():
                session, sink = self.session(), self._options.sink
                self._permit = session.begin(sink) if self._is_named and sink is not None else session.begin_unnamed()
        return self.__dict__

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        if self._permit is None:
            self.session().write_plainly(iterator)
            return TaskMessage(None)
        options = self._options
        outcome = self.session().write(self._permit, options.application or "", options.version, iterator)
        return TaskMessage(replace(outcome, run=run_of_task(TaskContext.get())))

    def commit(self, messages: "list[WriterCommitMessage | None]") -> None:
        if self._permit is None:
            return
        if self._is_named:
            self.session().commit(outcomes_of(messages), self._options.version)
        else:
            self.session().commit_unnamed(outcomes_of(messages))

    def abort(self, messages: "list[WriterCommitMessage | None]") -> None:
        if self._permit is None:
            return
        outcomes, sink = outcomes_of(messages), self._permit.sink
        with while_aborting(f"the batch of sink {sink}"):
            if self._is_named:
                self.session().abort(outcomes, sink, self._options.version)
            else:
                unreported = sum(each is None for each in messages)
                self.session().abort_unnamed(outcomes, sink, unreported=unreported)
