"""The query of the kill tests: a topic is copied to another, all that is there now, in batches of some rows.

As a program it is a driver of its own, which can be killed: ``python -m tests.spark.copying_query '<json>'``.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.spark_session import spark_session, temporary_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROWS_IN_BATCH: Final = 60
SETTINGS: Final = {"spark.master": "local[2,4]", "spark.driver.memory": "600m", "spark.task.maxFailures": "4"}


@dataclass(frozen=True, kw_only=True)
class Copying:
    """Everything that makes a run of it."""

    address: str
    source: str
    target: str
    checkpoint: str
    tasks: int
    """Of each batch: a batch that is run again may have others."""
    point: str = ""
    action: str = "raise"
    done: str = ""
    source_options: dict[str, str] = field(default_factory=dict)
    sink_options: dict[str, str] = field(default_factory=dict)

    def start(self, spark: "SparkSession", driver: str) -> "StreamingQuery":
        from tests.spark.crashing import CrashingDataSource

        spark.dataSource.register(CrashingDataSource)
        rows = (
            spark.readStream.format("oncelog")
            .option("kafka.bootstrap.servers", self.address)
            .option("subscribe", self.source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(ROWS_IN_BATCH))
            .options(**self.source_options)
            .load()
            .select("key", "value")
            .repartition(self.tasks)
        )
        return (
            rows.writeStream.format("oncelog_crashing")
            .option("kafka.bootstrap.servers", self.address)
            .option("topic", self.target)
            .option("checkpointLocation", self.checkpoint)
            .option("crash.point", self.point)
            .option("crash.action", self.action)
            .option("crash.done", self.done)
            .option("crash.driver", driver)
            .options(**self.sink_options)
            .trigger(availableNow=True)
            .start()
        )

    @property
    def argument(self) -> str:
        return json.dumps(asdict(self))


def main() -> None:
    """Run it to its end; exit code 1 if it fails."""
    from pyspark import SparkContext

    copying = Copying(**json.loads(sys.argv[1]))
    directory = Path(copying.checkpoint).parent
    with spark_session(directory / "spark", SETTINGS | temporary_files(directory / "tmp")) as session:
        gateway = SparkContext._gateway
        assert gateway is not None
        query = copying.start(session, f"{gateway.proc.pid},{os.getpid()}")
        query.awaitTermination()


if __name__ == "__main__":
    main()
