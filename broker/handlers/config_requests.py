"""What the requests about configurations have in common: their resources, and which clients may send them.

AlterConfigs and IncrementalAlterConfigs differ only in what their operations mean, and in that only the latter knows
the levels of a broker's loggers (BROKER_LOGGER), which are altered here and now and kept nowhere.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from oncelog.broker.config.resource_settings import LONGEST_NAME
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, in_slices, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.process.log_levels import alter_levels
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation
from oncelog.broker.security.authorizer import ResourceType as AclResourceType
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.config_changes import (
    ConfigAlteration,
    ConfigOperation,
    ConfigResource,
    OperationType,
    ResourceType,
    why_malformed,
)
from oncelog.coordinator.controller.in_sync_minimums import MINIMUM_KEY
from oncelog.coordinator.metadata_store.session_health import WITHOUT_ZOOKEEPER, SessionState
from oncelog.protocol import topic_name
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.record_walk import WorkBudget

_BROKER_ID: Final = re.compile("0|[1-9][0-9]{0,9}")
"""As a resource is named: ``01`` would be another one in the metadata store."""
_NAMED_AGAIN: Final = ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")

_UNITS_PER_RESOURCE: Final = 4
_SHARE_OF_TIMEOUT: Final = 1 / 3
"""Of ``request.timeout.ms``, for the alterations of a request, which has no time-out of its own."""
_NAMES_OF_RESOURCES: Final = {
    ResourceType.CLIENT_METRICS: "Client metrics subscription",
    ResourceType.GROUP: "Group",
}
_MIN_IN_SYNC_OF_ONE_BROKER: Final = ApiError(
    ErrorCode.INVALID_CONFIG,
    f"Broker-level {MINIMUM_KEY} cannot be altered while eligible leader replicas are kept: a partition must have the "
    "same minimum whichever broker leads it. Set it for all brokers, or for topics.",
)
_NO_STORE: Final = ApiError(ErrorCode.REQUEST_TIMED_OUT, f"The metadata store does not respond: {WITHOUT_ZOOKEEPER}.")


class RequestedAlteration(NamedTuple):
    """One resource of a request that alters configurations. The operations may already be known to make no sense."""

    resource_type: int
    resource_name: str
    operations: tuple[ConfigOperation, ...] | ApiError
    replaces_all: bool


def why_not_allowed(
    broker: Broker, context: RequestContext, operation: Operation, resource_type: int, name: str
) -> ApiError | None:
    """Return why the client must not do this to the configuration of the resource, or None."""
    if resource_type == ResourceType.TOPIC:
        if not broker.authorizer.authorize(context, operation, AclResourceType.TOPIC, name):
            return ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    elif resource_type == ResourceType.GROUP:
        if not broker.authorizer.authorize(context, operation, AclResourceType.GROUP, name):
            return ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    elif not broker.authorizer.authorize(context, operation, AclResourceType.CLUSTER, CLUSTER_NAME):
        return ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    return None


def resource_of(broker: Broker, resource_type: int, name: str) -> ConfigResource | ApiError:
    """Return the resource, if this broker knows its configuration: a topic, itself, its loggers, or all brokers."""
    if resource_type == ResourceType.TOPIC:
        reason = topic_name.why_invalid(name)
        if reason is not None:
            return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
        if not broker.metadata.topic_exists(name):
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return ConfigResource(ResourceType.TOPIC, name)
    if resource_type in _NAMES_OF_RESOURCES:
        if not 0 < len(name) <= LONGEST_NAME:
            what = _NAMES_OF_RESOURCES[ResourceType(resource_type)]
            return ApiError(ErrorCode.INVALID_REQUEST, f"{what} name must not be empty or longer than {LONGEST_NAME}")
        return ConfigResource(ResourceType(resource_type), name)
    if resource_type not in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    if not name and resource_type == ResourceType.BROKER_LOGGER:
        return ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if name and _BROKER_ID.fullmatch(name) is None:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if name and int(name) != broker.broker_id:
        return ApiError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker.broker_id}, but received {name}"
        )
    return ConfigResource(ResourceType(resource_type), name)


class _WithConfigs(Protocol):
    """A resource of a request, with what to do to its settings."""

    @property
    def configs(self) -> Sequence[Any]: ...


W = TypeVar("W", bound=_WithConfigs)


def requested_in_slices(
    resources: Iterable[W], requested: Callable[[W], RequestedAlteration], budget: WorkBudget
) -> Steps[list[RequestedAlteration]]:
    """Return what is requested for each resource; yields when the budget is used up."""
    made: list[RequestedAlteration] = []
    for resource in resources:
        made.append(requested(resource))
        budget.left -= 1 + len(resource.configs)
        if budget.left <= 0:
            yield None
    return made


async def alter(
    broker: Broker, context: RequestContext, requested: Sequence[RequestedAlteration], *, validate_only: bool
) -> list[ApiError]:
    """Do what may be done; the errors are in the order of the request.

    What the metadata store has not done in a third of ``request.timeout.ms`` is REQUEST_TIMED_OUT: clients have a
    time-out of their own, which is as long by default.
    """
    times = Counter([(each.resource_type, each.resource_name) for each in requested])

    def check(each: RequestedAlteration) -> ConfigAlteration | ApiError:
        if times[each.resource_type, each.resource_name] > 1:
            return _NAMED_AGAIN
        checked = _alteration(broker, context, each)
        return _altered_here(checked, validate_only) or checked

    budget = new_budget()
    steps = in_slices(requested, check, budget, _UNITS_PER_RESOURCE)
    checked = await broker.sliced_work.finish(steps, budget, context.connection)
    alterations = [each for each in checked if isinstance(each, ConfigAlteration)]
    results = iter(await alter_in_store(broker, alterations, validate_only=validate_only))
    return [next(results) if isinstance(each, ConfigAlteration) else each for each in checked]


async def alter_in_store(
    broker: Broker, alterations: Sequence[ConfigAlteration], *, validate_only: bool = False
) -> list[ApiError]:
    """Change configurations in the metadata store; REQUEST_TIMED_OUT for what it has not done in time."""
    if broker.session_health.state is not SessionState.CONNECTED:
        return [_NO_STORE] * len(alterations)
    seconds = broker.config.request_timeout_ms / 1000 * _SHARE_OF_TIMEOUT
    return await broker.configs.alter(alterations, validate_only=validate_only, timeout_seconds=seconds)


def _alteration(broker: Broker, context: RequestContext, requested: RequestedAlteration) -> ConfigAlteration | ApiError:
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
    if resource.type is ResourceType.BROKER_LOGGER and replaces_all:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    if resource.type is ResourceType.BROKER and name and broker.features.keeps_eligible:
        if any(each.key == MINIMUM_KEY and each.type is not OperationType.DELETE for each in operations):
            return _MIN_IN_SYNC_OF_ONE_BROKER
    return ConfigAlteration(resource=resource, operations=operations, replaces_all=replaces_all)


def _altered_here(checked: ConfigAlteration | ApiError, validate_only: bool) -> ApiError | None:
    """Alter what is not kept in the metadata store, the levels of loggers; None for everything else."""
    if isinstance(checked, ApiError) or checked.resource.type is not ResourceType.BROKER_LOGGER:
        return None
    (malformed,) = why_malformed([checked])
    return malformed or alter_levels(checked.operations, validate_only=validate_only)
