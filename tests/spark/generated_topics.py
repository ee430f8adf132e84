"""Topics drawn from a seed: what two readers are compared on.

A topic has several rounds of records, each of which is one or a few record batches of one partition: keys, values and
headers that are null, empty or not, from record to record; codecs as our producer has them and as librdkafka does;
times that go back and forth, or the broker's; transactions that are committed, aborted, or still open while the topic
is read; records that were deleted from the beginning of a partition. Compacted topics have gaps between records.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, cast, get_args

from confluent_kafka import Producer

from tests.spark.other_end import Codec, NewRecord, OtherEnd, Outcome

NOON: Final = 1_700_000_000_000
HOUR_MS: Final = 3_600_000
MOST_ROWS: Final = 40
MOST_PARTITIONS: Final = 4
_MOST_ROUNDS: Final = 6
_MANY_ROWS: Final = 1_000
_LONG_AGO_MS: Final = 1
_LATE_MS: Final = 4_102_444_800_000
"""Later than any marker, so that its record begins a segment: the last one is not compacted."""
_COMPACTED: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": str(HOUR_MS // 2),
    "message.timestamp.after.max.ms": str(2**63 - 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Records that are written at once to one partition."""

    partition: int
    records: Sequence[NewRecord]
    codec: Codec
    outcome: Outcome
    by_librdkafka: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic and what is done to it, in this order."""

    name: str
    partitions: int
    rounds: Sequence[Round]
    open_round: Round | None = None
    """In a transaction that is open while the topic is read."""
    later_rounds: Sequence[Round] = ()
    """Without transactions, some of them behind the one that is open."""
    deleted_before: int = 0
    """In partition 0; 0 for nothing."""
    configs: dict[str, str] = field(default_factory=dict)


def draw_topic(rng: Random, name: str) -> TopicPlan:
    partitions = rng.randint(1, MOST_PARTITIONS)
    has_open = rng.random() < 0.2
    return TopicPlan(
        name=name,
        partitions=partitions,
        rounds=[draw_round(rng, partitions) for _ in range(rng.randint(0, _MOST_ROUNDS))],
        open_round=draw_round(rng, partitions, outcomes=("commit",)) if has_open else None,
        later_rounds=[draw_round(rng, partitions, outcomes=("plain",)) for _ in range(rng.randint(0, 2))],
        deleted_before=rng.randint(1, 9) if rng.random() < 0.2 else 0,
        configs={"message.timestamp.type": "LogAppendTime"} if rng.random() < 0.2 else {},
    )


def draw_round(rng: Random, partitions: int, outcomes: Sequence[Outcome] = ()) -> Round:
    base = NOON + rng.randint(-3, 3) * HOUR_MS
    many = rng.random() < 0.03
    count = rng.randint(1, _MANY_ROWS if many else MOST_ROWS)
    has_headers, spread = rng.random() < 0.5, rng.choice([0, 0, 1, HOUR_MS])

    def record() -> NewRecord:
        timestamp = _LONG_AGO_MS if rng.random() < 0.01 else base + rng.randint(-spread, spread)
        headers = _draw_headers(rng) if has_headers else []
        value = b"%d" % rng.randint(0, 99) if many else _draw_field(rng)
        return NewRecord(_draw_field(rng) if not many else None, value, headers, timestamp)

    return Round(
        partition=rng.randrange(partitions),
        records=[record() for _ in range(count)],
        codec=cast(Codec, rng.choice(get_args(Codec))),
        outcome=rng.choice(outcomes or ("plain", "plain", "plain", "commit", "commit", "abort")),
        by_librdkafka=rng.random() < 0.3,
    )


def _draw_field(rng: Random) -> bytes | None:
    size = rng.choice([1, 10, 2_000, 2_000, 60_000 if rng.random() < 0.1 else 100])
    return rng.choice([None, b"", b"x" * rng.randint(1, size), b"%d" % rng.randint(0, 99), bytes([0, 255, 128])])


def _draw_headers(rng: Random) -> list[tuple[str, bytes | None]]:
    names = ["a", "b", "c", "", "größe", "a" * 100]
    return [(rng.choice(names), _draw_field(rng)) for _ in range(rng.choice([0, 0, 1, 2, 3]))]


def write_topic(end: OtherEnd, plan: TopicPlan) -> Producer | None:
    """Make a topic; the producer whose transaction is open, if there is one."""
    end.create(plan.name, plan.partitions, plan.configs)
    for each in plan.rounds:
        write_round(end, plan.name, each)
    end.wait_until_ended(plan.name)
    if plan.deleted_before:
        end.delete_records(plan.name, min(plan.deleted_before, end.ends(plan.name)[0]))
    producer = None if plan.open_round is None else _leave_open(end, plan.name, plan.open_round)
    for each in plan.later_rounds:
        write_round(end, plan.name, each)
    return producer


def write_round(end: OtherEnd, topic: str, each: Round) -> None:
    write = end.send_by_librdkafka if each.by_librdkafka else end.send
    write(topic, each.records, partition=each.partition, compression=each.codec, outcome=each.outcome)


def _leave_open(end: OtherEnd, topic: str, each: Round) -> Producer:
    producer = end.begin_by_librdkafka(f"open-{topic}", each.codec)
    end.produce_by_librdkafka(producer, topic, each.records, each.partition)
    return producer


def compacted_plan(rng: Random, name: str) -> TopicPlan:
    """A topic of few keys: what is left of all rounds but the last is the newest record of each key."""
    partitions = rng.randint(1, 2)
    rounds = []
    for number in range(rng.randint(3, 5)):
        for partition in range(partitions):
            plain = draw_round(rng, partitions)
            timestamp = NOON + (number - 3) * HOUR_MS
            records = [NewRecord(b"%d" % rng.randint(0, 9), r.value, r.headers, timestamp) for r in plain.records]
            rounds.append(Round(partition=partition, records=records, codec=plain.codec, outcome=plain.outcome))
    last = [
        Round(partition=each, records=[NewRecord(b"last", b"", [], _LATE_MS)], codec="none", outcome="plain")
        for each in range(partitions)
    ]
    return TopicPlan(name=name, partitions=partitions, rounds=rounds, later_rounds=last, configs=dict(_COMPACTED))


def write_compacted(end: OtherEnd, plan: TopicPlan) -> None:
    """Return when the cleaner has been everywhere."""
    write_topic(end, plan)
    end.wait_until_compacted(plan.name)
