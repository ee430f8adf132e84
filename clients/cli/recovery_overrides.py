"""Topics with settings of their own that say which replica leads when none certainly has everything.

They are set for a partition that waits, and easily forgotten. They matter again when replicas are out of sync.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from oncelog.clients import VERSION
from oncelog.clients.cli.election_settings import LONGEST_LOG, STRATEGY_KEY, UNCLEAN_KEY
from oncelog.clients.cli.topic_arguments import left_out, topic_arguments
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import ClientError
from oncelog.protocol.config_source import ConfigSource
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from oncelog.protocol.messages.metadata import MetadataResponse

LEVEL_ZERO: Final = (
    f"{STRATEGY_KEY} has no effect: eligible.leader.replicas.version is at level 0; "
    "`oncelog feature upgrade eligible.leader.replicas.version 1`, once all brokers support it"
)
_FEATURE: Final = "eligible.leader.replicas.version"
_MEANINGS: Final[Mapping[tuple[str, str], str]] = {
    (STRATEGY_KEY, LONGEST_LOG): "if the in-sync replicas fail, one that lacks acknowledged records may soon lead",
    (STRATEGY_KEY, "none"): "if the in-sync replicas lose records, the last leader leads without a comparison of logs",
    (UNCLEAN_KEY, "true"): "if the in-sync replicas fail, one that lacks acknowledged records may soon lead",
}
"""Of values other than the defaults."""
_API_VERSIONS: Final = ApiVersionsRequest(client_software_name="oncelog", client_software_version=VERSION)
_TOPIC_RESOURCE: Final = 2
_SECONDS: Final = 3.0
_MOST_TOPICS: Final = 1000
_SHOWN: Final = 3

Overrides = Mapping[str, Mapping[str, str]]
"""By topic, its own values of these settings."""


async def recovery_overrides(cluster: Cluster, metadata: MetadataResponse) -> Overrides:
    """Return the settings of topics with replicas out of sync; empty if the broker does not say."""
    lacking = sorted(
        topic.name
        for topic in metadata.topics
        if topic.name and any(len(each.isr_nodes) < len(each.replica_nodes) for each in topic.partitions)
    )
    if not lacking:
        return {}
    resources = [
        DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=[STRATEGY_KEY, UNCLEAN_KEY]
        )
        for name in lacking[:_MOST_TOPICS]
    ]
    try:
        connection = await cluster.connection_to_any()
        described = await connection.send(
            DescribeConfigsRequest(resources=resources), DescribeConfigsResponse, timeout=_SECONDS
        )
    except ClientError:
        return {}
    return {
        result.resource_name: {
            entry.name: entry.value or ""
            for entry in result.configs
            if entry.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
        }
        for result in described.results
        if not result.error_code
    }


async def recovery_level(cluster: Cluster) -> int | None:
    """Return the level of the feature with which the strategy takes effect; None where no broker knows the feature."""
    try:
        connection = await cluster.connection_to_any()
        versions = await connection.send(_API_VERSIONS, ApiVersionsResponse, timeout=_SECONDS)
    except ClientError:
        return None
    if all(each.name != _FEATURE for each in versions.supported_features):
        return None
    return next((each.max_version_level for each in versions.finalized_features if each.name == _FEATURE), 0)


def about_overrides(overrides: Overrides, *, without_strategy: bool = False) -> list[str]:
    """Return a sentence, with advice, for each setting that topics have: what it means, or that it has no effect."""
    topics: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for topic, values in sorted(overrides.items()):
        for setting in values.items():
            if setting in _MEANINGS or (without_strategy and setting[0] == STRATEGY_KEY):
                topics[setting].append(topic)
    return [_sentence(*setting, names, without_strategy) for setting, names in sorted(topics.items())]


def _sentence(key: str, value: str, topics: list[str], without_strategy: bool) -> str:
    more = f" and {len(topics) - _SHOWN} more" if len(topics) > _SHOWN else ""
    said = f"{key}={value} is set for {', '.join(topics[:_SHOWN])}{more}"
    if without_strategy and key == STRATEGY_KEY:
        return f"{said}; {LEVEL_ZERO}"
    undo = f"`oncelog topic alter-config {topic_arguments(topics)} --delete {key}`"
    rest = left_out(topics)
    return f"{said}: {_MEANINGS[key, value]}; when all replicas are in sync again: {undo}{f', {rest}' if rest else ''}"
