"""DescribeConfigs (API key 32): the settings of topics, of this broker, and of all brokers.

A broker answers for itself and for topics, from memory; for another broker, ask that one. Without keys, all settings
are described. A resource that is named again is not described again: an answer would be thousands of times as large as
its request.

Versions: 1 says where a value comes from and, on request, what stands behind it; 3 adds types and, on request,
documentation; 4 is flexible.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.config_description import ConfigDescription, ConfigEntry
from broker.config_requests import resource_of, why_not_allowed
from broker.dispatch import Outcome, RequestContext, handles
from broker.security.authorizer import Operation
from coordinator.controller.api_error import ApiError
from coordinator.controller.config_changes import ConfigResource, ResourceType
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from broker.server import Broker


def refuse_describe_configs(request: DescribeConfigsRequest, version: int, error: ErrorCode) -> DescribeConfigsResponse:
    """The error for every resource."""
    return DescribeConfigsResponse(results=[_refused(asked, ApiError(error)) for asked in request.resources])


@handles(ApiKey.DESCRIBE_CONFIGS, versions="1-4", error_response=refuse_describe_configs)
def handle_describe_configs(broker: "Broker", context: RequestContext, request: DescribeConfigsRequest) -> Outcome:
    resources: dict[tuple[int, str], DescribeConfigsResource] = {}
    for asked in request.resources:
        resources.setdefault((asked.resource_type, asked.resource_name), asked)
    return DescribeConfigsResponse(results=[_describe(broker, context, request, asked) for asked in resources.values()])


def _describe(
    broker: "Broker", context: RequestContext, request: DescribeConfigsRequest, asked: DescribeConfigsResource
) -> DescribeConfigsResult:
    resource_type, name = asked.resource_type, asked.resource_name
    refused = why_not_allowed(broker, context, Operation.DESCRIBE_CONFIGS, resource_type, name)
    if refused is not None:
        return _refused(asked, refused)
    resource = resource_of(broker, resource_type, name)
    if isinstance(resource, ApiError):
        return _refused(asked, resource)
    wanted = asked.configuration_keys
    configs = [_config(entry, request) for entry in _entries(broker, resource) if not wanted or entry.key in wanted]
    return DescribeConfigsResult(error_message=None, resource_type=resource_type, resource_name=name, configs=configs)


def _entries(broker: "Broker", resource: ConfigResource) -> Iterator[ConfigEntry]:
    description = ConfigDescription(broker)
    if resource.type is ResourceType.TOPIC:
        return description.topic(broker.configs.topic_overrides(resource.name))
    return description.broker() if resource.name else description.all_brokers()


def _config(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.key,
        value=None if entry.is_sensitive else entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=each.key, value=each.value, source=each.source) for each in synonyms],
        config_type=entry.setting.kind,
        documentation=entry.setting.doc if request.include_documentation else None,
    )


def _refused(asked: DescribeConfigsResource, error: ApiError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )
