"""Streams beside those of Spark's own Kafka source, on drawn topics and options: the same rows, or an error from both.

Each seed has two runs of one query with Trigger.AvailableNow; between them, what was in a transaction is committed or
aborted, partitions are added, and more records come. One seed is part of ``make spark-test``; ``make spark-comparison``
has all of them.
"""

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.processes import KafkaProcess
from tests.spark.generated_options import draw_stream_options
from tests.spark.generated_topics import TopicPlan, draw_round, draw_topic, write_round, write_topic
from tests.spark.generated_uses import draw_filter, rows
from tests.spark.other_end import OtherEnd
from tests.spark.streams import run_available
from tests.spark_session import SPARK_KAFKA

FEW: Final = 1
ALL: Final = 80
KAFKA_SEEDS: Final = range(1000, 1010)
"""With Apache Kafka as the broker."""

pytestmark = pytest.mark.skipif(not SPARK_KAFKA.is_dir(), reason="Spark's own connector is missing: make spark-test")


@pytest.fixture
def kafka_end(kafka: KafkaProcess) -> Iterator[OtherEnd]:
    with OtherEnd(kafka.address) as end:
        yield end


def run(spark: SparkSession, source: str, options: Mapping[str, str], condition: str, directory: Path) -> list[str]:
    """What all runs so far have written, or "error"."""
    stream = spark.readStream.format(source).options(**options).load().where(condition)
    try:
        run_available(stream, directory / f"{source}-checkpoint", directory / source)
    except PySparkException:
        return ["error"]
    return rows(spark.read.schema(stream.schema).parquet(str(directory / source)))


def go_on(rng: Random, end: OtherEnd, plan: TopicPlan) -> None:
    """More records, perhaps in more partitions."""
    partitions = plan.partitions
    if rng.random() < 0.3:
        partitions += 1
        end.add_partitions(plan.name, partitions)
    for _ in range(rng.randint(0, 2)):
        write_round(end, plan.name, draw_round(rng, partitions))


def compare(spark: SparkSession, end: OtherEnd, seed: int, directory: Path) -> None:
    rng = Random(f"stream {seed}")
    name = f"streamed-{zlib.crc32(b'%d' % seed):08x}"
    plans = [draw_topic(rng, f"{name}-{letter}") for letter in "ab"[: rng.choice([1, 1, 2])]]
    in_transactions = [write_topic(end, plan) for plan in plans]
    options = draw_stream_options(
        rng,
        [plan.name for plan in plans],
        f"{name}-[a-c]",
        lambda topic, committed: end.ends(topic, read_committed=committed),
    )
    options["kafka.bootstrap.servers"] = end.address
    condition = rng.choice(["true", draw_filter(rng)])
    message = f"seed {seed}, options {options}, filter {condition}"
    ours, theirs = (run(spark, source, options, condition, directory) for source in ("oncelog", "kafka"))
    assert ours == theirs, f"first run: {message}"
    for producer in in_transactions:
        if producer is not None:
            (producer.commit_transaction if rng.random() < 0.7 else producer.abort_transaction)(60)
    for plan in plans:
        go_on(rng, end, plan)
        end.wait_until_ended(plan.name)
    ours, theirs = (run(spark, source, options, condition, directory) for source in ("oncelog", "kafka"))
    assert ours == theirs, f"second run: {message}"


@pytest.mark.parametrize("seed", range(FEW))
def test_drawn_streams_are_those_of_sparks_own_source(
    spark: SparkSession, other_end: OtherEnd, tmp_path: Path, seed: int
) -> None:
    compare(spark, other_end, seed, tmp_path)


@pytest.mark.comparisons
@pytest.mark.parametrize("seed", range(FEW, ALL))
def test_more_drawn_streams_are_those_of_sparks_own_source(
    spark: SparkSession, other_end: OtherEnd, tmp_path: Path, seed: int
) -> None:
    compare(spark, other_end, seed, tmp_path)


@pytest.mark.comparisons
@pytest.mark.parametrize("seed", KAFKA_SEEDS)
def test_drawn_streams_of_apache_kafka_are_those_of_sparks_own_source(
    spark: SparkSession, kafka_end: OtherEnd, tmp_path: Path, seed: int
) -> None:
    compare(spark, kafka_end, seed, tmp_path)
