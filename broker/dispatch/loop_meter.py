"""``LoopMeter``: measures how long the requests of a connection occupy the event loop.

The time is added up on the connection, wherever it is spent, and counted with the next response.
"""

from typing import Protocol

from oncelog.broker.dispatch.request import RequestContext
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.schema import Message


class LoopMeter(Protocol):
    """What measures."""

    def nanoseconds(self) -> int:
        """Return the time of a clock that goes on while the loop is busy."""

    def settle(self, api_key: ApiKey, context: RequestContext, response: Message | None) -> None:
        """Count what the connection's requests took, and note in the response how long its client is throttled."""


class Metered(Protocol):
    """A part of the broker that spends time on requests."""

    meter: LoopMeter | None
    """None: nothing is measured."""
