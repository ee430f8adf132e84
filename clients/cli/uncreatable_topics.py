"""Internal topics that cannot be created: their replication factor is above the number of brokers.

A broker creates one when the first client needs a coordinator. Until then only its settings show that it will fail.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog.clients.cli.absent_brokers import absent_brokers, name_brokers
from oncelog.clients.connection import Connection
from oncelog.clients.errors import ClientError
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME, TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from oncelog.protocol.messages.metadata import MetadataResponse

_BROKER_RESOURCE: Final = 4
_SECONDS: Final = 3.0


class _InternalTopic(NamedTuple):
    name: str
    key: str
    """The setting of its replication factor."""
    users: str


_TOPICS: Final = (
    _InternalTopic(GROUP_METADATA_TOPIC_NAME, "offsets.topic.replication.factor", "consumer groups"),
    _InternalTopic(TRANSACTION_STATE_TOPIC_NAME, "transaction.state.log.replication.factor", "transactions"),
)


async def replication_factors(connection: Connection, broker_id: int, metadata: MetadataResponse) -> dict[str, int]:
    """Return the settings of the broker on the connection for internal topics that do not exist; empty if unknown."""
    keys = [topic.key for topic in _missing(metadata)]
    if not keys:
        return {}
    resource = DescribeConfigsResource(
        resource_type=_BROKER_RESOURCE, resource_name=str(broker_id), configuration_keys=keys
    )
    try:
        described = await connection.send(
            DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, timeout=_SECONDS
        )
    except ClientError:
        return {}
    return {
        entry.name: int(entry.value)
        for result in described.results
        for entry in result.configs
        if not result.error_code and entry.value and entry.value.isdecimal()
    }


def about_uncreatable_topics(metadata: MetadataResponse, factors: Mapping[str, int]) -> tuple[str, ...]:
    """Return a sentence for each internal topic that does not exist and needs more brokers than there are."""
    count = len(metadata.brokers)
    brokers = "1 broker" if count == 1 else f"{count} brokers"
    return tuple(
        f"{topic.name} cannot be created, so {topic.users} cannot be used: {topic.key} is {factors[topic.key]}, "
        f"and the cluster has {brokers}; {_advice(metadata, factors[topic.key])}"
        for topic in _missing(metadata)
        if factors.get(topic.key, 0) > count
    )


def _advice(metadata: MetadataResponse, factor: int) -> str:
    """Return to start the brokers that are away, as far as replicas show which; the setting is right then."""
    present = {broker.node_id for broker in metadata.brokers}
    away = absent_brokers(metadata, present)
    if not away:
        return "start more brokers, or lower this setting on all of them and restart them"
    start = f"start {name_brokers(away)}"
    return start if len(present) + len(away) >= factor else f"{start}, and more brokers"


def _missing(metadata: MetadataResponse) -> list[_InternalTopic]:
    existing = {topic.name for topic in metadata.topics}
    return [topic for topic in _TOPICS if topic.name not in existing]
