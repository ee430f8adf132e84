"""Topics: list, describe, create, delete, add partitions, delete records below an offset.

Requests about several topics return what became of each: ``None`` or a ``Refusal``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from clients.admin.by_topic import by_topic
from clients.cluster import Cluster, Controller, LeaderAnswers
from clients.errors import Refusal, refusal
from protocol.messages.metadata import MetadataResponseTopic
from protocol.schema import ZERO_UUID
from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from protocol.messages.delete_topics import DeleteTopicsResponse

BROKER_DEFAULT: Final = -1
_TIMEOUT_MS: Final = 30_000
_FIRST_WITH_TOPIC_IDS: Final = 6
"""Of DeleteTopics."""

Outcomes = dict[str, Refusal | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """One partition, as the cluster's metadata has it."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """One topic, as the cluster's metadata has it."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; ``BROKER_DEFAULT`` leaves a number to the brokers."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


def _description(topic: MetadataResponseTopic, live: Iterable[int]) -> TopicDescription:
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return TopicDescription(
        name=topic.name or "",
        topic_id=None if topic.topic_id == ZERO_UUID else UUID(bytes=topic.topic_id),
        is_internal=topic.is_internal,
        partitions=tuple(
            PartitionDescription(
                partition=partition.partition_index,
                leader=partition.leader_id if partition.leader_id in live else None,
                leader_epoch=partition.leader_epoch,
                replicas=tuple(partition.replica_nodes),
                isr=tuple(partition.isr_nodes),
                offline=tuple(partition.offline_replicas),
            )
            for partition in partitions
        ),
    )


async def list_topics(cluster: Cluster) -> list[TopicDescription]:
    """Every topic, by name."""
    response = await cluster.refresh(None)
    known = [_description(topic, cluster.brokers) for topic in response.topics if not topic.error_code]
    return sorted(known, key=lambda topic: topic.name)


async def describe_topics(cluster: Cluster, names: Sequence[str]) -> dict[str, TopicDescription | Refusal]:
    """Some topics, each described or refused."""
    topics = await cluster.topics(names)
    return {
        name: refusal(topics[name].error_code) or _description(topics[name], cluster.brokers) for name in sorted(names)
    }


async def create_topics(cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool = False) -> Outcomes:
    from protocol.messages.create_topics import (
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
        CreateTopicsResponse,
    )

    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
            )
            for topic in topics
        ],
        timeout_ms=_TIMEOUT_MS,
        validate_only=validate_only,
    )
    response = await cluster.call(
        Controller(), request, CreateTopicsResponse, errors=lambda r: [topic.error_code for topic in r.topics]
    )
    return {topic.name: refusal(topic.error_code, topic.error_message) for topic in response.topics}


async def delete_topics(cluster: Cluster, names: Sequence[str]) -> Outcomes:
    """Delete topics with all that is in them."""
    response = await _delete_topics(cluster, names, ())
    return {topic.name or "": refusal(topic.error_code, topic.error_message) for topic in response.responses}


async def delete_topics_by_id(cluster: Cluster, topic_ids: Sequence[UUID]) -> dict[UUID, Refusal | None]:
    """Delete topics by their ids, which a topic that is made again under the same name does not share (KIP-516)."""
    response = await _delete_topics(cluster, (), topic_ids)
    return {UUID(bytes=topic.topic_id): refusal(topic.error_code, topic.error_message) for topic in response.responses}


async def _delete_topics(cluster: Cluster, names: Sequence[str], topic_ids: Sequence[UUID]) -> "DeleteTopicsResponse":
    from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

    topics = [DeleteTopicState(name=name) for name in names]
    topics += [DeleteTopicState(topic_id=topic_id.bytes) for topic_id in topic_ids]
    return await cluster.call(
        Controller(),
        DeleteTopicsRequest(topics=topics, topic_names=list(names), timeout_ms=_TIMEOUT_MS),
        DeleteTopicsResponse,
        errors=lambda r: [topic.error_code for topic in r.responses],
        at_least=_FIRST_WITH_TOPIC_IDS if topic_ids else 0,
    )


async def add_partitions(cluster: Cluster, totals: Mapping[str, int]) -> Outcomes:
    """Raise the number of partitions of each topic to a new total."""
    from protocol.messages.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreatePartitionsTopic,
    )

    topics = [CreatePartitionsTopic(name=name, count=total, assignments=None) for name, total in totals.items()]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=_TIMEOUT_MS)
    response = await cluster.call(
        Controller(), request, CreatePartitionsResponse, errors=lambda r: [topic.error_code for topic in r.results]
    )
    return {topic.name: refusal(topic.error_code, topic.error_message) for topic in response.results}


async def delete_records(cluster: Cluster, before: Mapping[TopicPartition, int]) -> LeaderAnswers[int]:
    """Delete what is below an offset (-1: the high watermark); answers where each log begins now."""
    from protocol.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        DeleteRecordsTopic,
    )

    def build(offsets: Mapping[TopicPartition, int]) -> DeleteRecordsRequest:
        named = by_topic(
            (tp, DeleteRecordsPartition(partition_index=tp.partition, offset=offset)) for tp, offset in offsets.items()
        )
        topics = [DeleteRecordsTopic(name=name, partitions=partitions) for name, partitions in named.items()]
        return DeleteRecordsRequest(topics=topics, timeout_ms=_TIMEOUT_MS)

    def split(response: DeleteRecordsResponse) -> Iterable[tuple[TopicPartition, int, int]]:
        for topic in response.topics:
            for partition in topic.partitions:
                key = TopicPartition(topic.name, partition.partition_index)
                yield key, partition.error_code, partition.low_watermark

    return await cluster.call_leaders(before, build, DeleteRecordsResponse, split)
