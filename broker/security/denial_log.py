"""``DenialLog``: what clients were denied, in few lines.

A client may be denied ten thousand topics in one request, and ask again without a pause. So denials are counted by
principal, host, operation and type of resource: the first is a line that names the resource, and what follows in the
same ten seconds is one line with their number.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from oncelog.broker.dispatch.request import Principal
from oncelog.protocol.acl import AclOperation, AclResourceType

logger = logging.getLogger(__name__)

WINDOW_SECONDS: Final = 10.0
_MOST_COUNTED: Final = 1_000
"""Kinds of denials of one window."""
_OF_BROKERS: Final = (
    "; if that is a broker of this cluster, super.users must name its principal, as on every broker: until then the "
    "brokers refuse each other"
)


class Denial(NamedTuple):
    """By what denials are counted."""

    principal: Principal
    host: str
    operation: AclOperation
    resource_type: AclResourceType


class DenialLog:
    """Counts denials, and writes the lines. ``end_window`` is called at an interval."""

    def __init__(self) -> None:
        self._more: dict[Denial, int] = {}
        """The denials of this window that have no line."""
        self._uncounted = 0
        self.on_line: Callable[[Denial, str, int], None] | None = None
        """Called with each line: the name of the resource, or none, and how many denials it is about."""
        self.on_rest: Callable[[int], None] | None = None
        """Called with the number of denials that had no line."""

    def add(self, denial: Denial, name: str) -> None:
        """Note one denial."""
        more = self._more.get(denial)
        if more is not None:
            self._more[denial] = more + 1
        elif len(self._more) < _MOST_COUNTED:
            self._more[denial] = 0
            of_broker = denial.operation is AclOperation.CLUSTER_ACTION
            logger.log(
                logging.WARNING if of_broker else logging.INFO,
                "Denied %s at %s: %s on %s %s%s",
                denial.principal,
                denial.host,
                denial.operation.name,
                denial.resource_type.name,
                name,
                _OF_BROKERS if of_broker else "",
            )
            if self.on_line is not None:
                self.on_line(denial, name, 1)
        else:
            self._uncounted += 1

    async def end_window(self) -> None:
        """Write how many denials had no line, and begin to count anew."""
        ended, self._more = self._more, {}
        for denial, more in ended.items():
            if more:
                logger.info(
                    "Denied %s at %s: %s on %s, %d more within %d s",
                    denial.principal,
                    denial.host,
                    denial.operation.name,
                    denial.resource_type.name,
                    more,
                    WINDOW_SECONDS,
                )
                if self.on_line is not None:
                    self.on_line(denial, "", more)
        uncounted, self._uncounted = self._uncounted, 0
        if uncounted:
            logger.info("Denied others %d times within %d s", uncounted, WINDOW_SECONDS)
            if self.on_rest is not None:
                self.on_rest(uncounted)
