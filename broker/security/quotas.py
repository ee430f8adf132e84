"""How long a client should wait before its next request: ``throttle_time_ms`` of the responses.

Produce and Fetch report the bytes that they moved and put the result into their response. There are no limits yet, so
no client waits.
"""

from typing import Protocol

from oncelog.broker.dispatch.request import RequestContext


class Quotas(Protocol):
    """Both calls count the bytes against the client's share and return the milliseconds that it is to wait."""

    def record_produce(self, context: RequestContext, size: int) -> int: ...

    def record_fetch(self, context: RequestContext, size: int) -> int: ...


class Unlimited:
    """The quotas of a broker that has none."""

    def record_produce(self, context: RequestContext, size: int) -> int:
        return 0

    def record_fetch(self, context: RequestContext, size: int) -> int:
        return 0
