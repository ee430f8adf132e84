"""Running streams to an end: what a query read, and how it failed."""

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

_SECONDS = 240
_POLL_SECONDS = 0.1
_ATTEMPTS = 5
_TOO_BUSY = "Python worker failed to connect back"
"""What Spark says when a Python that it started has not called back within 10 s."""


def stream_of(spark: SparkSession, address: str, options: Mapping[str, object]) -> DataFrame:
    """A stream of format oncelog."""
    reader = spark.readStream.format("oncelog").option("kafka.bootstrap.servers", address)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def run_available(stream: DataFrame, directory: Path, table: Path) -> list[int]:
    """One run of Trigger.AvailableNow, appended to Parquet files in ``table``; the rows of each batch that had any.

    Where the machine is so busy that Spark gives its Python process up before anything has begun, begin again.
    """
    for attempts_left in reversed(range(_ATTEMPTS)):
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(directory))
            .option("path", str(table))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(_SECONDS)
            break
        except StreamingQueryException as error:
            if query.recentProgress or _TOO_BUSY not in str(error) or not attempts_left:
                raise
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def on_a_busy_machine(run: Callable[[], object]) -> None:
    """Do it again where Spark has given its Python process up: for streams that may go on where they were."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            run()
            return
        except StreamingQueryException as error:
            if _TOO_BUSY not in str(error) or not attempts_left:
                raise


def wait_for(query: StreamingQuery, condition: Callable[[], bool], seconds: float = _SECONDS) -> None:
    """Until a query has got somewhere."""
    pause = threading.Event()
    for _ in range(int(seconds / _POLL_SECONDS)):
        if condition():
            return
        assert query.isActive, query.exception()
        pause.wait(_POLL_SECONDS)
    raise AssertionError(f"it did not happen within {seconds:g} s")


def committed_end(checkpoint: Path, topic: str) -> int:
    """Where the last batch that is committed ends, in partition 0 of a topic; -1 before the first one."""
    batches = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*") if path.name.isdecimal()]
    if not batches:
        return -1
    offset = json.loads((checkpoint / "offsets" / str(max(batches))).read_text().splitlines()[-1])
    end: int = offset["end"][topic]["0"]
    return end
