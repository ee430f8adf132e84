"""``AllowedCounts``: what clients were allowed, in few lines.

A client produces to one topic thousands of times a second. So what is allowed is counted by principal, host, operation
and resource, and written once in ten seconds, with the number of requests.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog.broker.dispatch.request import Principal
from oncelog.protocol.acl import AclOperation, AclResourceType

_MOST_COUNTED: Final = 1_000
"""Kinds of one window."""
_MOST_OF_ONE: Final = 100
"""Kinds of one principal, so that none can have the others' go uncounted."""


class Allowed(NamedTuple):
    """By what is counted."""

    principal: Principal
    host: str
    operation: AclOperation
    resource_type: AclResourceType
    name: str


class AllowedCounts:
    """Counts what was allowed. ``end_window`` is called at an interval."""

    def __init__(self, write: Callable[[Allowed | None, int], None]) -> None:
        """Write by ``write``, with None for all that is beyond the bound."""
        self._write = write
        self._counts: Counter[Allowed] = Counter()
        self._kinds: Counter[Principal] = Counter()
        self._uncounted = 0

    def add(self, allowed: Allowed) -> None:
        """Note one decision."""
        if allowed in self._counts:
            self._counts[allowed] += 1
        elif len(self._counts) < _MOST_COUNTED and self._kinds[allowed.principal] < _MOST_OF_ONE:
            self._kinds[allowed.principal] += 1
            self._counts[allowed] = 1
        else:
            self._uncounted += 1

    async def end_window(self) -> None:
        """Write what was counted, and begin anew."""
        ended, self._counts = self._counts, Counter()
        self._kinds.clear()
        for allowed, count in ended.items():
            self._write(allowed, count)
        uncounted, self._uncounted = self._uncounted, 0
        if uncounted:
            self._write(None, uncounted)
