"""``Departures``: brokers that have left the cluster lately, and may be back soon. Pure: the time is an argument."""

from collections.abc import Collection
from typing import Final

RETURN_SECONDS: Final = 600.0
"""A broker that has been away for longer may not come back."""


class Departures:
    """When each broker that is away has left, in seconds."""

    def __init__(self) -> None:
        self._left: dict[int, float] = {}

    def note(self, before: Collection[int], after: Collection[int], now: float) -> None:
        """Note which brokers are in the cluster now, and were before."""
        for broker_id in after:
            self._left.pop(broker_id, None)
        self._left.update(dict.fromkeys(set(before) - set(after), now))

    def lately(self, now: float) -> list[int]:
        """Return the brokers that may be back soon."""
        return sorted(broker_id for broker_id, left in self._left.items() if now - left < RETURN_SECONDS)
