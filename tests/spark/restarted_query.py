"""A topic is copied to another by a query that is started again whenever it has failed: what ``random_kills`` kills.

As a program it is a driver of its own: ``python -m tests.spark.restarted_query '<json>'``. Each start has another
number of tasks, spells the checkpoint's location in one of four ways, and now and then finds the directory moved. It
goes on until there is a file ``finish`` in its directory; then a last run does what is left, and the exit code is 0.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from pyspark.errors import StreamingQueryException

from tests.spark_session import spark_session, temporary_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

SETTINGS: Final = {"spark.master": "local[2,4]", "spark.driver.memory": "600m", "spark.task.maxFailures": "4"}
MOVED: Final = 0.25
"""Of all starts."""
MOST_TASKS: Final = 4
_MOST_STARTS: Final = 500
_LOOK_SECONDS: Final = 0.2
_LONGEST_REASON: Final = 4000
_JVM_TRACE: Final = "\tat "
FAILED: Final = "failed: "
"""Begins the line that says how a run has failed."""


@dataclass(frozen=True, kw_only=True)
class Restarted:
    """Everything that makes a run of the program."""

    address: str
    source: str
    target: str
    directory: str
    rows_in_batch: int
    seed: int

    @property
    def argument(self) -> str:
        return json.dumps(asdict(self))

    def is_to_finish(self) -> bool:
        return (Path(self.directory) / "finish").exists()

    def locate_checkpoint(self, rng: Random) -> str:
        """Where the checkpoint is, in one of the ways to say it; it may be moved before."""
        directory = Path(self.directory)
        path = next(iter(sorted(directory.glob("checkpoint-*"))), None)
        if path is None:
            path = directory / "checkpoint-first"
        elif rng.random() < MOVED:
            path = path.rename(directory / f"checkpoint-{rng.getrandbits(32)}")
        return rng.choice([str(path), f"{path}/", f"file:{path}", f"file://{path}"])

    def start(self, spark: "SparkSession", rng: Random, *, is_last: bool) -> "StreamingQuery":
        rows = (
            spark.readStream.format("oncelog")
            .option("kafka.bootstrap.servers", self.address)
            .option("subscribe", self.source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(self.rows_in_batch * (10 if is_last else 1)))
            .load()
            .select("key", "value")
            .repartition(rng.randint(1, MOST_TASKS))
        )
        writer = (
            rows.writeStream.format("oncelog")
            .option("kafka.bootstrap.servers", self.address)
            .option("topic", self.target)
            .option("checkpointLocation", self.locate_checkpoint(rng))
        )
        return (writer.trigger(availableNow=True) if is_last else writer).start()


def run(spark: "SparkSession", query: Restarted, rng: Random) -> bool:
    """One run of the query; whether it was the last one, and has come to its end."""
    is_last = query.is_to_finish()
    stream = query.start(spark, rng, is_last=is_last)
    try:
        while not stream.awaitTermination(_LOOK_SECONDS):
            if query.is_to_finish() and not is_last:
                stream.stop()
    except StreamingQueryException as error:
        print(f"{FAILED}{_in_one_line(str(error))}", flush=True)
        return False
    return is_last


def _in_one_line(error: str) -> str:
    """Without the JVM's stack."""
    lines = [each.strip() for each in error.splitlines() if not each.startswith(_JVM_TRACE)]
    return " | ".join(filter(None, lines))[:_LONGEST_REASON]


def main() -> None:
    query = Restarted(**json.loads(sys.argv[1]))
    rng = Random(query.seed)
    directory = Path(query.directory)
    with spark_session(directory / "spark", SETTINGS | temporary_files(directory / "tmp")) as spark:
        is_done = any(run(spark, query, rng) for _ in range(_MOST_STARTS))
    sys.exit(0 if is_done else 1)


if __name__ == "__main__":
    main()
