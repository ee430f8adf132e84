"""Configurations of topics and brokers: describe with the source of each value, change single entries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from clients.cluster import AnyBroker, Cluster, Controller, Node, Route
from clients.errors import Refusal, refusal, require_success
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class ResourceType(IntEnum):
    """What has a configuration."""

    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """Where a value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class Operation(IntEnum):
    """What to do with an entry."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A topic by its name, or a broker by its id."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A setting with its value; a sensitive one has none."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    documentation: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """An operation on one entry; ``DELETE`` needs no value."""

    name: str
    operation: Operation
    value: str | None = None


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN


def _describing_route(resource: Resource) -> Route:
    """Only a broker itself knows its static settings."""
    return Node(int(resource.name)) if resource.type is ResourceType.BROKER else AnyBroker()


async def describe_config(
    cluster: Cluster, resource: Resource, keys: Sequence[str] | None = None, *, documentation: bool = False
) -> list[ConfigEntry]:
    """The entries of a resource, by name. Raises ``BrokerRefused``."""
    wanted = DescribeConfigsResource(
        resource_type=resource.type,
        resource_name=resource.name,
        configuration_keys=None if keys is None else list(keys),
    )
    request = DescribeConfigsRequest(resources=[wanted], include_documentation=documentation)
    response = await cluster.call(
        _describing_route(resource),
        request,
        DescribeConfigsResponse,
        errors=lambda r: [result.error_code for result in r.results],
    )
    result = response.results[0]
    require_success(str(resource), result.error_code, result.error_message)
    entries = [
        ConfigEntry(
            name=entry.name,
            value=entry.value,
            source=_source(entry.config_source),
            is_read_only=entry.read_only,
            documentation=entry.documentation or None,
        )
        for entry in result.configs
    ]
    return sorted(entries, key=lambda entry: entry.name)


async def alter_configs(
    cluster: Cluster, changes: Mapping[Resource, Sequence[ConfigChange]], *, validate_only: bool = False
) -> dict[Resource, Refusal | None]:
    """Change entries of resources, each resource as a whole or not at all."""
    resources = [
        AlterConfigsResource(
            resource_type=resource.type,
            resource_name=resource.name,
            configs=[
                AlterableConfig(name=change.name, config_operation=change.operation, value=change.value)
                for change in entries
            ],
        )
        for resource, entries in changes.items()
    ]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    response = await cluster.call(
        Controller(),
        request,
        IncrementalAlterConfigsResponse,
        errors=lambda r: [result.error_code for result in r.responses],
    )
    return {
        Resource(type=ResourceType(result.resource_type), name=result.resource_name): refusal(
            result.error_code, result.error_message
        )
        for result in response.responses
    }
