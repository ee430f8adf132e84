"""What is done with one DataFrame, drawn from a seed: each use gives lines of text, the same ones from both formats.

Rows are compared as text, in sorted order: two reads may give them in different orders.
"""

import warnings
from collections.abc import Callable
from random import Random
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tests.spark.generated_topics import MOST_PARTITIONS, MOST_ROWS

Use = Callable[[DataFrame], list[str]]
_OPERATORS: Final = ("<", "<=", ">", ">=", "=", "<>", "<=>")


def rows(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.collect()))


def draw_comparison(rng: Random) -> str:
    """Of partition, offset or timestamp: what can be pushed into a source."""
    operator = rng.choice(_OPERATORS)
    hour = f"timestamp '2023-11-14 {22 + rng.randint(-3, 1)}:13:20{rng.choice(['', '.001', '.0005'])}'"
    partition, offset = rng.randrange(MOST_PARTITIONS), rng.randint(-1, MOST_ROWS)
    return rng.choice(
        [
            f"partition {operator} {partition}",
            f"{partition} {operator} partition",
            f"partition in ({partition}, {rng.randrange(MOST_PARTITIONS)})",
            f"not partition in ({partition}, {rng.randrange(MOST_PARTITIONS)})",
            f"partition in ({partition}, null)",
            f"offset {operator} {offset}",
            f"offset in ({offset}, {rng.randint(0, MOST_ROWS)}, {rng.randint(0, MOST_ROWS)})",
            f"offset between {offset} and {offset + rng.randint(0, 20)}",
            f"offset % 2 = 0 and offset {operator} {offset}",
            f"timestamp {operator} {hour}",
            f"{hour} {operator} timestamp",
            f"timestamp in ({hour}, timestamp '2023-11-14 22:13:20')",
            "timestamp >= timestamp '1969-12-31 23:59:59.999'",
            "timestamp > timestamp '9999-12-31 23:59:59'",
            "timestamp < timestamp '0001-01-02 00:00:00'",
            f"partition = {partition} or offset {operator} {offset}",
            f"not (partition = {partition} and offset {operator} {offset})",
        ]
    )


def draw_filter(rng: Random) -> str:
    other = rng.choice(
        [
            "key is null and length(value) > 1",
            "key <=> null or value = X'00FF80'",
            "value is not null and cast(value as string) like '%1%'",
            "topic like '%a'",
            "timestampType = 0",
            "partition = '1'",
            "offset > 3.5",
        ]
    )
    kinds = [draw_comparison(rng), other, f"{draw_comparison(rng)} and {draw_comparison(rng)}"]
    return rng.choice([*kinds, f"({draw_comparison(rng)}) and ({other})"])


def draw_uses(rng: Random, number: int) -> list[Use]:
    """For one DataFrame, one after the other."""
    uses = [*_filtered_uses(rng), *_whole_uses(rng)]
    return rng.sample(uses, number)


def _filtered_uses(rng: Random) -> list[Use]:
    one, other = draw_filter(rng), draw_filter(rng)

    def filtered(frame: DataFrame) -> list[str]:
        return rows(frame.where(one))

    def filtered_twice(frame: DataFrame) -> list[str]:
        return rows(frame.where(one).union(frame.where(other)))

    def subtracted(frame: DataFrame) -> list[str]:
        columns = ("topic", "partition", "offset", "value")
        return rows(frame.where(one).select(*columns).exceptAll(frame.where(other).select(*columns)))

    def joined(frame: DataFrame) -> list[str]:
        left, right = frame.where(one).alias("l"), frame.where(other).alias("r")
        same = "l.topic = r.topic and l.partition = r.partition and l.offset = r.offset"
        return rows(left.selectExpr("topic", "partition", "offset").alias("l").join(right, on=f.expr(same)))

    def filtered_and_cached(frame: DataFrame) -> list[str]:
        return _while_cached(frame.where(one), lambda kept: [*rows(kept.where(other)), *rows(kept)])

    def cached_and_filtered(frame: DataFrame) -> list[str]:
        return _while_cached(frame, lambda _: [*rows(frame.where(one)), *rows(frame.where(other)), *rows(frame)])

    def in_a_view(frame: DataFrame) -> list[str]:
        frame.createOrReplaceTempView("drawn")
        session = frame.sparkSession
        try:
            return rows(
                session.sql(
                    f"select partition, count(*) from drawn where {one} group by partition union all "
                    f"select partition, max(offset) from drawn where {other} group by partition union all "
                    "select partition, offset from drawn where offset = (select max(offset) from drawn)"
                )
            )
        finally:
            session.catalog.dropTempView("drawn")

    return [filtered, filtered_twice, subtracted, joined, filtered_and_cached, cached_and_filtered, in_a_view]


def _while_cached(frame: DataFrame, use: Use) -> list[str]:
    kept = frame.cache()
    try:
        return [str(kept.count()), *use(kept)]
    finally:
        kept.unpersist()


def _whole_uses(rng: Random) -> list[Use]:
    columns = rng.sample(["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"], 2)

    def some_columns(frame: DataFrame) -> list[str]:
        return rows(frame.select(*columns))

    def counted(frame: DataFrame) -> list[str]:
        return [str(frame.count()), str(frame.isEmpty()), *rows(frame.distinct().groupBy().count())]

    def aggregated(frame: DataFrame) -> list[str]:
        return rows(frame.groupBy("topic", "partition").agg({"offset": "max", "value": "count", "timestamp": "min"}))

    def first(frame: DataFrame) -> list[str]:
        return rows(frame.orderBy("topic", "partition", "offset").limit(7))

    def newest_of_each_key(frame: DataFrame) -> list[str]:
        return rows(frame.groupBy("topic", "key").agg(f.max(f.struct("partition", "offset", "value"))))

    def in_the_order_of_the_log(frame: DataFrame) -> list[str]:
        """Within a task, rows come by offset."""
        tasks = frame.select(f.spark_partition_id().alias("task"), "topic", "partition", "offset")
        seen: dict[tuple[object, ...], int] = {}
        for row in tasks.toLocalIterator():
            place = (row.task, row.topic, row.partition)
            assert seen.get(place, -1) < row.offset, row
            seen[place] = row.offset
        return [str(len(seen) > 0)]

    def as_pandas(frame: DataFrame) -> list[str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Spark warns of Arrow before it raises what the source has raised.
            found = frame.select("topic", "partition", "offset", "timestamp", "value").toPandas()
        return sorted(map(repr, found.itertuples(index=False)))

    uses = [rows, some_columns, counted, aggregated, first, newest_of_each_key, in_the_order_of_the_log, as_pandas]
    return [rows, *uses]
