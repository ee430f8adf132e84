"""Partitions that refuse writes with acks=all: fewer replicas are in sync than ``min.insync.replicas``."""

from collections.abc import Collection, Mapping
from typing import Final

from oncelog.clients.connection import Connection
from oncelog.clients.errors import ClientError
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME, TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from oncelog.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition

MINIMUM_ADVICE: Final = (
    "check that the brokers that are not in sync (`oncelog topic describe TOPIC`) run and reach the leaders"
)
MINIMUM_KEY: Final = "min.insync.replicas"
_TOPIC_RESOURCE: Final = 2
_SECONDS: Final = 3.0
_MOST_TOPICS: Final = 1000
"""Topics of one request: enough to see the problem, with a response of moderate size."""
_SHOWN: Final = 3
_REFUSED_MEANWHILE: Final = {
    TRANSACTION_STATE_TOPIC_NAME: "transactions can neither begin nor end",
    GROUP_METADATA_TOPIC_NAME: "groups cannot commit offsets",
}
"""By internal topic, what clients whose transactional id or group is kept there cannot do."""


async def in_sync_minimums(
    connection: Connection, metadata: MetadataResponse, seconds: float = _SECONDS
) -> dict[str, int]:
    """Return ``min.insync.replicas`` of topics with replicas out of sync; empty if the broker does not say in time."""
    lacking = [topic.name for topic in metadata.topics if topic.name and any(map(_lacks, topic.partitions))]
    if not lacking:
        return {}
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=[MINIMUM_KEY])
            for name in sorted(lacking)[:_MOST_TOPICS]
        ]
    )
    try:
        described = await connection.send(request, DescribeConfigsResponse, timeout=min(seconds, _SECONDS))
    except ClientError:
        return {}
    return {
        result.resource_name: int(entry.value)
        for result in described.results
        for entry in result.configs
        if not result.error_code and entry.name == MINIMUM_KEY and entry.value and entry.value.isdecimal()
    }


def about_excess(minimum: str | None, factors: Mapping[str, int]) -> str | None:
    """Return what a ``min.insync.replicas`` above the replication factor of topics means; None if it is above none."""
    if minimum is None or not minimum.isdecimal():
        return None
    excessive = {topic: factor for topic, factor in sorted(factors.items()) if factor < int(minimum)}
    if not excessive:
        return None
    topics = ", ".join(f"{topic} ({factor})" for topic, factor in list(excessive.items())[:_SHOWN])
    more = f" and {len(excessive) - _SHOWN} more" if len(excessive) > _SHOWN else ""
    return (
        f"{MINIMUM_KEY}={minimum} is above the replication factor of {topics}{more}: it acts as that number, so that "
        "writes with acks=all are refused while any replica is out of sync"
    )


def about_minimum(metadata: MetadataResponse, minimums: Mapping[str, int], alive: Collection[int]) -> str | None:
    """Return what it means for clients, which partitions are meant, and which brokers are away; None if none are.

    ``alive`` are the brokers that the cluster knows. Partitions without a leader are another matter.
    """
    refusing = {
        (topic.name or "", partition.partition_index): partition
        for topic in metadata.topics
        for partition in topic.partitions
        if partition.leader_id in alive
        and _lacks(partition)
        and len(partition.isr_nodes) < minimums.get(topic.name or "", 0)
    }
    if not refusing:
        return None
    names = [f"{topic}-{index}" for topic, index in sorted(refusing)]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    have = "1 partition has" if len(names) == 1 else f"{len(names)} partitions have"
    away = sorted({node for partition in refusing.values() for node in partition.replica_nodes} - set(alive))
    ids = ", ".join(map(str, away))
    gone = f"; not in the cluster: broker{'' if len(away) == 1 else 's'} {ids}, to be started first" if away else ""
    topics = {topic for topic, _ in refusing}
    effects = "".join(f", {effect}" for topic, effect in _REFUSED_MEANWHILE.items() if topic in topics)
    return (
        f"{have} fewer replicas in sync than {MINIMUM_KEY}: writes with acks=all are refused "
        f"({', '.join(names[:_SHOWN])}{more}){effects}{gone}"
    )


def _lacks(partition: MetadataResponsePartition) -> bool:
    return len(partition.isr_nodes) < len(partition.replica_nodes)
