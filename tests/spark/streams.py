"""Running streams to an end: what a query read, and how it failed."""

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

_SECONDS = 240


def stream_of(spark: SparkSession, address: str, options: Mapping[str, object]) -> DataFrame:
    """A stream of format oncelog."""
    reader = spark.readStream.format("oncelog").option("kafka.bootstrap.servers", address)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def run_available(stream: DataFrame, directory: Path, table: Path) -> list[int]:
    """One run of Trigger.AvailableNow, appended to Parquet files in ``table``; the rows of each batch that had any."""
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(directory))
        .option("path", str(table))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(_SECONDS)
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
