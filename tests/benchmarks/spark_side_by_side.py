"""``make bench-spark``: our connector beside Spark's own, in one Spark, on one broker of ours, with the same data.

Both formats read and write in turn, round by round; the table shows the median of each and the ratio of the medians.
The records that are read were written by librdkafka. Each format runs with its own defaults: ours reads
``read_committed`` and writes exactly once, Spark's reads ``read_uncommitted`` and writes at least once.

The cost of exactly-once is measured apart: streams of small batches in eight tasks, once with each
``delivery.guarantee``, and the time inside of the sink's ``commit()``.
"""

import argparse
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.benchmarks import librdkafka
from tests.benchmarks.side_by_side import Figures, Measured, create_topic, print_table
from tests.benchmarks.timed_source import TimedDataSource
from tests.processes import OncelogProcess
from tests.spark_session import spark_session

PARTITIONS = 4
COMMIT_TASKS = 8
BATCH_ROWS = 200_000
BATCHES = 6
COMMIT_BATCHES = 20
STREAM_SECONDS = 600.0
MEASUREMENTS = ("small", "large", "stream", "commit")


class Connector(Measured):
    """A side of the comparison; ``format`` is its name in Spark."""

    def __init__(self, name: str, spark_format: str) -> None:
        super().__init__(name)
        self.format = spark_format


def processor_seconds(root: int) -> float:
    """What a process has used, and all of its children that are alive or were waited for."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has ended.
        pid = int(stat.parent.name)
        parents[pid] = int(fields[1])
        ticks[pid] = sum(map(int, fields[11:15]))
    total = 0
    for pid, used in ticks.items():
        ancestor = pid
        while ancestor not in (root, 0):
            ancestor = parents.get(ancestor, 0)
        total += used if ancestor == root else 0
    return total / 100


@dataclass(slots=True)
class Bench:
    """One Spark, one broker, and what is measured on them."""

    spark: SparkSession
    address: str
    directory: Path
    scale: float
    names: int = 0

    def new_topic(self, what: str, partitions: int = PARTITIONS) -> str:
        self.names += 1
        topic = f"{what}-{self.names}"
        create_topic(self.address, topic, partitions)
        return topic

    def rows(self, size: int) -> int:
        return int((1_000_000 if size <= 100 else 200_000) * self.scale)

    def timed(self, what: str, rows: int, action: DataFrame, sink: str, options: Mapping[str, object]) -> Figures:
        """Run a batch; rows a second, and the processor time of Spark and its Python for a million of them."""
        jvm = self.jvm_pid
        used, started = processor_seconds(jvm), time.perf_counter()
        self.with_address(action.write.format(sink), options).mode("append").save()
        seconds = time.perf_counter() - started
        used = processor_seconds(jvm) - used
        return {f"{what}, k rows/s": rows / seconds / 1e3, f"{what}, CPU s per M rows": used / rows * 1e6}

    @property
    def jvm_pid(self) -> int:
        return int(self.spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())

    def with_address(self, door: Any, options: Mapping[str, object]) -> Any:
        """A reader or a writer with options."""
        door = door.option("kafka.bootstrap.servers", self.address)
        for name, value in options.items():
            door = door.option(name, str(value))
        return door

    # Batches

    def read(self, spark_format: str, topic: str, size: int) -> Figures:
        table = self.with_address(self.spark.read.format(spark_format), {"subscribe": topic}).load()
        return self.timed(f"read {size} B", self.rows(size), table, "noop", {})

    def write(self, spark_format: str, size: int) -> Figures:
        topic = self.new_topic("written")
        rows = self.rows(size)
        table = self.spark.range(0, rows, 1, 2).selectExpr(
            "cast(id as string) as key", f"lpad(cast(id as string), {size}, 'abcdefghijklmnopqrstuvwxyz') as value"
        )
        return self.timed(f"write {size} B", rows, table, spark_format, {"topic": topic})

    # Streams

    def run_stream(self, source: str, sink: str, read: Mapping[str, object], write: Mapping[str, object]) -> list[Any]:
        """Run a stream over what is there; the progress of its batches that had rows, but for the first two."""
        stream = self.with_address(self.spark.readStream.format(source), {"startingOffsets": "earliest", **read}).load()
        self.names += 1
        written = {"checkpointLocation": self.directory / f"checkpoint-{self.names}", **write}
        writer = stream.select("key", "value").writeStream.format(sink).trigger(availableNow=True)
        query: StreamingQuery = self.with_address(writer, written).start()
        if not query.awaitTermination(int(STREAM_SECONDS)):
            query.stop()
            raise TimeoutError(f"a stream of {source} took more than {STREAM_SECONDS:g} s")
        return [progress for progress in query.recentProgress if progress["numInputRows"]][2:]

    def stream(self, spark_format: str, source_topic: str) -> Figures:
        batches = self.run_stream(
            spark_format,
            spark_format,
            {"subscribe": source_topic, "maxOffsetsPerTrigger": BATCH_ROWS},
            {"topic": self.new_topic("streamed")},
        )
        milliseconds = [batch["durationMs"]["triggerExecution"] for batch in batches]
        return {f"batch of {BATCH_ROWS:,} rows, ms": statistics.median(milliseconds)}

    def commit(self, guarantee: str, source_topic: str) -> Figures:
        """Small batches in eight tasks: how long they take, and each step of the sink in them."""
        self.names += 1
        timings = self.directory / f"timings-{self.names}"
        batches = self.run_stream(
            "oncelog",
            "oncelog_timed",
            {"subscribe": source_topic, "maxOffsetsPerTrigger": COMMIT_TASKS * 50},
            {"topic": self.new_topic("committed"), "timings": timings, "delivery.guarantee": guarantee},
        )
        figures = {"batch, 8 tasks, ms": statistics.median(each["durationMs"]["triggerExecution"] for each in batches)}
        steps: dict[str, list[float]] = {}
        for line in timings.read_text().splitlines():
            step, seconds = line.split()
            steps.setdefault(step, []).append(float(seconds) * 1e3)
        for step, values in steps.items():
            figures[f"{step}(), ms"] = statistics.median(values)
        return figures


def compare_batches(bench: Bench, sides: list[Connector], rounds: int, size: int) -> None:
    topic = bench.new_topic(f"source-{size}")
    librdkafka.produce(bench.address, topic, size=size, count=bench.rows(size))
    for round_number in range(-1, rounds):
        for side in sides:
            note(side, round_number, bench.read(side.format, topic, size) | bench.write(side.format, size))


def compare_streams(bench: Bench, sides: list[Connector], rounds: int) -> None:
    topic = bench.new_topic("stream")
    librdkafka.produce(bench.address, topic, size=100, count=BATCH_ROWS * (BATCHES + 2))
    for round_number in range(rounds):
        for side in sides:
            note(side, round_number, bench.stream(side.format, topic))


def compare_guarantees(bench: Bench, rounds: int) -> list[Measured]:
    bench.spark.dataSource.register(TimedDataSource)
    topic = bench.new_topic("small", COMMIT_TASKS)
    rows = bench.spark.range(COMMIT_TASKS * 50 * (COMMIT_BATCHES + 2)).selectExpr(
        "cast(id as string) as value", f"cast(id % {COMMIT_TASKS} as int) as partition"
    )
    bench.with_address(rows.write.format("oncelog"), {"topic": topic}).mode("append").save()
    guarantees = [Measured("exactly"), Measured("at least")]
    for round_number in range(rounds):
        for each in guarantees:
            note(each, round_number, bench.commit(f"{each.name.replace(' ', '-')}-once", topic))
    return guarantees


def note(side: Measured, round_number: int, figures: Figures) -> None:
    """Keep a round's figures, and show them; those of round -1, which warms up, are not kept."""
    print(
        f"{side.name} {round_number}: { {name: round(value, 1) for name, value in figures.items()} }", file=sys.stderr
    )
    if round_number >= 0:
        side.add(figures)


def print_guarantees(exactly: Measured, at_least: Measured) -> None:
    print_table(exactly, at_least)
    name = "batch, 8 tasks, ms"
    steps = sum(statistics.median(exactly.figures[f"{step}(), ms"]) for step in ("prelude", "commit"))
    difference = statistics.median(exactly.figures[name]) - statistics.median(at_least.figures[name])
    print(f"\nexactly-once: {steps:.0f} ms a batch in the driver's steps, {difference:.0f} ms in the whole batch")


def compare(rounds: int, only: list[str], scale: float) -> None:
    started = time.perf_counter()
    sides = [Connector("oncelog", "oncelog"), Connector("Spark's own", "kafka")]
    with tempfile.TemporaryDirectory(prefix="oncelog-bench-spark-") as folder:
        directory = Path(folder)
        with OncelogProcess(directory / "broker") as broker, spark_session(directory, quick_start=False) as spark:
            bench = Bench(spark, broker.address, directory, scale)
            guarantees: list[Measured] = []
            for measurement in only or MEASUREMENTS:
                match measurement:
                    case "small":
                        compare_batches(bench, sides, rounds, 100)
                    case "large":
                        compare_batches(bench, sides, rounds, 1024)
                    case "stream":
                        compare_streams(bench, sides, rounds)
                    case "commit":
                        guarantees = compare_guarantees(bench, rounds)
    if sides[0].figures:
        print_table(*sides)
    if guarantees:
        print_guarantees(*guarantees)
    print(f"\n{rounds} rounds, wall time {time.perf_counter() - started:.0f} s")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # Leave no process behind.
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], choices=MEASUREMENTS)
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows of batches: 1 is a million at 100 B")
    options = parser.parse_args()
    compare(options.rounds, options.only, options.scale)


if __name__ == "__main__":
    main()
