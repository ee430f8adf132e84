"""Configurations of topics and brokers: describe with the source of each value, change entries, replace them all."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import TypeAlias

from oncelog.clients.admin.item_requests import send_items
from oncelog.clients.admin.named_brokers import require_broker
from oncelog.clients.checked_fields import checked_fields
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal, refusal
from oncelog.clients.routes import AnyBroker, Controller, Node, Route
from oncelog.protocol.config_source import ConfigSource
from oncelog.protocol.messages import alter_configs as legacy
from oncelog.protocol.messages import incremental_alter_configs as incremental
from oncelog.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from oncelog.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_Altered: TypeAlias = legacy.AlterConfigsResourceResponse | incremental.AlterConfigsResourceResponse


class ResourceType(IntEnum):
    """The kinds of resources that have a configuration."""

    TOPIC = 2
    BROKER = 4


class Operation(IntEnum):
    """The change to an entry."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@checked_fields()
@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A topic by its name, or a broker by its id; a broker without a name stands for all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name}" if self.name else "all brokers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A setting with its value; a sensitive setting has none."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    documentation: str | None


@checked_fields()
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


async def describe_config(
    cluster: Cluster, resource: Resource, keys: Sequence[str] | None = None, *, documentation: bool = False
) -> list[ConfigEntry]:
    """Return the entries of a resource, by name. Raises ``BrokerRefused``."""
    described = (await describe_configs(cluster, {resource: keys}, documentation=documentation))[resource]
    if isinstance(described, Refusal):
        raise described.as_error(str(resource))
    return described


async def describe_configs(
    cluster: Cluster, wanted: Mapping[Resource, Sequence[str] | None], *, documentation: bool = False
) -> dict[Resource, list[ConfigEntry] | Refusal]:
    """Return the named entries of each resource, or for None all of its entries."""
    described: dict[Resource, list[ConfigEntry] | Refusal] = {}
    for route, resources in (await _by_route(cluster, wanted, AnyBroker())).items():
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configuration_keys=None if (keys := wanted[resource]) is None else list(keys),
                )
                for resource in resources
            ],
            include_documentation=documentation,
        )
        response = await cluster.call(
            route, request, DescribeConfigsResponse, errors=lambda r: [result.error_code for result in r.results]
        )
        described |= {_resource(result): _entries(result) for result in response.results}
    return described


async def alter_configs(
    cluster: Cluster, changes: Mapping[Resource, Sequence[ConfigChange]], *, validate_only: bool = False
) -> dict[Resource, Refusal | None]:
    """Change entries of resources, each resource as a whole or not at all (IncrementalAlterConfigs, KIP-339)."""
    outcomes: dict[Resource, Refusal | None] = {}
    for route, resources in (await _by_route(cluster, changes, Controller())).items():
        some = {resource: changes[resource] for resource in resources}
        build = partial(_incremental_request, validate_only)
        outcomes |= (await send_items(cluster, route, some, build, IncrementalAlterConfigsResponse, _altered)).outcomes
    return outcomes


def _incremental_request(
    validate_only: bool, changes: Mapping[Resource, Sequence[ConfigChange]], _: int
) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[
                    incremental.AlterableConfig(name=change.name, config_operation=change.operation, value=change.value)
                    for change in of_resource
                ],
            )
            for resource, of_resource in changes.items()
        ],
        validate_only=validate_only,
    )


async def replace_configs(
    cluster: Cluster, configs: Mapping[Resource, Mapping[str, str]], *, validate_only: bool = False
) -> dict[Resource, Refusal | None]:
    """Replace the entries of each resource: all others return to their defaults (legacy AlterConfigs).

    A concurrent change of another client is lost. ``alter_configs`` changes single entries, without that risk.
    """
    outcomes: dict[Resource, Refusal | None] = {}
    for route, resources in (await _by_route(cluster, configs, Controller())).items():
        some = {resource: configs[resource] for resource in resources}
        build = partial(_replacing_request, validate_only)
        outcomes |= (await send_items(cluster, route, some, build, AlterConfigsResponse, _altered)).outcomes
    return outcomes


def _replacing_request(
    validate_only: bool, configs: Mapping[Resource, Mapping[str, str]], _: int
) -> AlterConfigsRequest:
    return AlterConfigsRequest(
        resources=[
            legacy.AlterConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[legacy.AlterableConfig(name=name, value=value) for name, value in of_resource.items()],
            )
            for resource, of_resource in configs.items()
        ],
        validate_only=validate_only,
    )


async def _by_route(cluster: Cluster, resources: Iterable[Resource], elsewhere: Route) -> dict[Route, list[Resource]]:
    """Group resources by route: a broker is the route of its own settings. Raises ``BrokerAbsent``."""
    routes: dict[Route, list[Resource]] = {}
    for resource in resources:
        is_one_broker = resource.type is ResourceType.BROKER and resource.name
        routes.setdefault(Node(int(resource.name)) if is_one_broker else elsewhere, []).append(resource)
    for route in routes:
        if isinstance(route, Node):
            await require_broker(cluster, route.node_id)
    return routes


def _resource(result: DescribeConfigsResult | _Altered) -> Resource:
    return Resource(type=ResourceType(result.resource_type), name=result.resource_name)


def _altered(
    response: AlterConfigsResponse | IncrementalAlterConfigsResponse,
) -> Iterable[tuple[Resource, Refusal | None]]:
    return ((_resource(each), refusal(each.error_code, each.error_message)) for each in response.responses)


def _entries(result: DescribeConfigsResult) -> list[ConfigEntry] | Refusal:
    refused = refusal(result.error_code, result.error_message)
    if refused is not None:
        return refused
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
