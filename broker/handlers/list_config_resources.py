"""ListConfigResources (API key 74): the resources that have a configuration (KIP-1142).

Topics and brokers are listed whether or not something is set for them; groups and client metrics subscriptions only if
something is. Before KIP-1142 the API was ListClientMetricsResources.

Versions: 0 lists client metrics subscriptions; 1 those of the requested types, or all.
"""

from collections.abc import Iterable
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation
from oncelog.broker.security.authorizer import ResourceType as AclResourceType
from oncelog.coordinator.controller.config_changes import ResourceType
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_LISTED: Final = (
    (ResourceType.CLIENT_METRICS,),
    (
        ResourceType.TOPIC,
        ResourceType.BROKER,
        ResourceType.BROKER_LOGGER,
        ResourceType.CLIENT_METRICS,
        ResourceType.GROUP,
    ),
)
"""By version."""


@handles(ApiKey.LIST_CONFIG_RESOURCES, versions="0-1")
def handle_list_config_resources(
    broker: Broker, context: RequestContext, request: ListConfigResourcesRequest
) -> Outcome:
    allowed = broker.authorizer.authorize(context, Operation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER, CLUSTER_NAME)
    if not allowed:
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    supported = _LISTED[context.api_version]
    wanted = frozenset(request.resource_types)
    if not wanted <= frozenset(supported):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in supported
            if not wanted or resource_type in wanted
            for name in _names(broker, resource_type)
        ]
    )


def _names(broker: Broker, resource_type: ResourceType) -> Iterable[str]:
    match resource_type:
        case ResourceType.TOPIC:
            return sorted(broker.metadata.image.topics)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return map(str, sorted(broker.metadata.image.brokers))
        case _:
            return broker.configs.overridden(resource_type)
