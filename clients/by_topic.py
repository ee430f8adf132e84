"""Requests name partitions inside their topics: this sorts them so. Pure."""

from collections.abc import Iterable
from typing import TypeVar

from oncelog.protocol.topic_partition import TopicPartition

T = TypeVar("T")


def by_topic(items: Iterable[tuple[TopicPartition, T]]) -> dict[str, list[T]]:
    """Return the items of each topic's partitions, in the given order."""
    topics: dict[str, list[T]] = {}
    for topic_partition, item in items:
        topics.setdefault(topic_partition.topic, []).append(item)
    return topics


def indexes_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the indexes of the partitions of each topic."""
    return by_topic((topic_partition, topic_partition.partition) for topic_partition in partitions)
