"""Which topics and partitions are read: ``subscribe``, ``subscribePattern`` or ``assign``. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from protocol.topic_partition import TopicPartition

_SPECIFIC_VALID: Final = '{"topic": {"0": 23, "1": -2}}'


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of some topics, also those that are added later."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of all topics whose whole name matches, also of topics that are created later."""

    pattern: str

    def matches(self, topic: str) -> bool:
        return re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class Assign:
    """Just these partitions."""

    partitions: tuple[TopicPartition, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({each.topic for each in self.partitions}))


TopicSelection = Subscribe | SubscribePattern | Assign


def parse_subscribe(text: str) -> Subscribe:
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise ValueError("no topic is named")
    return Subscribe(topics)


def parse_subscribe_pattern(text: str) -> SubscribePattern:
    if not text:
        raise ValueError("an empty pattern matches nothing")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(str(error)) from error
    return SubscribePattern(text)


def parse_assign(text: str) -> Assign:
    """``{"topic": [0, 1]}``."""
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
    """``{"topic": {"0": 23}}``: a number for each partition, as startingOffsets and the like have it.

    Also an offset of a stream of this source, as its checkpoint and error messages show it: it stands for its end.
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
            found[TopicPartition(topic, int(partition))] = number
    if not found:
        raise ValueError("no partition is named")
    return found


def _parse_json_object(text: str) -> Mapping[str, object]:
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise ValueError("not a JSON object")
    return parsed


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
