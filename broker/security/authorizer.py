"""Authorization: handlers call it before they do anything. For now every client may do everything.

Kafka's numbers for operations and resource types are on the wire: in ACL requests, and in the ``authorized_operations``
bit fields of Metadata, DescribeGroups and DescribeCluster.
"""

from enum import IntEnum
from typing import Final, Protocol

from oncelog.broker.dispatch.request import RequestContext

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class Operation(IntEnum):
    """What a client wants to do to a resource (Kafka's ``AclOperation``)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """What an operation is about."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
"""The operations that make sense for each type of resource."""


class Authorizer(Protocol):
    """Decides on the event loop, from memory: it is called for every topic of every request."""

    def authorize(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool: ...


class AllowAll:
    """The authorizer of a broker without access control."""

    def authorize(self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return True


def authorized_operations(
    authorizer: Authorizer, context: RequestContext, resource_type: ResourceType, name: str
) -> int:
    """Return the bit field of the operations that this client may do to a resource: bit n for operation n."""
    allowed = 0
    for operation in OPERATIONS[resource_type]:
        if authorizer.authorize(context, operation, resource_type, name):
            allowed |= 1 << operation
    return allowed
