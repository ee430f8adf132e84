"""The offset of a stream, as Spark stores it in its checkpoint: JSON that holds all that a batch needs. Pure.

Spark stores only the *end* offset of a batch before it runs the batch; it calls ``initialOffset`` any number of times
and does not store its result. So the initial offset is a constant that only means "begin", and the offset at which a
batch starts is part of the offset at which it ends: a batch that is run again, perhaps in another process and days
later, reads the same ranges. Spark compares offsets as text, so their JSON has one order::

    {"v": 1, "init": true}
    {"v": 1, "start": {topic: {partition: offset}}, "end": {topic: {partition: offset}}, "ids": {topic: hex},
     "revision": 2}

``ids`` are the topics' ids where the cluster has ids: a topic that was deleted and created again is another one, though
its name and offsets fit. Offsets of releases whose patterns matched state topics, too, have no ``revision``; it is
ignored by those releases.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.offset_ranges import NO_TOPIC_ID, OffsetRange

_VERSION: Final = 1
REVISION: Final = "revision"
_STATE_TOPICS_LEFT_OUT: Final = 2
Json = dict[str, Any]


class OffsetUnreadable(ValueError):
    """An offset in a checkpoint was not written by this source, or by a later version of it."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Where a batch starts and ends, and the ids of its topics."""

    start: Mapping[TopicPartition, int] = field(default_factory=dict)
    end: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)

    def ranges(self) -> list[OffsetRange]:
        return [
            OffsetRange(tp.topic, tp.partition, start, self.end[tp], self.topic_ids.get(tp.topic, NO_TOPIC_ID))
            for tp, start in sorted(self.start.items())
        ]

    def without(self, topics: Collection[str]) -> "StreamOffset":
        """Return the same offset without some topics."""
        if not topics:
            return self
        start, end = ({tp: n for tp, n in each.items() if tp.topic not in topics} for each in (self.start, self.end))
        return StreamOffset(start, end, {name: each for name, each in self.topic_ids.items() if name not in topics})

    def to_json(self) -> Json:
        ids = {topic: topic_id.hex() for topic, topic_id in sorted(self.topic_ids.items()) if topic_id != NO_TOPIC_ID}
        offsets = {"start": nested(self.start), "end": nested(self.end)}
        return {"v": _VERSION, **offsets, "ids": ids, REVISION: _STATE_TOPICS_LEFT_OUT}


def initial_json() -> Json:
    """Return the constant result of ``initialOffset``."""
    return {"v": _VERSION, "init": True}


def parse_offset(json: Json) -> StreamOffset | None:
    """Parse an offset; None for the initial one. Raises ``OffsetUnreadable``."""
    if json.get("v") != _VERSION:
        raise OffsetUnreadable(f"an offset of another source, or of a later version of this one: {str(json)[:200]}")
    if json.get("init"):
        return None
    try:
        topic_ids = {topic: bytes.fromhex(topic_id) for topic, topic_id in json["ids"].items()}
        return StreamOffset(_flat(json["start"]), _flat(json["end"]), topic_ids)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise OffsetUnreadable(f"not an offset of this source: {str(json)[:200]}") from error


def nested(offsets: Mapping[TopicPartition, int]) -> Json:
    """Return ``{topic: {partition: offset}}`` in the order of topics, then of partition numbers."""
    topics: Json = {}
    for topic_partition, offset in sorted(offsets.items()):
        topics.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offset
    return topics


def _flat(topics: Json) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }
