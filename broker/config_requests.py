"""What the requests about configurations have in common: which resources they may be about, and who may ask.

AlterConfigs and IncrementalAlterConfigs differ only in what their operations mean.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.dispatch import RequestContext
from broker.security.authorizer import CLUSTER_NAME, Operation
from broker.security.authorizer import ResourceType as AclResourceType
from coordinator.controller import topic_name
from coordinator.controller.api_error import ApiError
from coordinator.controller.config_changes import ConfigAlteration, ConfigOperation, ConfigResource, ResourceType
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.server import Broker


class RequestedAlteration(NamedTuple):
    """One resource of a request that alters configurations. The operations may already be known to make no sense."""

    resource_type: int
    resource_name: str
    operations: tuple[ConfigOperation, ...] | ApiError
    replaces_all: bool


def why_not_allowed(
    broker: "Broker", context: RequestContext, operation: Operation, resource_type: int, name: str
) -> ApiError | None:
    """Why the client must not do this to the configuration of the resource, or None."""
    if resource_type == ResourceType.TOPIC:
        if not broker.authorizer.authorize(context, operation, AclResourceType.TOPIC, name):
            return ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    elif not broker.authorizer.authorize(context, operation, AclResourceType.CLUSTER, CLUSTER_NAME):
        return ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    return None


def resource_of(broker: "Broker", resource_type: int, name: str) -> ConfigResource | ApiError:
    """The resource, if it is one whose configuration this broker knows: an existing topic, itself, or all brokers."""
    if resource_type == ResourceType.TOPIC:
        reason = topic_name.why_invalid(name)
        if reason is not None:
            return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
        if not broker.metadata.topic_exists(name):
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return ConfigResource(ResourceType.TOPIC, name)
    if resource_type != ResourceType.BROKER:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Resource type {resource_type} has no configuration here.")
    if name and not name.isdecimal():
        return ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if name and int(name) != broker.broker_id:
        return ApiError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker.broker_id}, but received {name}"
        )
    return ConfigResource(ResourceType.BROKER, name)


async def alter(
    broker: "Broker", context: RequestContext, requested: Sequence[RequestedAlteration], *, validate_only: bool
) -> list[ApiError]:
    """Do what may be done; the errors are in the order of the request."""
    checked = [_alteration(broker, context, each) for each in requested]
    named = [(each.resource_type, each.resource_name) for each in requested]
    for index, each in enumerate(named):
        if named.count(each) > 1:
            checked[index] = ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    alterations = [each for each in checked if isinstance(each, ConfigAlteration)]
    results = iter(await broker.configs.alter(alterations, validate_only=validate_only))
    return [next(results) if isinstance(each, ConfigAlteration) else each for each in checked]


def _alteration(
    broker: "Broker", context: RequestContext, requested: RequestedAlteration
) -> ConfigAlteration | ApiError:
    resource_type, name, operations, replaces_all = requested
    refused = why_not_allowed(broker, context, Operation.ALTER_CONFIGS, resource_type, name)
    if refused is not None:
        return refused
    if resource_type == ResourceType.TOPIC and not name:
        return ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    resource = resource_of(broker, resource_type, name)
    if isinstance(resource, ApiError):
        return resource
    if isinstance(operations, ApiError):
        return operations
    return ConfigAlteration(resource=resource, operations=operations, replaces_all=replaces_all)
