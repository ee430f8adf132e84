"""Topics, options and uses of one DataFrame, drawn from a seed: what two readers of a topic are compared by.

A topic has several rounds of records: keys and values that are null, empty or not, headers, compression, times that go
back and forth, transactions that are committed or aborted, and records that are deleted again. The options are those
that both formats know. All offsets are within the log, or before its beginning where records were deleted.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, cast, get_args

from pyspark.sql import DataFrame

from tests.spark.other_end import Codec, OtherEnd, Row

_NOON: Final = 1_700_000_000_000
_MOST_ROUNDS: Final = 6
_MOST_ROWS: Final = 40
_MOST_PARTITIONS: Final = 4
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Round:
    """Records that are written at once to one partition."""

    rows: Sequence[Row]
    partition: int
    codec: Codec
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes | None]]
    is_transactional: bool
    is_committed: bool


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic and what is done to it."""

    partitions: int
    rounds: Sequence[Round]
    deleted_before: int
    """In partition 0; 0 for nothing."""


def draw_topic(rng: Random) -> TopicPlan:
    partitions = rng.randint(1, _MOST_PARTITIONS)
    rounds = [_draw_round(rng, partitions) for _ in range(rng.randint(0, _MOST_ROUNDS))]
    return TopicPlan(partitions, rounds, rng.randint(1, 9) if rng.random() < 0.2 else 0)


def _draw_round(rng: Random, partitions: int) -> Round:
    def field() -> bytes | None:
        return rng.choice([None, b"", b"x" * rng.randint(1, 2000), b"%d" % rng.randint(0, 99)])

    is_transactional = rng.random() < 0.4
    headers: list[tuple[str, bytes | None]] = [(rng.choice("abc"), field()) for _ in range(rng.randint(0, 3))]
    return Round(
        rows=[(field(), field()) for _ in range(rng.randint(1, _MOST_ROWS))],
        partition=rng.randrange(partitions),
        codec=cast(Codec, rng.choice(get_args(Codec))),
        timestamp_ms=_NOON + rng.randint(-3, 3) * _HOUR_MS,
        headers=headers,
        is_transactional=is_transactional,
        is_committed=not is_transactional or rng.random() < 0.7,
    )


def write_topic(end: OtherEnd, topic: str, plan: TopicPlan) -> None:
    end.create(topic, plan.partitions)
    for each in plan.rounds:
        end.write(
            topic,
            each.rows,
            partition=each.partition,
            compression=each.codec,
            timestamp_ms=each.timestamp_ms,
            headers=each.headers,
            transactional_id=topic if each.is_transactional else None,
            commit=each.is_committed,
        )
    if plan.deleted_before:
        end.delete_records(topic, min(plan.deleted_before, end.ends(topic)[0]))


def draw_options(rng: Random, topic: str, ends: Mapping[int, int]) -> dict[str, str]:
    """Options of a batch read that Spark's own format has as well."""
    assigned = sorted(rng.sample(sorted(ends), rng.randint(1, len(ends)))) if rng.random() < 0.3 else sorted(ends)
    options = {
        "kafka.isolation.level": rng.choice(["read_committed", "read_uncommitted"]),
        "includeHeaders": rng.choice(["true", "false"]),
        "failOnDataLoss": rng.choice(["true", "false"]),
    }
    if len(assigned) < len(ends) or rng.random() < 0.2:
        options["assign"] = json.dumps({topic: assigned})
    else:
        options |= rng.choice([{"subscribe": topic}, {"subscribePattern": f"{topic[:-1]}[{topic[-1]}]"}])
    middles = {partition: rng.randint(0, ends[partition]) for partition in assigned}
    options |= _draw_start(rng, topic, middles)
    options |= _draw_end(rng, topic, ends, middles)
    if rng.random() < 0.3:
        options["minPartitions"] = str(rng.randint(1, 6))
    if rng.random() < 0.2:
        options["maxRecordsPerPartition"] = str(rng.randint(3, 50))
    return options


def _draw_start(rng: Random, topic: str, middles: Mapping[int, int]) -> dict[str, str]:
    match rng.randrange(4):
        case 0:
            return {"startingOffsets": "earliest"}
        case 1:
            offsets = {str(each): rng.choice([-2, middle]) for each, middle in middles.items()}
            return {"startingOffsets": json.dumps({topic: offsets})}
        case 2:
            time = {"startingTimestamp": str(_NOON + rng.randint(-4, 4) * _HOUR_MS)}
            return time | {"startingOffsetsByTimestampStrategy": rng.choice(["error", "latest"])}
        case _:
            return {}


def _draw_end(rng: Random, topic: str, ends: Mapping[int, int], middles: Mapping[int, int]) -> dict[str, str]:
    match rng.randrange(4):
        case 0:
            return {"endingOffsets": "latest"}
        case 1:
            offsets = {str(each): rng.choice([-1, rng.randint(middle, ends[each])]) for each, middle in middles.items()}
            return {"endingOffsets": json.dumps({topic: offsets})}
        case 2:
            return {"endingTimestamp": str(_NOON + rng.randint(-2, 4) * _HOUR_MS)}
        case _:
            return {}


def draw_filter(rng: Random) -> str:
    operator = rng.choice(["<", "<=", ">", ">=", "=", "<>"])
    hour = f"timestamp '2023-11-14 {22 + rng.randint(-3, 1)}:13:20'"
    return rng.choice(
        [
            f"partition {operator} {rng.randrange(_MOST_PARTITIONS)}",
            f"partition in ({rng.randrange(_MOST_PARTITIONS)}, {rng.randrange(_MOST_PARTITIONS)})",
            f"offset {operator} {rng.randint(0, _MOST_ROWS)}",
            f"timestamp {operator} {hour}",
            "timestamp >= timestamp '1969-12-31 23:59:59.999'",
            "key is null and length(value) > 1",
        ]
    )


Use = Callable[[DataFrame], list[str]]


def draw_uses(rng: Random) -> list[Use]:
    """What is done with one DataFrame, one after the other."""
    one, other = draw_filter(rng), draw_filter(rng)

    def rows(frame: DataFrame) -> list[str]:
        return sorted(map(repr, frame.collect()))

    def filtered_twice(frame: DataFrame) -> list[str]:
        return rows(frame.where(one).union(frame.where(other)))

    def joined(frame: DataFrame) -> list[str]:
        left, right = frame.where(one).alias("l"), frame.where(other).alias("r")
        same = "l.partition = r.partition and l.offset = r.offset"
        return rows(left.selectExpr("partition", "offset").alias("l").join(right, on=_expression(same)))

    def cached(frame: DataFrame) -> list[str]:
        kept = frame.where(one).cache()
        try:
            return [str(kept.count()), *rows(kept.where(other)), *rows(kept)]
        finally:
            kept.unpersist()

    def counted(frame: DataFrame) -> list[str]:
        return rows(frame.groupBy("partition").agg({"offset": "max", "value": "count"}))

    def first(frame: DataFrame) -> list[str]:
        return rows(frame.orderBy("partition", "offset").limit(7))

    uses: list[Use] = [rows, filtered_twice, joined, cached, counted, first]
    return rng.sample(uses, rng.randint(2, 4))


def _expression(text: str):  # type: ignore[no-untyped-def]  # A Column, which pyspark has no stable type for.
    from pyspark.sql.functions import expr

    return expr(text)
