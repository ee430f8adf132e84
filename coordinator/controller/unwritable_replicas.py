"""``UnwritableReplicas``: replicas whose brokers cannot write them, although they can write others. Pure.

A broker that may open no more files can neither begin a new log nor a new segment. It responds to LeaderAndIsr with
REPLICA_NOT_AVAILABLE for these replicas, until it can, and reports the change as that of a full disk.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from oncelog.protocol.topic_partition import TopicPartition


class Changes(NamedTuple):
    """Partitions of which one broker's replica has changed."""

    unwritable: set[TopicPartition]
    writable: set[TopicPartition]


class UnwritableReplicas:
    """What was reported during one controller epoch."""

    def __init__(self) -> None:
        self._brokers: dict[TopicPartition, frozenset[int]] = {}

    def of(self, partition: TopicPartition) -> Collection[int]:
        """Return the brokers that cannot write their replica of a partition."""
        return self._brokers.get(partition, ())

    def take(self, broker_id: int, response: LeaderAndIsrResponse, topic_names: Mapping[bytes, str]) -> Changes:
        """Take a response; return the partitions of which the broker's replica became unwritable, or writable."""
        changes = Changes(set(), set())
        for partition, error in _errors(response, topic_names):
            before = self._brokers.get(partition, frozenset())
            is_unwritable = error == ErrorCode.REPLICA_NOT_AVAILABLE
            if is_unwritable != (broker_id in before):
                self._put(partition, before ^ {broker_id})
                (changes.unwritable if is_unwritable else changes.writable).add(partition)
        return changes

    def remove_broker(self, broker_id: int) -> None:
        """Drop what a broker reported that is not registered any more."""
        for partition, brokers in list(self._brokers.items()):
            self._put(partition, brokers - {broker_id})

    def forget(self, partition: TopicPartition) -> None:
        """Drop the reports of a partition that exists no more."""
        self._brokers.pop(partition, None)

    def _put(self, partition: TopicPartition, brokers: frozenset[int]) -> None:
        if brokers:
            self._brokers[partition] = brokers
        else:
            self._brokers.pop(partition, None)


def _errors(response: LeaderAndIsrResponse, topic_names: Mapping[bytes, str]) -> Iterator[tuple[TopicPartition, int]]:
    for topic in response.topics:
        name = topic_names.get(topic.topic_id)
        if name is not None:
            for each in topic.partition_errors:
                yield TopicPartition(name, each.partition_index), each.error_code
