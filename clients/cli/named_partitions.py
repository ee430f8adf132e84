"""The partitions that a command names by topic and index, which have to exist."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerRefused, ClientError, Refusal, error_code
from oncelog.clients.timely_connection import connection_within
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from oncelog.protocol.topic_partition import TopicPartition

_CONTROLLER_SECONDS: Final = 0.5
HAS_OTHERS: Final = "it has"
"""How a refusal of a partition goes on whose topic exists."""
NOT_CREATED: Final = "it does not exist, and the brokers do not create it (auto.create.topics.enable=false)"
"""The message about a missing topic that brokers were permitted to create."""


async def find_partitions(
    cluster: Cluster, wanted: Mapping[str, Collection[int]], *, create: bool = False
) -> list[TopicPartition]:
    """Return the partitions of topics, all of them for a topic without indexes.

    Raises ``BrokerRefused`` if a topic or a partition does not exist. With ``create`` brokers may create topics.
    """
    found: list[TopicPartition] = []
    for name, topic in (await cluster.topics(wanted, create=create)).items():
        if create and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise BrokerRefused(
                f"topic {name}", Refusal(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message=NOT_CREATED)
            )
        found += named_partitions(name, topic, wanted[name])
    return found


async def is_missing(cluster: Cluster, topic: str) -> bool:
    """Return whether a topic does not exist, by a broker and by the controller if that is reached at once.

    Other brokers may learn of a new topic later than the controller.
    """
    topics = (await cluster.refresh([topic])).topics
    controller_id = cluster.metadata.controller_id
    if not _is_unknown(topics) or controller_id is None:
        return _is_unknown(topics)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    try:
        controller = await connection_within(cluster, controller_id, _CONTROLLER_SECONDS)
        topics = (await controller.send(request, MetadataResponse, timeout=_CONTROLLER_SECONDS)).topics
    except ClientError:
        pass  # What follows says why, if it matters.
    return _is_unknown(topics)


def _is_unknown(topics: Iterable[MetadataResponseTopic]) -> bool:
    return any(each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in topics)


def named_partitions(name: str, topic: MetadataResponseTopic, indexes: Collection[int]) -> list[TopicPartition]:
    """Return those partitions of a topic, all of them without indexes. Raises ``BrokerRefused`` if one is missing."""
    if topic.error_code:
        raise BrokerRefused(f"topic {name}", Refusal(error=error_code(topic.error_code)))
    there = sorted(partition.partition_index for partition in topic.partitions)
    missing = sorted(set(indexes).difference(there))
    if missing:
        range_of = f"partition {there[0]} only" if len(there) == 1 else f"partitions {there[0]} to {there[-1]}"
        refused = Refusal(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message=f"{HAS_OTHERS} {range_of}")
        raise BrokerRefused(f"partition {missing[0]} of topic {name}", refused)
    return [TopicPartition(name, index) for index in indexes or there]
