"""What is warned of when settings of topics are set: they are valid, and do not do what their value says."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from oncelog.clients.admin.configs import ConfigChange, Operation, Resource, ResourceType, describe_config
from oncelog.clients.admin.topics import describe_topics
from oncelog.clients.cli.election_settings import STRATEGY_KEY
from oncelog.clients.cli.in_sync_minimum import MINIMUM_KEY, about_excess
from oncelog.clients.cli.recovery_overrides import LEVEL_ZERO, recovery_level
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import ClientError, Refusal

_FACTOR_KEY: Final = "default.replication.factor"


def values_set(changes: Iterable[ConfigChange]) -> dict[str, str]:
    """Return the values that changes set."""
    return {each.name: each.value or "" for each in changes if each.operation is Operation.SET}


async def warnings_of_change(cluster: Cluster, topics: Collection[str], values: Mapping[str, str]) -> list[str]:
    """Return what to warn of when values are set for topics that exist."""
    described = await describe_topics(cluster, sorted(topics)) if MINIMUM_KEY in values else {}
    factors = {name: each.replication_factor for name, each in described.items() if not isinstance(each, Refusal)}
    return await _warnings(cluster, factors, values)


async def warnings_of_creation(
    cluster: Cluster, topics: Iterable[str], replication_factor: int | None, values: Mapping[str, str]
) -> list[str]:
    """Return what to warn of when topics are created with values; without a factor they have that of the brokers."""
    factor = replication_factor
    if factor is None and MINIMUM_KEY in values:
        factor = await _default_factor(cluster)
    return await _warnings(cluster, {} if factor is None else dict.fromkeys(topics, factor), values)


async def _warnings(cluster: Cluster, factors: Mapping[str, int], values: Mapping[str, str]) -> list[str]:
    excess = about_excess(values.get(MINIMUM_KEY), factors)
    warnings = [excess] if excess else []
    if STRATEGY_KEY in values and await recovery_level(cluster) == 0:
        warnings.append(LEVEL_ZERO)
    return warnings


async def _default_factor(cluster: Cluster) -> int | None:
    """Return the replication factor of topics that are created without one; None if it is not known."""
    broker_id = cluster.metadata.controller_id
    if broker_id is None:
        return None
    try:
        entries = await describe_config(cluster, Resource(type=ResourceType.BROKER, name=str(broker_id)))
    except ClientError:
        return None
    value = next((entry.value for entry in entries if entry.name == _FACTOR_KEY), None)
    return int(value) if value is not None and value.isdecimal() else None
