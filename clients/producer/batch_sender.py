"""Sending finished batches to the leaders of their partitions, one a partition.

What is sent so is written at least once: a batch whose answer was lost is sent again, and the broker cannot tell.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from clients.cluster import Cluster, LeaderAnswers, find_partition
from clients.errors import Unreachable
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.schema import Buffer
from protocol.topic_partition import TopicPartition

ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
ACKS_NONE: Final = 0
_NEWEST_WITH_EXPLICIT_TRANSACTIONS: Final = 11
_TIMEOUT_MS: Final = 30_000


class Written(NamedTuple):
    """Where a batch has been put."""

    base_offset: int
    log_append_time_ms: int


async def send_batches(
    cluster: Cluster, batches: Mapping[TopicPartition, Buffer], *, acks: int
) -> LeaderAnswers[Written]:
    """Produce one batch to each partition and wait for the answers. ``acks`` is ``ACKS_ALL`` or ``ACKS_LEADER``."""
    return await cluster.call_leaders(
        batches,
        lambda some: _request(some, acks),
        ProduceResponse,
        _split,
        at_most=_NEWEST_WITH_EXPLICIT_TRANSACTIONS,
    )


async def send_batches_unacknowledged(cluster: Cluster, batches: Mapping[TopicPartition, Buffer]) -> None:
    """Produce with ``acks=0``: there are no answers, and what is lost is lost silently."""
    topics = await cluster.topics({topic_partition.topic for topic_partition in batches})
    for topic_partition, batch in batches.items():
        partition = find_partition(topics[topic_partition.topic], topic_partition.partition)
        if partition is None or partition.leader_id not in cluster.brokers:
            raise Unreachable(f"{topic_partition} has no leader now")
        connection = await cluster.connection_to(partition.leader_id)
        request = _request({topic_partition: batch}, ACKS_NONE)
        connection.send_without_answer(request, at_most=_NEWEST_WITH_EXPLICIT_TRANSACTIONS)


def _request(batches: Mapping[TopicPartition, Buffer], acks: int) -> ProduceRequest:
    topics: dict[str, TopicProduceData] = {}
    for (name, partition), batch in batches.items():
        data = PartitionProduceData(index=partition, records=batch)
        topics.setdefault(name, TopicProduceData(name=name)).partition_data.append(data)
    return ProduceRequest(acks=acks, timeout_ms=_TIMEOUT_MS, topic_data=list(topics.values()))


def _split(response: ProduceResponse) -> Iterable[tuple[TopicPartition, int, Written]]:
    for topic in response.responses:
        for partition in topic.partition_responses:
            yield TopicPartition(topic.name, partition.index), partition.error_code, _written(partition)


def _written(partition: PartitionProduceResponse) -> Written:
    return Written(partition.base_offset, partition.log_append_time_ms)
