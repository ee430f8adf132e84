"""Batch reads beside Spark's own Kafka source, on drawn topics and options: identical rows, or an error from both.

A few seeds are part of ``make spark-test``; ``make spark-comparison`` has all of them.
"""

import zlib
from collections.abc import Mapping, Sequence
from random import Random

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.generated_reads import Use, draw_options, draw_topic, draw_uses, write_topic
from tests.spark.other_end import OtherEnd
from tests.spark_session import SPARK_KAFKA

FEW = 4
ALL = 500

pytestmark = pytest.mark.skipif(not SPARK_KAFKA.is_dir(), reason="Spark's own connector is missing: make spark-test")


def outcome(
    spark: SparkSession, source: str, options: Mapping[str, str], uses: Sequence[Use]
) -> tuple[str, list[list[str]]]:
    """The schema, and what each use of one DataFrame gave; just "error" where the read is refused or fails."""
    try:
        frame = spark.read.format(source).options(**options).load()
        return frame.schema.simpleString(), [use(frame) for use in uses]
    except (PySparkException, Py4JJavaError):
        return "error", []


def compare(spark: SparkSession, end: OtherEnd, seed: int) -> None:
    rng = Random(seed)
    topic = f"drawn-{zlib.crc32(b'%d' % seed):08x}"
    write_topic(end, topic, draw_topic(rng))
    options = {"kafka.bootstrap.servers": end.address, **draw_options(rng, topic, end.ends(topic))}
    seed_of_uses = rng.random()
    ours, theirs = (outcome(spark, source, options, draw_uses(Random(seed_of_uses))) for source in ("oncelog", "kafka"))
    assert ours == theirs, f"seed {seed}, options {options}"


@pytest.mark.parametrize("seed", range(FEW))
def test_drawn_reads_are_those_of_sparks_own_source(spark: SparkSession, other_end: OtherEnd, seed: int) -> None:
    compare(spark, other_end, seed)


@pytest.mark.comparisons
@pytest.mark.parametrize("seed", range(FEW, ALL))
def test_more_drawn_reads_are_those_of_sparks_own_source(spark: SparkSession, other_end: OtherEnd, seed: int) -> None:
    compare(spark, other_end, seed)
