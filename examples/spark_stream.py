"""Transform a topic into another with a Spark stream whose sink is exactly-once.

    pip install -e '.[spark]'
    python examples/spark_stream.py [HOST:PORT [CHECKPOINT]]

Create both topics first: ``oncelog topic create example-clicks``, ``oncelog topic create example-pages``. Each run
writes what has arrived since the last one. Killed at any moment and started again with the same checkpoint, the stream
writes every row once.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

SOURCE, TARGET = "example-clicks", "example-pages"


def copy_new_rows(bootstrap: str, checkpoint: str) -> None:
    """Write the page of each new click to the target topic in upper case, and return when there are no more clicks."""
    spark = SparkSession.builder.appName("example-clicks-to-pages").getOrCreate()
    broker = {"kafka.bootstrap.servers": bootstrap}
    clicks = (
        spark.readStream.format("oncelog")
        .options(**broker)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .load()
    )
    pages = clicks.select("key", f.upper(f.col("value").cast("string")).alias("value"))
    query = (
        pages.writeStream.format("oncelog")
        .options(**broker)
        .option("topic", TARGET)
        .option("checkpointLocation", checkpoint)
        .option("transactionalIdPrefix", "example-pages")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    copy_new_rows(
        arguments[0] if arguments else "localhost:9092",
        arguments[1] if len(arguments) > 1 else "checkpoints/example-pages",
    )
