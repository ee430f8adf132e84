"""Our data source with a clock: how long the driver's part of each batch of the sink takes.

Format ``oncelog_timed``; its one option more, ``timings``, names the file that gets a line for each call: the name of
the step and its seconds. Spark calls the sink in several processes, none of them the benchmark's.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from oncelog.spark_connector.sink.stream_writer import OncelogStreamWriter, make_stream_writer
from oncelog.spark_connector.source import OncelogDataSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class TimedDataSource(OncelogDataSource):
    """Only its sink is timed."""

    @classmethod
    def name(cls) -> str:
        return "oncelog_timed"

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamArrowWriter:
        options = dict(self.options)
        log = Path(options.pop("timings"))
        return TimedStreamWriter(make_stream_writer(options, schema, overwrite), log)


class TimedStreamWriter(DataSourceStreamArrowWriter):
    """A stream's writer, and the file for its times."""

    def __init__(self, writer: OncelogStreamWriter, log: Path) -> None:
        self._writer = writer
        self._log = log
        self._has_begun = False

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        with self._log.open("a") as log:
            log.write(f"{step} {time.perf_counter() - started:.6f}\n")

    def __getstate__(self) -> dict[str, Any]:
        if not self._has_begun:  # Spark pickles a writer twice.
            with self._timed("prelude"):
                self._writer.__getstate__()
            self._has_begun = True
        return self.__dict__

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        with self._timed("write"):
            return self._writer.write(iterator)

    def commit(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:
        with self._timed("commit"):
            self._writer.commit(messages, batchId)

    def abort(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:
        self._writer.abort(messages, batchId)
