"""``AclAuthorizer``: decides by access control lists, as Kafka's authorizers do.

Super users may do everything, whatever is denied to them or to everyone. For others the lists decide (``acl_index``).
Where no list is about a resource, nothing is allowed, unless ``allow.everyone.if.no.acl.found`` says so. Before the
lists have been read nothing is allowed either. What was decided is kept until the lists change (``decisions``).
"""

from collections.abc import Mapping
from typing import Final

from oncelog.broker.dispatch.request import ConnectionInfo, RequestContext
from oncelog.broker.security.acl_index import AclIndex, Entries
from oncelog.broker.security.allowed_counts import Allowed, AllowedCounts
from oncelog.broker.security.decisions import Decisions
from oncelog.broker.security.denial_log import Denial, DenialLog
from oncelog.protocol.acl import AclOperation, AclResourceType, ResourcePattern

_EVERYTHING: Final = -1
"""The bits of all operations."""
_ANY_NAME: Final = "hardcode"
"""Kafka's: the name of a resource about which there is no list, as a rule."""


class AclAuthorizer:
    """Implements ``oncelog.broker.security.authorizer.Authorizer``."""

    def __init__(self, super_users: frozenset[tuple[str, str]], *, allows_everyone_without_acl: bool = False) -> None:
        self._super_users = super_users
        self._allows_everyone_without_acl = allows_everyone_without_acl
        self._index: AclIndex | None = None
        """None until the lists have been read."""
        self.decisions = Decisions()
        """Those of the index."""
        self.denials = DenialLog()
        self.allowed: AllowedCounts | None = None
        """Counts what is allowed; None: that is not wanted."""

    def change(self, changes: Mapping[ResourcePattern, Entries]) -> None:
        """Decide by other entries of some patterns from now on."""
        if changes or self._index is None:
            self._index = (self._index or AclIndex()).changed(changes)
            self.decisions = Decisions()

    def authorize(
        self, context: RequestContext, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        connection = context.connection
        try:  # As in ``permits``, without a call: this is done for every topic of every request.
            of_client = self.decisions.by_client[connection.principal, connection.client_host]
            allowed = of_client[resource_type][name]
        except KeyError:
            allowed = self._decide(connection, resource_type, name)
        if allowed >> operation & 1:
            if self.allowed is not None:
                what = Allowed(connection.principal, connection.client_host, operation, resource_type, name)
                self.allowed.add(what)
            return True
        self.denials.add(Denial(connection.principal, connection.client_host, operation, resource_type), name)
        return False

    def permits(
        self, context: RequestContext, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        connection = context.connection
        try:
            of_client = self.decisions.by_client[connection.principal, connection.client_host]
            allowed = of_client[resource_type][name]
        except KeyError:
            allowed = self._decide(connection, resource_type, name)
        return bool(allowed >> operation & 1)

    def _decide(self, connection: ConnectionInfo, resource_type: AclResourceType, name: str) -> int:
        """Return the operations that a client may do to a resource, as bits, and keep the decision."""
        principal, host, index = connection.principal, connection.client_host, self._index
        if principal in self._super_users:
            allowed: int | None = _EVERYTHING
        elif index is None:
            return 0
        else:
            allowed = index.allowed(principal, host, resource_type, name)
        if allowed is None:
            allowed = _EVERYTHING if self._allows_everyone_without_acl else 0
        self.decisions.keep(principal, host, resource_type, name, allowed)
        return allowed

    def permits_any(self, context: RequestContext, operation: AclOperation, resource_type: AclResourceType) -> bool:
        connection, index = context.connection, self._index
        if connection.principal in self._super_users:
            return True
        if index is None:
            return False
        return self.permits(context, operation, resource_type, _ANY_NAME) or index.allows_any(
            connection.principal, connection.client_host, operation, resource_type
        )
