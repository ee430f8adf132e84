"""Authorization: handlers ask here before they do anything.

A broker without ``authorizer.class.name`` has ``AllowAll``; one with it decides by access control lists
(``acl_authorizer``). Kafka's numbers for operations and resource types are on the wire: in ACL requests, and in the
``authorized_operations`` bit fields of Metadata, DescribeGroups and DescribeCluster.
"""

from typing import Protocol

from oncelog.broker.dispatch.request import RequestContext
from oncelog.protocol.acl import CLUSTER_NAME, OPERATIONS_ON
from oncelog.protocol.acl import AclOperation as Operation
from oncelog.protocol.acl import AclResourceType as ResourceType

__all__ = ["AllowAll", "Authorizer", "CLUSTER_NAME", "Operation", "ResourceType", "authorized_operations"]


class Authorizer(Protocol):
    """Decides on the event loop, from memory: it is called for every topic of every request."""

    def authorize(self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether the client may do this to the resource. A denial is logged."""

    def permits(self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return the same without a word in the log: where a denial refuses nothing that the client named."""

    def permits_any(self, context: RequestContext, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether the client may do this to some resource of the type, whether it exists or not."""


class AllowAll:
    """The authorizer of a broker without access control."""

    def authorize(self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return True

    def permits(self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return True

    def permits_any(self, context: RequestContext, operation: Operation, resource_type: ResourceType) -> bool:
        return True


def authorized_operations(
    authorizer: Authorizer, context: RequestContext, resource_type: ResourceType, name: str
) -> int:
    """Return the bit field of the operations that this client may do to a resource: bit n for operation n."""
    allowed = 0
    for operation in OPERATIONS_ON[resource_type]:
        if authorizer.permits(context, operation, resource_type, name):
            allowed |= 1 << operation
    return allowed
