"""Which topics and partitions are read: ``subscribe``, ``subscribePattern`` or ``assign``. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.target_topics import STATE_TOPIC

_SPECIFIC_VALID: Final = '{"topic": {"0": 23, "1": -2}}'


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of some topics, also those that are added later."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of all topics whose whole name matches, also of topics that are created later.

    State topics of sinks are left out as internal topics are: a stream that reads the decisions of its own sink makes
    a new batch for ever.
    """

    pattern: str
    left_out: frozenset[str] = frozenset({STATE_TOPIC})

    def matches(self, topic: str) -> bool:
        return topic not in self.left_out and re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class Assign:
    """Just these partitions."""

    partitions: tuple[TopicPartition, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({each.topic for each in self.partitions}))


TopicSelection = Subscribe | SubscribePattern | Assign


def leaves_out(selection: TopicSelection, topic: str) -> bool:
    """Return whether a pattern never reads a topic; a former release may have read it."""
    return isinstance(selection, SubscribePattern) and topic in selection.left_out


def parse_subscribe(text: str) -> Subscribe:
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise ValueError("no topic is named")
    return Subscribe(topics)


def parse_subscribe_pattern(text: str, state_topic: str = STATE_TOPIC) -> SubscribePattern:
    """Parse a pattern; it leaves out ``state_topic`` and the default one. Raises ``ValueError``."""
    if not text:
        raise ValueError("an empty pattern matches nothing")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(str(error)) from error
    return SubscribePattern(text, frozenset({STATE_TOPIC, state_topic}))


def parse_assign(text: str) -> Assign:
    """Parse ``{"topic": [0, 1]}``. Raises ``ValueError``."""
    parsed = _parse_json_object(text)
    partitions = []
    for topic, numbers in parsed.items():
        if not isinstance(numbers, list) or not all(_is_count(number) for number in numbers):
            raise ValueError(f"the partitions of {topic!r} are not a list of numbers")
        partitions += [TopicPartition(topic, number) for number in numbers]
    if not partitions:
        raise ValueError("no partition is named")
    return Assign(tuple(sorted(set(partitions))))


def parse_partition_numbers(text: str) -> dict[TopicPartition, int]:
    """Parse ``{"topic": {"0": 23}}``, a number for each partition, as in ``startingOffsets``. Raises ``ValueError``.

    An offset of a stream of this source, as its checkpoint and error messages show it, stands for its end.
    """
    found = {}
    parsed = _parse_json_object(text)
    end = parsed.get("end")
    if "v" in parsed and isinstance(parsed.get("start"), dict) and isinstance(end, dict):
        parsed = end
    for topic, numbers in parsed.items():
        if not isinstance(numbers, dict):
            raise ValueError(f"{topic!r} has no object of partitions, as in {_SPECIFIC_VALID}")
        for partition, number in numbers.items():
            if not partition.isdecimal() or isinstance(number, bool) or not isinstance(number, int):
                raise ValueError(f"{topic!r} has {partition!r}: {number!r}, which is not a partition and a number")
            if TopicPartition(topic, int(partition)) in found:
                raise ValueError(f"{topic!r} has partition {int(partition)} twice; each may be named once")
            found[TopicPartition(topic, int(partition))] = number
    if not found:
        raise ValueError("no partition is named")
    return found


def _parse_json_object(text: str) -> Mapping[str, object]:
    try:
        parsed = json.loads(text, object_pairs_hook=_without_repetition)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise ValueError("not a JSON object")
    return parsed


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name in found if sum(name == each for each, _ in pairs) > 1)
        raise ValueError(f"{twice!r} is there twice; each topic and each partition may be named once")
    return found


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
