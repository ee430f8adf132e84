"""How the controller finds leaders for partitions that wait, and which setting makes the longest known log lead soon.

Two settings can, ``unclean.recovery.strategy`` and ``unclean.leader.election.enable``, of a topic or of the brokers.
What undoes it depends on which of them it is and where it is set.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.clients.admin.topic_pages import RecoveryDescription
from oncelog.clients.cli.topic_arguments import topic_arguments
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import ClientError
from oncelog.clients.timely_connection import connection_within
from oncelog.protocol.config_source import ConfigSource
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)

STRATEGY_KEY: Final = "unclean.recovery.strategy"
UNCLEAN_KEY: Final = "unclean.leader.election.enable"
LONGEST_LOG: Final = "longest_log"
_TRUE: Final = "true"
_TOPIC_RESOURCE: Final = 2
_SECONDS: Final = 3.0
_MOST_TOPICS: Final = 1000


class SettingInForce(NamedTuple):
    """A setting that makes the longest known log lead soon, and where it is set."""

    key: str
    value: str
    source: ConfigSource
    broker_id: int
    """The controller. Its settings count."""

    @property
    def place(self) -> str:
        """The words for where it is set."""
        match self.source:
            case ConfigSource.DYNAMIC_TOPIC_CONFIG:
                return "of the topic"
            case ConfigSource.DYNAMIC_BROKER_CONFIG:
                return f"of broker {self.broker_id}, the controller"
            case ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG:
                return "of all brokers"
            case _:
                return f"that broker {self.broker_id}, the controller, was started with"

    def undo(self, topics: list[str]) -> str:
        """Return the command that removes it, given the topics that it is in force for."""
        match self.source:
            case ConfigSource.DYNAMIC_TOPIC_CONFIG:
                return f"oncelog topic alter-config {topic_arguments(topics)} --delete {self.key}"
            case ConfigSource.DYNAMIC_BROKER_CONFIG:
                return f"oncelog config alter broker {self.broker_id} --delete {self.key}"
            case ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG:
                return f"oncelog config alter broker --default --delete {self.key}"
            case _:
                return f"start the brokers without {self.key} (--set, server.properties, environment)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSettings:
    """How the controller elects a replica that may lack acknowledged records."""

    compares_logs: bool = False
    """Whether it compares logs first, as at level 1 of the feature."""
    in_force: Mapping[str, SettingInForce] = field(default_factory=dict)
    """By topic, what makes the longest known log lead soon, where that is known."""


async def election_settings(
    cluster: Cluster, level: int | None, recoveries: Iterable[tuple[str, RecoveryDescription | None]]
) -> ElectionSettings:
    """Return the settings for partitions without a leader, given by topic; ``level`` is that of the feature."""
    topics = {name for name, recovery in recoveries if recovery is not None and recovery.strategy == LONGEST_LOG}
    return ElectionSettings(compares_logs=bool(level), in_force=await _in_force(cluster, sorted(topics)))


async def _in_force(cluster: Cluster, topics: list[str]) -> dict[str, SettingInForce]:
    """Return what is in force by topic, as the controller says; empty if it does not say."""
    controller_id = cluster.metadata.controller_id
    if not topics or controller_id is None:
        return {}
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=[STRATEGY_KEY, UNCLEAN_KEY]
            )
            for name in topics[:_MOST_TOPICS]
        ]
    )
    try:
        connection = await connection_within(cluster, controller_id, _SECONDS)
        described = await connection.send(request, DescribeConfigsResponse, timeout=_SECONDS)
    except ClientError:
        return {}
    found = {
        result.resource_name: setting_in_force(result.configs, controller_id)
        for result in described.results
        if not result.error_code
    }
    return {topic: setting for topic, setting in found.items() if setting is not None}


def setting_in_force(entries: Iterable[DescribeConfigsResourceResult], broker_id: int) -> SettingInForce | None:
    """Return which setting of a topic makes the longest log lead; None if none does.

    A topic's settings go before those of the brokers, and the strategy before the older setting in the same place.
    """
    by_key = {entry.name: entry for entry in entries}
    candidates = [
        SettingInForce(key, value, ConfigSource(by_key[key].config_source), broker_id)
        for key, value in ((STRATEGY_KEY, LONGEST_LOG), (UNCLEAN_KEY, _TRUE))
        if key in by_key and by_key[key].value == value
    ]
    return min(candidates, key=lambda each: each.source is not ConfigSource.DYNAMIC_TOPIC_CONFIG, default=None)
