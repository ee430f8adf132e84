"""Topics: list, describe, create, delete, add partitions, delete records below an offset.

Requests about several topics return the outcome of each: ``None`` or a ``Refusal``. Only topics with a transient
refusal are retried. A refusal because the change is made already (the topic exists, or does not exist any more) is a
success if an earlier attempt of the same call had no response, and the change was not made before the call.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from oncelog.clients.admin.item_requests import ANY_VERSION, send_items
from oncelog.clients.by_topic import by_topic
from oncelog.clients.checked_fields import checked_fields
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal, refusal
from oncelog.clients.fan_out import call_leaders
from oncelog.clients.partition_results import PartitionResults
from oncelog.clients.routes import Controller
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from oncelog.protocol.schema import ZERO_UUID, Versions
from oncelog.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from oncelog.protocol.messages.delete_topics import DeletableTopicResult

BROKER_DEFAULT: Final = -1
_TIMEOUT_MS: Final = 30_000
_KAFKA_NAMES: Final = {"partitions": "num_partitions"}
_FIRST_WITH_TOPIC_IDS: Final = 6
"""The first version of DeleteTopics with topic ids."""

Outcomes = dict[str, Refusal | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """One partition in the metadata of the cluster."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """One topic in the metadata of the cluster."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def replication_factor(self) -> int:
        """The number of replicas of the partition that has most; 0 without partitions."""
        return max((len(partition.replicas) for partition in self.partitions), default=0)


@checked_fields(_KAFKA_NAMES)
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
    """Return all topics, in the order of their names."""
    response = await cluster.refresh(None)
    known = [_description(topic, cluster.brokers) for topic in response.topics if not topic.error_code]
    return sorted(known, key=lambda topic: topic.name)


async def describe_topics(cluster: Cluster, names: Sequence[str]) -> dict[str, TopicDescription | Refusal]:
    """Return some topics, each described or refused, from fresh metadata."""
    for name in names:
        cluster.metadata.forget(name)
    topics = await cluster.topics(names)
    return {
        name: refusal(topics[name].error_code) or _description(topics[name], cluster.brokers) for name in sorted(names)
    }


async def create_topics(cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool = False) -> Outcomes:
    """Create topics, or with ``validate_only`` only check whether they could be created."""
    from oncelog.protocol.messages.create_topics import (
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
        CreateTopicsResponse,
    )

    wanted = {topic.name: topic for topic in topics}
    before = await _existing(cluster, wanted)

    def build(pending: Mapping[str, NewTopic], timeout_ms: int) -> CreateTopicsRequest:
        return CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
                )
                for topic in pending.values()
            ],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )

    def split(response: CreateTopicsResponse) -> Iterable[tuple[str, Refusal | None]]:
        return ((topic.name, refusal(topic.error_code, topic.error_message)) for topic in response.topics)

    outcomes = await send_items(cluster, Controller(), wanted, build, CreateTopicsResponse, split)
    if validate_only:
        return outcomes.outcomes
    in_doubt = [name for name in outcomes.refused_in_doubt(ErrorCode.TOPIC_ALREADY_EXISTS) if name not in before]
    now = await _look(cluster, in_doubt)
    return outcomes.with_done(name for name in now if _is_as_wanted(wanted[name], now[name]))


def _is_as_wanted(wanted: NewTopic, found: TopicDescription) -> bool:
    return wanted.partitions in (BROKER_DEFAULT, len(found.partitions)) and wanted.replication_factor in (
        BROKER_DEFAULT,
        found.replication_factor,
    )


async def _existing(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicDescription]:
    """Return those of the topics that exist; the same request finds the controller."""
    response = await cluster.refresh(list(names))
    return _descriptions(response, cluster)


async def _look(cluster: Cluster, names: Sequence[str]) -> dict[str, TopicDescription]:
    """Return those of the topics that the controller knows; other brokers may learn of a change later."""
    if not names:
        return {}
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )
    response = await cluster.call(Controller(), request, MetadataResponse, errors=_unsettled)
    return _descriptions(response, cluster)


def _unsettled(response: MetadataResponse) -> list[int]:
    """Return the errors, that of an unknown topic as transient: by another response the topic exists."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return [ErrorCode.LEADER_NOT_AVAILABLE if t.error_code == unknown else t.error_code for t in response.topics]


def _descriptions(response: MetadataResponse, cluster: Cluster) -> dict[str, TopicDescription]:
    known = [_description(topic, cluster.brokers) for topic in response.topics if not topic.error_code]
    return {topic.name: topic for topic in known}


async def delete_topics(cluster: Cluster, names: Sequence[str]) -> Outcomes:
    """Delete topics with all their records. A topic that does not exist is refused with UNKNOWN_TOPIC_OR_PARTITION."""
    from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

    before = await _existing(cluster, names)

    def build(pending: Mapping[str, None], timeout_ms: int) -> DeleteTopicsRequest:
        topics = [DeleteTopicState(name=name) for name in pending]
        return DeleteTopicsRequest(topics=topics, topic_names=list(pending), timeout_ms=timeout_ms)

    def split(response: DeleteTopicsResponse) -> Iterable[tuple[str, Refusal | None]]:
        return ((topic.name or "", _outcome(topic)) for topic in response.responses)

    outcomes = await send_items(cluster, Controller(), dict.fromkeys(names), build, DeleteTopicsResponse, split)
    gone = outcomes.refused_in_doubt(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return outcomes.with_done(name for name in gone if name in before)


async def delete_topics_by_id(cluster: Cluster, topic_ids: Sequence[UUID]) -> dict[UUID, Refusal | None]:
    """Delete topics by their ids, which differ when a topic is created again under the same name (KIP-516)."""
    from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

    def build(pending: Mapping[UUID, None], timeout_ms: int) -> DeleteTopicsRequest:
        topics = [DeleteTopicState(topic_id=topic_id.bytes) for topic_id in pending]
        return DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms)

    def split(response: DeleteTopicsResponse) -> Iterable[tuple[UUID, Refusal | None]]:
        return ((UUID(bytes=topic.topic_id), _outcome(topic)) for topic in response.responses)

    deleted = await send_items(
        cluster,
        Controller(),
        dict.fromkeys(topic_ids),
        build,
        DeleteTopicsResponse,
        split,
        versions=Versions(_FIRST_WITH_TOPIC_IDS, ANY_VERSION.last),
    )
    return deleted.with_done(deleted.refused_in_doubt(ErrorCode.UNKNOWN_TOPIC_ID))  # No id is used twice.


def _outcome(topic: "DeletableTopicResult") -> Refusal | None:
    return refusal(topic.error_code, topic.error_message)


async def add_partitions(cluster: Cluster, totals: Mapping[str, int]) -> Outcomes:
    """Increase the number of partitions of each topic to a new total."""
    from oncelog.protocol.messages.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreatePartitionsTopic,
    )

    before = await _existing(cluster, totals)

    def build(pending: Mapping[str, int], timeout_ms: int) -> CreatePartitionsRequest:
        topics = [CreatePartitionsTopic(name=name, count=total, assignments=None) for name, total in pending.items()]
        return CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms)

    def split(response: CreatePartitionsResponse) -> Iterable[tuple[str, Refusal | None]]:
        return ((topic.name, refusal(topic.error_code, topic.error_message)) for topic in response.results)

    outcomes = await send_items(cluster, Controller(), totals, build, CreatePartitionsResponse, split)
    in_doubt = [
        name
        for name in outcomes.refused_in_doubt(ErrorCode.INVALID_PARTITIONS)
        if name in before and len(before[name].partitions) < totals[name]
    ]
    now = await _look(cluster, in_doubt)
    return outcomes.with_done(name for name in now if len(now[name].partitions) == totals[name])


async def delete_records(cluster: Cluster, before: Mapping[TopicPartition, int]) -> PartitionResults[int]:
    """Delete the records below an offset (-1: the high watermark), and return the new start of each log."""
    from oncelog.protocol.messages.delete_records import (
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

    return await call_leaders(cluster, before, build, DeleteRecordsResponse, split)
