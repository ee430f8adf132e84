"""What a leader knows of one follower of one partition: how far it is, and when it was as far as the leader. Pure.

A follower reports its log's end by the offset from which it fetches. It counts as caught up while its end is that of
the leader, and for a while after it last was: a fetch that reaches the leader's end of now is caught up now, and one
that reaches the end that the leader had at the fetch before was caught up then. So a follower of a busy partition,
which never fetches from the very end, is not mistaken for a slow one. Source: Kafka's ``cluster/Replica.scala``.

Times are milliseconds of the event loop's clock.
"""

from typing import Final

UNKNOWN_OFFSET: Final = -1
"""The end of a replica that has not fetched from this leader yet."""
UNKNOWN_EPOCH: Final = -1
"""The broker epoch of one that has not, or does not say (Fetch before version 15)."""
NEVER: Final = -(1 << 62)


class FollowerState:
    """One follower; changed by its fetches and by elections."""

    __slots__ = (
        "_last_leader_end",
        "broker_epoch",
        "end",
        "is_close",
        "is_refused",
        "last_caught_up_ms",
        "last_fetch_ms",
        "log_start_offset",
    )

    def __init__(self) -> None:
        self.end = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_EPOCH
        self.is_close = False
        """Whether it was caught up at the last check or fetch."""
        self.is_refused = False
        """Whether the controller refused it in the last proposal of the ISR: it is about to stop, or gone."""
        self.last_caught_up_ms = NEVER
        self.last_fetch_ms = NEVER
        """When a fetch last named this partition; within a session only when its position has changed."""
        self._last_leader_end = UNKNOWN_OFFSET

    def elected(self, *, leader_end: int, now_ms: int, in_sync: bool) -> None:
        """Begin with a leader that was elected, perhaps once more. As far as the ISR says, the follower is caught up.

        The known end stays: the log of a broker that follows the same leader is the beginning of that leader's.
        """
        self._last_leader_end = leader_end
        self.last_fetch_ms = self.last_caught_up_ms = now_ms if in_sync else NEVER
        self.is_close = in_sync

    def fetched(
        self, *, end: int, log_start_offset: int, leader_end: int, now_ms: int, broker_epoch: int, lag_ms: int
    ) -> None:
        """Note a fetch at ``end`` while the leader's log ends at ``leader_end``; see ``update_is_close``."""
        if end >= leader_end:
            self.caught_up_at(now_ms)
        elif end >= self._last_leader_end:
            self.caught_up_at(self.last_fetch_ms)
        self.end = end
        self.log_start_offset = log_start_offset
        if broker_epoch != self.broker_epoch:
            self.is_refused = False  # It has registered again.
        self.broker_epoch = broker_epoch
        if leader_end > self._last_leader_end:
            self._last_leader_end = leader_end
        self.last_fetch_ms = now_ms
        self.is_close = end == leader_end or now_ms - self.last_caught_up_ms <= lag_ms

    def begin_anew(self) -> None:
        """Forget how far it was: it is about to empty its log, and joins the ISR by none of its former fetches."""
        self.end = UNKNOWN_OFFSET
        self.last_caught_up_ms = NEVER
        self.is_close = False

    def caught_up_at(self, time_ms: int) -> None:
        if time_ms > self.last_caught_up_ms:
            self.last_caught_up_ms = time_ms

    def update_is_close(self, leader_end: int, now_ms: int, lag_ms: int) -> bool:
        """Return whether it is caught up, or was ``lag_ms`` ago; remember the result."""
        self.is_close = self.end == leader_end or now_ms - self.last_caught_up_ms <= lag_ms
        return self.is_close

    def is_stale(self, broker_epoch: int) -> bool:
        """Return whether a fetch with this broker epoch comes from a former incarnation of the follower (KIP-903)."""
        return broker_epoch != UNKNOWN_EPOCH and broker_epoch < self.broker_epoch
