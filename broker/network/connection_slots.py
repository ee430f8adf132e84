"""Which connections a broker keeps when there are more than it may have.

A broker may have ``max.connections``, and three quarters of its file descriptors, for connections. Connections that do
nothing must not take all of these from the brokers of the cluster: a broker that restarts would come back into no ISR.
So a new connection beyond the limit may *displace* another one, which is then closed:

* The connection that has been *silent* for longest, of those of any listener that were accepted ``SILENCE_SECONDS`` ago
  or earlier and have not sent a whole request since. Brokers and clients send their first request as soon as they are
  connected.
* If there is none, and the new one came by the listener between brokers while clients have listeners of their own (it
  is *protected*): the least recently used connection of the other listeners, as in Kafka (``SocketServer``,
  ``ConnectionQuotas``). If there is none either, it is accepted beyond ``max.connections``, but not beyond the
  descriptors.
* Else the new connection is refused. Kafka accepts it later.

A connection on the protected listener that has sent a request is never displaced.

A decision costs amortised constant time for silent connections, and logarithmic time for least recently used ones: each
entry that is passed over belongs to a connection that has sent something since it was last looked at. So a flood of
connections at the limit stays cheap.
"""

from collections import OrderedDict
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

SILENCE_SECONDS: Final = 5.0
"""Seconds for which a connection without a request keeps its slot."""


class Holder(Protocol):
    """A connection that has a slot."""

    @property
    def has_sent_request(self) -> bool:
        """Whether a whole request has come."""

    @property
    def last_activity(self) -> float:
        """When data was last received or a response was last sent, in seconds of the event loop's clock."""


H = TypeVar("H", bound=Holder)


class Decision(NamedTuple, Generic[H]):
    """What becomes of a new connection."""

    is_accepted: bool
    displaced: H | None = None
    """The connection that has lost its slot to the new one, and must be closed."""


class ConnectionSlots(Generic[H]):
    """The connections that have a slot, those that are silent, and those that were least recently used."""

    def __init__(self) -> None:
        self._protected: set[H] = set()
        self._others: dict[H, None] = {}
        """In the order in which they were accepted."""
        self._silent: OrderedDict[H, float] = OrderedDict()
        """When each was accepted, in that order. Those that have sent a request leave when they are looked at."""
        self._least_recently_used: OrderedDict[H, float] = OrderedDict()
        """The last activity of each when all were last sorted, in that order."""

    def __len__(self) -> int:
        return len(self._protected) + len(self._others)

    def take(
        self, connection: H, now: float, *, max_connections: int, has_descriptor: bool, is_protected: bool
    ) -> Decision[H]:
        """Give a new connection a slot, if there is one for it.

        ``now`` is in seconds of the event loop's clock. ``has_descriptor``: the connection's descriptor is not one of
        those that are kept for logs. ``is_protected``: it came by the protected listener.
        """
        displaced: H | None = None
        if len(self) >= max_connections or not has_descriptor:
            displaced = self._find_silent(now)
            if displaced is None and is_protected:
                displaced = self._find_least_recently_used()
            if displaced is None and not (is_protected and has_descriptor):
                return Decision(is_accepted=False)
        if displaced is not None:
            self.release(displaced)
        if is_protected:
            self._protected.add(connection)
        else:
            self._others[connection] = None
        self._silent[connection] = now
        return Decision(is_accepted=True, displaced=displaced)

    def release(self, connection: H) -> None:
        """Free the slot of a connection, if it has one."""
        self._protected.discard(connection)
        self._others.pop(connection, None)
        self._silent.pop(connection, None)
        self._least_recently_used.pop(connection, None)

    def _find_silent(self, now: float) -> H | None:
        while self._silent:
            connection, accepted_at = next(iter(self._silent.items()))
            if not connection.has_sent_request:
                return connection if accepted_at <= now - SILENCE_SECONDS else None
            del self._silent[connection]
        return None

    def _find_least_recently_used(self) -> H | None:
        """Return the one of the other listeners; among equals, the one that was accepted first.

        All are sorted again when each has been used since the last time.
        """
        for _ in range(2):
            while self._least_recently_used:
                connection, last_activity = next(iter(self._least_recently_used.items()))
                if connection.last_activity == last_activity:
                    return connection
                del self._least_recently_used[connection]
            for connection in sorted(self._others, key=lambda other: other.last_activity):
                self._least_recently_used[connection] = connection.last_activity
        return None
