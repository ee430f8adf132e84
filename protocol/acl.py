"""Access control lists, as they are on the wire and in the metadata store: Kafka's words and numbers.

An ``AclBinding`` is one rule: an entry (a principal, from a host, is allowed or denied an operation) and the pattern of
the resources that it is about. A ``LITERAL`` pattern is about the resource of that name, or with the name ``*`` about
all resources of the type; a ``PREFIXED`` one is about all whose name begins so, and there ``*`` is a letter like any.

An ``AclBindingFilter`` selects bindings; a part that is None or ``ANY`` selects all.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
"""As a literal name: all resources of the type. As a host: all hosts."""
EVERYONE: Final = "User:*"
"""The principal of entries about all principals."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class AclResourceType(IntEnum):
    """What an operation is about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(IntEnum):
    """What a client wants to do to a resource (Kafka's ``AclOperation``)."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PatternType(IntEnum):
    """Which names a pattern stands for. ``ANY`` and ``MATCH`` are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """All patterns that a resource of the filter's name matches."""
    LITERAL = 3
    PREFIXED = 4


class AclPermissionType(IntEnum):
    """What an entry does to the operations that match it."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


RESOURCE_TYPES: Final = tuple(kind for kind in AclResourceType if kind > AclResourceType.ANY)
"""Those that resources have."""
OPERATIONS: Final = tuple(operation for operation in AclOperation if operation > AclOperation.ANY)
"""Those that entries have."""
OPERATIONS_ON: Final[Mapping[AclResourceType, tuple[AclOperation, ...]]] = {
    AclResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    AclResourceType.TRANSACTIONAL_ID: (
        AclOperation.DESCRIBE,
        AclOperation.WRITE,
        AclOperation.TWO_PHASE_COMMIT,
    ),
    AclResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations that something is decided by, for each type of resource; entries may have others, without effect."""


class ResourcePattern(NamedTuple):
    """The resources that a binding is about."""

    resource_type: AclResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class AccessControlEntry(NamedTuple):
    """Who is allowed or denied what."""

    principal: str
    """``Type:name``, or ``User:*`` for everyone."""
    host: str
    """The text of an address, or ``*``."""
    operation: AclOperation
    permission_type: AclPermissionType


class AclBinding(NamedTuple):
    """One rule."""

    pattern: ResourcePattern
    entry: AccessControlEntry


class AclBindingFilter(NamedTuple):
    """Selects bindings; the default selects all."""

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY

    def matches(self, binding: AclBinding) -> bool:
        """Return whether the filter selects a binding."""
        return self.matches_pattern(binding.pattern) and self.matches_entry(binding.entry)

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Return whether the filter selects bindings of a pattern."""
        if self.resource_type not in (AclResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type is PatternType.MATCH:
            return self.name is None or pattern_matches(pattern, self.name)
        return self.pattern_type in (PatternType.ANY, pattern.pattern_type) and self.name in (None, pattern.name)

    def matches_entry(self, entry: AccessControlEntry) -> bool:
        """Return whether the filter selects an entry."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission_type in (AclPermissionType.ANY, entry.permission_type)
        )


def pattern_matches(pattern: ResourcePattern, name: str) -> bool:
    """Return whether a pattern is about the resource of its type that has this name."""
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, WILDCARD)
