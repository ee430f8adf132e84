"""A stream whose first attempt of one task hangs after its first rows: only a speculative one can finish the batch.

A driver of its own: ``python -m tests.spark.speculating_query MASTER BROKER TOPIC CHECKPOINT FIFO``.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from pyspark import TaskContext

from oncelog.spark_connector.sink.stream_writer import BATCH_ID

ROWS_IN_BATCH: Final = 400_000
"""In four tasks: enough for each to have sent something before it hangs."""
HANGS_IN_BATCH: Final = 1
LAST_BATCH: Final = 2
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "600m",
    "spark.executor.memory": "600m",
    "spark.executor.cores": "2",
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "500ms",
}


def hanging(fifo: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Passes rows on; the first attempt of task 0 opens a FIFO without a writer."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        hangs = context.getLocalProperty(BATCH_ID) == str(HANGS_IN_BATCH)
        for number, batch in enumerate(batches):
            yield batch
            if number == 9 and hangs and context.attemptNumber() == 0 and context.partitionId() == 0:
                with open(fifo):
                    pass

    return pass_on


def main() -> None:
    """Run one batch at a time, up to the one after the batch that hangs.

    No batch is cut off: Spark calls ``abort`` before it has ended the tasks of a stopped query, and a task that begins
    its transaction after that leaves it open until it times out.
    """
    from pyspark.sql import SparkSession

    master, address, topic, checkpoint, fifo = sys.argv[1:]
    builder = SparkSession.builder.master(master)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    rate = session.readStream.format("rate-micro-batch").option("rowsPerBatch", str(ROWS_IN_BATCH))
    rows = rate.option("numPartitions", "4").load().selectExpr("cast(value as string) as value")
    writer = (
        rows.mapInArrow(hanging(fifo), "value string")
        .writeStream.format("oncelog")
        .option("kafka.bootstrap.servers", address)
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
    )
    for _ in range(LAST_BATCH + 1):
        writer.start().awaitTermination()


if __name__ == "__main__":
    main()
