"""The partitions that a command names by topic and index, which have to be there. Pure."""

from collections.abc import Collection
from typing import Final

from oncelog.clients.errors import BrokerRefused, Refusal, error_code
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.metadata import MetadataResponseTopic
from oncelog.protocol.topic_partition import TopicPartition

HAS_OTHERS: Final = "it has"
"""How a refusal of a partition goes on whose topic is there."""


def named_partitions(name: str, topic: MetadataResponseTopic, indexes: Collection[int]) -> list[TopicPartition]:
    """Return those partitions of a topic, all of them without indexes. Raises ``BrokerRefused`` if one is not there."""
    if topic.error_code:
        raise BrokerRefused(f"topic {name}", Refusal(error=error_code(topic.error_code)))
    there = sorted(partition.partition_index for partition in topic.partitions)
    missing = sorted(set(indexes).difference(there))
    if missing:
        range_of = f"partition {there[0]} only" if len(there) == 1 else f"partitions {there[0]} to {there[-1]}"
        refused = Refusal(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message=f"{HAS_OTHERS} {range_of}")
        raise BrokerRefused(f"partition {missing[0]} of topic {name}", refused)
    return [TopicPartition(name, index) for index in indexes or there]
