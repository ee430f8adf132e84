"""``Decisions``: what an authorizer has decided by one snapshot of the lists, so that it is looked up the next time.

A client asks about the same few topics all the time, and a decision by the lists takes some microseconds. What is kept
here are the operations that one client may do to one resource, as bits. A change of the lists begins a new object with
nothing in it: no decision outlives what it was made by.
"""

from typing import Final

from oncelog.broker.dispatch.request import Principal
from oncelog.protocol.acl import AclResourceType

_MOST_KEPT: Final = 20_000
_LONGEST_KEPT: Final = 256
"""Characters of a name whose decision is kept; topics are shorter."""


class Decisions:
    """The decisions of one snapshot, up to a bound: beyond it they are all forgotten."""

    __slots__ = ("by_client", "count")

    def __init__(self) -> None:
        self.by_client: dict[tuple[Principal, str], dict[AclResourceType, dict[str, int]]] = {}
        """By principal and host, type and name: the operations that are allowed, as bits by their numbers."""
        self.count = 0

    def keep(self, principal: Principal, host: str, resource_type: AclResourceType, name: str, allowed: int) -> None:
        """Keep a decision that is not kept yet."""
        if len(name) > _LONGEST_KEPT:
            return
        if self.count >= _MOST_KEPT:
            self.by_client.clear()
            self.count = 0
        of_client = self.by_client.setdefault((principal, host), {})
        of_client.setdefault(resource_type, {})[name] = allowed
        self.count += 1
