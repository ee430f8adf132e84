"""Options of a read drawn from a seed, of those that ``oncelog`` and Spark's own Kafka source both know.

Most reads are valid, and their offsets are in the log, or before its beginning where records were deleted. Some are
not: they contradict themselves, or the topics that there are, so that both formats have to refuse them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.spark.generated_topics import HOUR_MS, NOON

Numbers = dict[str, dict[int, int]]
"""An offset or a time for each partition of each topic."""
_LEVELS: Final = {"read_committed": True, "read_uncommitted": False}
_WRONG: Final = 0.08


@dataclass(frozen=True, slots=True)
class Drawing:
    """What options are drawn from."""

    rng: Random
    ends: Numbers
    """Of the partitions that are read, by the isolation level."""

    def numbers(self, draw: Callable[[int], int]) -> Numbers:
        """``draw`` makes one of a partition's end."""
        return {topic: {p: draw(end) for p, end in ends.items()} for topic, ends in self.ends.items()}


def draw_options(
    rng: Random, topics: Sequence[str], pattern: str, find_ends: Callable[[str, bool], Mapping[int, int]]
) -> dict[str, str]:
    """Of a batch. ``pattern`` is that of the names of ``topics``, and of no others."""
    options, drawing = _draw_selection(rng, topics, pattern, find_ends)
    middles = drawing.numbers(lambda end: rng.randint(0, end))
    options |= _draw_start(drawing, middles) | _draw_end(drawing, middles) | _draw_tasks(rng)
    return _made_wrong(drawing, options) if rng.random() < _WRONG else options


def draw_stream_options(
    rng: Random, topics: Sequence[str], pattern: str, find_ends: Callable[[str, bool], Mapping[int, int]]
) -> dict[str, str]:
    """Of a stream."""
    options, drawing = _draw_selection(rng, topics, pattern, find_ends)
    starts: list[dict[str, str]] = [
        {},
        {"startingOffsets": "earliest"},
        {"startingOffsets": "latest"},
        {"startingOffsets": json.dumps(drawing.numbers(lambda end: rng.choice([-2, -1, rng.randint(0, end)])))},
        _draw_start_by_time(drawing),
    ]
    options |= rng.choice(starts)
    if rng.random() < 0.4:
        options["maxOffsetsPerTrigger"] = str(rng.choice([7, 50, 1000]))
    if rng.random() < 0.3:
        options["minPartitions"] = str(rng.randint(1, 6))
    return options


def _draw_selection(
    rng: Random, topics: Sequence[str], pattern: str, find_ends: Callable[[str, bool], Mapping[int, int]]
) -> tuple[dict[str, str], Drawing]:
    level = rng.choice(sorted(_LEVELS))
    ends = {topic: dict(find_ends(topic, _LEVELS[level])) for topic in topics}
    options = {
        "kafka.isolation.level": level,
        rng.choice(["includeHeaders", "includeheaders"]): rng.choice(["true", "false"]),
        "failOnDataLoss": rng.choice(["true", "false"]),
        "fetchOffset.numRetries": "1",
    }
    if rng.random() < 0.3:
        options["kafka.max.partition.fetch.bytes"] = str(rng.choice([1, 1_000, 50_000]))
    if rng.random() < 0.1:
        options["kafka.check.crcs"] = "false"
    if rng.random() < 0.3:
        ends = {topic: {p: found[p] for p in _some(rng, sorted(found))} for topic, found in ends.items()}
        options["assign"] = json.dumps({topic: sorted(found) for topic, found in ends.items()})
    else:
        options |= rng.choice([{"subscribe": rng.choice([",", ", "]).join(topics)}, {"subscribePattern": pattern}])
    return options, Drawing(rng, ends)


def _some(rng: Random, all_of_them: Sequence[int]) -> list[int]:
    return rng.sample(all_of_them, rng.randint(1, len(all_of_them)))


def _draw_start(drawing: Drawing, middles: Numbers) -> dict[str, str]:
    rng = drawing.rng
    match rng.randrange(4):
        case 0:
            return {"startingOffsets": rng.choice(["earliest", "Earliest"])}
        case 1:
            offsets = {t: {p: rng.choice([-2, middle]) for p, middle in each.items()} for t, each in middles.items()}
            return {"startingOffsets": json.dumps(offsets)}
        case 2:
            return _draw_start_by_time(drawing)
        case _:
            return {}


def _draw_start_by_time(drawing: Drawing) -> dict[str, str]:
    """For all partitions, for each, or both, of which the former counts; offsets may be there too, and do not."""
    rng = drawing.rng
    options = {"startingOffsetsByTimestampStrategy": rng.choice(["error", "latest", "latest"])}
    kind = rng.randrange(3)
    if kind != 0:
        options["startingTimestamp"] = str(_draw_time(rng))
    if kind != 1:
        options["startingOffsetsByTimestamp"] = json.dumps(drawing.numbers(lambda _: _draw_time(rng)))
    return options | ({"startingOffsets": "earliest"} if rng.random() < 0.2 else {})


def _draw_time(rng: Random) -> int:
    return NOON + rng.randint(-4, 4) * HOUR_MS + rng.choice([-1, 0, 0, 1])


def _draw_end(drawing: Drawing, middles: Numbers) -> dict[str, str]:
    rng = drawing.rng
    match rng.randrange(5):
        case 0:
            return {"endingOffsets": rng.choice(["latest", "LATEST"])}
        case 1:
            offsets = {
                topic: {p: rng.choice([-1, rng.randint(middle, drawing.ends[topic][p])]) for p, middle in each.items()}
                for topic, each in middles.items()
            }
            return {"endingOffsets": json.dumps(offsets)}
        case 2:
            return {"endingTimestamp": str(_draw_time(rng) + HOUR_MS)}
        case 3:
            return {"endingOffsetsByTimestamp": json.dumps(drawing.numbers(lambda _: _draw_time(rng) + HOUR_MS))}
        case _:
            return {}


def _draw_tasks(rng: Random) -> dict[str, str]:
    options = {}
    if rng.random() < 0.3:
        options["minPartitions"] = str(rng.randint(1, 6))
    if rng.random() < 0.2:
        options["maxRecordsPerPartition"] = str(rng.randint(3, 50))
    return options


def _made_wrong(drawing: Drawing, options: Mapping[str, str]) -> dict[str, str]:
    """The same with one thing that cannot be."""
    rng = drawing.rng
    one_too_few = {topic: dict(list(each.items())[1:]) for topic, each in drawing.ends.items()}
    one_too_many = {topic: {**each, 99: 0} for topic, each in drawing.ends.items()}
    wrong = [
        {"startingOffsets": "latest"},
        {"endingOffsets": "earliest"},
        {"startingOffsets": "nowhere"},
        {"startingOffsets": json.dumps(drawing.numbers(lambda _: -1))},
        {"endingOffsets": json.dumps(drawing.numbers(lambda _: -2))},
        {"startingOffsets": json.dumps(one_too_few)},
        {"endingOffsets": json.dumps(one_too_many)},
        {"startingOffsetsByTimestampStrategy": "earliest", "startingTimestamp": "0"},
        {"minPartitions": "0"},
        {"maxRecordsPerPartition": "-1"},
        {"assign": "[]", "subscribe": "a"},
        {"subscribe": "", "subscribePattern": ""},
        {"kafka.auto.offset.reset": "earliest"},
    ]
    kept = {name: value for name, value in options.items() if not name.startswith(("starting", "ending"))}
    return {**kept, **rng.choice(wrong)}
