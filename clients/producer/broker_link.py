"""The link of a producer to one broker: its connection, the requests in flight, and the backoff."""

from oncelog.clients.connection import Connection


class BrokerLink:
    """The connection to one broker, over all its reconnections. Times are seconds of the loop's clock."""

    __slots__ = ("connection", "failures", "in_flight", "is_opening", "node_id", "not_before")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.connection: Connection | None = None
        self.is_opening = False
        self.in_flight = 0
        """Produce requests without a response yet."""
        self.failures = 0
        """Attempts to connect that failed, since the last one that succeeded."""
        self.not_before = 0.0
        """The time before which no request is sent (throttled), and no connection is opened (backoff)."""

    def connected(self, connection: Connection) -> None:
        """Take over a new connection."""
        self.connection = connection
        self.failures = 0

    def back_off(self, until: float) -> None:
        """Wait before the next attempt to connect."""
        self.not_before = until
        self.failures += 1
