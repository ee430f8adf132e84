"""What the requests about access control lists have in common: filters, and when they are refused as a whole."""

from enum import IntEnum
from typing import Final, Protocol, TypeVar

from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.coordinator.controller.acl_repository import AclRepository
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.metadata_store.session_health import WITHOUT_ZOOKEEPER, SessionState
from oncelog.protocol.acl import AclBindingFilter, AclPermissionType, PatternType
from oncelog.protocol.errors import ErrorCode

NO_STORE: Final = ApiError(ErrorCode.REQUEST_TIMED_OUT, f"The metadata store does not respond: {WITHOUT_ZOOKEEPER}.")
DENIED: Final = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
_SHARE_OF_TIMEOUT: Final = 1 / 3
"""Of ``request.timeout.ms``, for the changes of a request, which has no time-out of its own."""

E = TypeVar("E", bound=IntEnum)


class FilterOnWire(Protocol):
    """A filter as DescribeAcls and DeleteAcls carry it."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def member(kind: type[E], number: int) -> E:
    """Return the member of an enumeration with a number; that of 0, UNKNOWN, if there is none."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)


def filter_of(wire: FilterOnWire) -> AclBindingFilter:
    """Return the filter of a request."""
    return AclBindingFilter(
        member(ResourceType, wire.resource_type_filter),
        wire.resource_name_filter,
        member(PatternType, wire.pattern_type_filter),
        wire.principal_filter,
        wire.host_filter,
        member(Operation, wire.operation),
        member(AclPermissionType, wire.permission_type),
    )


def acls_for(
    broker: Broker, context: RequestContext, operation: Operation, without_authorizer: str
) -> AclRepository | ApiError:
    """Return the lists, if the client may do this to them, and there is an authorizer."""
    if not broker.authorizer.authorize(context, operation, ResourceType.CLUSTER, CLUSTER_NAME):
        return DENIED
    if broker.acls is None:
        return ApiError(ErrorCode.SECURITY_DISABLED, without_authorizer)
    return broker.acls


def is_without_store(broker: Broker) -> bool:
    """Return whether a change would wait for a metadata store that does not respond."""
    return broker.session_health.state is not SessionState.CONNECTED


def seconds_for_changes(broker: Broker) -> float:
    """Return how long the changes of one request may take: clients have a time-out of their own, as long by default."""
    return broker.config.request_timeout_ms / 1000 * _SHARE_OF_TIMEOUT
