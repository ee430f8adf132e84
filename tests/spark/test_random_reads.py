"""Reads beside Spark's own Kafka source, on drawn topics and options: identical rows, or an error from both.

Each seed has one to three topics, one set of options, and one or two uses of one DataFrame, and
sometimes a filter that is pushed into the source.
A few seeds are part of ``make spark-test``; ``make spark-comparison`` has all of them.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.processes import KafkaProcess, OncelogProcess
from tests.spark.generated_options import draw_options
from tests.spark.generated_topics import compacted_plan, draw_topic, write_compacted, write_topic
from tests.spark.generated_uses import Use, draw_comparison, draw_uses, rows
from tests.spark.other_end import OtherEnd
from tests.spark.pushing_source import PushingDataSource
from tests.spark_session import SPARK_KAFKA

FEW: Final = 4
ALL: Final = 500
KAFKA_SEEDS: Final = range(1000, 1060)
"""With Apache Kafka as the broker."""
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    _PUSHDOWN: "false",
    "spark.sql.shuffle.partitions": "1",
}
"""What makes many small queries short."""
_ZONES: Final = ("UTC", "UTC", "UTC", "Asia/Kathmandu")
Outcome = tuple[str, Sequence[Sequence[str]]]
"""The schema, and what each use gave; just "error" where the read is refused or fails."""
_ERROR: Final[Outcome] = ("error", [])

pytestmark = pytest.mark.skipif(not SPARK_KAFKA.is_dir(), reason="Spark's own connector is missing: make spark-test")


@pytest.fixture(scope="module")
def shelf(broker: OncelogProcess) -> list[str]:
    """Compacted topics that are read again and again."""
    return _fill_shelf(broker.address)


@pytest.fixture(scope="module")
def kafka_shelf(kafka: KafkaProcess) -> list[str]:
    return _fill_shelf(kafka.address)


def _fill_shelf(address: str) -> list[str]:
    plans = [compacted_plan(Random(seed), f"compacted-{seed}") for seed in range(3)]
    with OtherEnd(address) as end:
        for plan in plans:
            write_compacted(end, plan)
    return [plan.name for plan in plans]


@pytest.fixture
def kafka_end(kafka: KafkaProcess) -> Iterator[OtherEnd]:
    with OtherEnd(kafka.address) as end:
        yield end


@pytest.fixture(scope="module")
def drawing_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """For many small queries, and with the source that filters are pushed into."""
    spark.dataSource.register(PushingDataSource)
    before = {name: spark.conf.get(name) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


def outcome(spark: SparkSession, source: str, options: Mapping[str, str], uses: Sequence[Use]) -> Outcome:
    try:
        frame = spark.read.format(source).options(**options).load()
        return frame.schema.simpleString(), [use(frame) for use in uses]
    except (PySparkException, Py4JJavaError):
        return _ERROR


def reads_nothing(spark: SparkSession, options: Mapping[str, str], contradiction: str) -> bool:
    """Whether Spark drops the scan for a filter that is never true.

    It then asks our source for no reader, which is what checks the options; its own Kafka source checks at ``load``.
    """
    frame = spark.read.format("oncelog").options(**options).load().where(contradiction)
    return "RelationV2" not in frame._jdf.queryExecution().optimizedPlan().toString()


def compare(spark: SparkSession, end: OtherEnd, seed: int, shelf: Sequence[str]) -> None:
    rng = Random(seed)
    name = f"drawn-{zlib.crc32(b'%d' % seed):08x}"
    plans = [draw_topic(rng, f"{name}-{letter}") for letter in "abc"[: rng.choice([1, 1, 2, 3])]]
    in_transactions = [write_topic(end, plan) for plan in plans]
    shared = rng.sample(shelf, 1) if rng.random() < 0.25 else []
    topics = [*(plan.name for plan in plans), *shared]
    pattern = "|".join([f"{name}-[a-c]", *shared])
    options = draw_options(rng, topics, pattern, lambda topic, committed: end.ends(topic, read_committed=committed))
    options["kafka.bootstrap.servers"] = end.address
    pushed_filter = rng.choice([f"({draw_comparison(rng)}) and {draw_comparison(rng)}", draw_comparison(rng)])
    is_pushed = rng.random() < 0.4
    number_of_uses, seed_of_uses, zone = rng.choice([1, 1, 2]), rng.random(), rng.choice(_ZONES)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        ours, theirs = (
            outcome(spark, source, options, draw_uses(Random(seed_of_uses), number_of_uses))
            for source in ("oncelog", "kafka")
        )
        assert ours == theirs, f"seed {seed}, options {options}"
        if is_pushed:
            spark.conf.set(_PUSHDOWN, "true")
            once: list[Use] = [lambda frame: rows(frame.where(pushed_filter))]
            pushed, dropped = (outcome(spark, source, options, once) for source in ("oncelog-pushing", "kafka"))
            is_refused = ours == theirs == _ERROR
            if not (is_refused and pushed[1] == [[]] and reads_nothing(spark, options, pushed_filter)):
                assert pushed == dropped, f"seed {seed}, options {options}, filter {pushed_filter}"
    finally:
        spark.conf.set(_PUSHDOWN, "false")
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        for producer in in_transactions:
            if producer is not None:
                producer.abort_transaction(60)


@pytest.mark.parametrize("seed", range(FEW))
def test_drawn_reads_are_those_of_sparks_own_source(
    drawing_spark: SparkSession, other_end: OtherEnd, shelf: list[str], seed: int
) -> None:
    compare(drawing_spark, other_end, seed, shelf)


@pytest.mark.comparisons
@pytest.mark.parametrize("seed", range(FEW, ALL))
def test_more_drawn_reads_are_those_of_sparks_own_source(
    drawing_spark: SparkSession, other_end: OtherEnd, shelf: list[str], seed: int
) -> None:
    compare(drawing_spark, other_end, seed, shelf)


@pytest.mark.comparisons
@pytest.mark.parametrize("seed", KAFKA_SEEDS)
def test_drawn_reads_of_apache_kafka_are_those_of_sparks_own_source(
    drawing_spark: SparkSession, kafka_end: OtherEnd, kafka_shelf: list[str], seed: int
) -> None:
    compare(drawing_spark, kafka_end, seed, kafka_shelf)
