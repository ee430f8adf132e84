"""When the followers of a broker were last heard, and who of them has fallen silent. Pure.

A follower that is connected fetches all the time: the leader answers within the time that the fetch may wait, and the
next request comes at once. So one that has not been heard for several such times is stopped, or cut off from this
leader, however well it stands with the controller; what it is waited for meanwhile, it will not have. Kafka waits
``replica.lag.time.max.ms`` for it, 30 s by default, in which a follower that is merely slow may catch up.

Silence says nothing about data. It only makes a leader ask the controller for a smaller ISR, earlier than lag would;
and whoever has asked may be the one that is cut off, so silence leaves the ISR as large as `min.insync.replicas`, and
never a leader alone (`oncelog.broker.replication.isr`).

Times are milliseconds of the event loop's clock. One that has stood still, with all requests unread behind it, makes
everybody look silent, so a look that comes late decides nothing.
"""

from typing import Final

WITHOUT_LIMIT: Final = 0
_FETCHES: Final = 4
"""So many waits without a fetch are silence at the least."""
_LATE_MS: Final = 500


class FollowerContacts:
    """Which followers fetch here, over all partitions."""

    def __init__(self) -> None:
        self._limit_ms = WITHOUT_LIMIT
        self._heard_ms: dict[int, int] = {}
        self._look_ms: int | None = None
        self.silent: frozenset[int] = frozenset()
        """Who was silent when that was last looked at."""

    def limit(self, silence_ms: int, fetch_wait_ms: int) -> None:
        """Begin silence after ``silence_ms``, but not before four fetches can have waited. 0: never."""
        self._limit_ms = silence_ms and max(silence_ms, _FETCHES * fetch_wait_ms)

    def expect(self, broker: int, now_ms: int) -> None:
        """Expect fetches of a follower from now on."""
        self._heard_ms[broker] = now_ms

    def heard(self, broker: int, time_ms: int) -> None:
        """Note that a follower was there at a time: it has fetched, or was sent a response.

        No effect for a broker that follows nothing: any client can call itself a replica, this broker included.
        """
        known_ms = self._heard_ms.get(broker)
        if known_ms is not None and time_ms > known_ms:
            self._heard_ms[broker] = time_ms

    def look(self, now_ms: int, expected_ms: int) -> bool:
        """Look who is silent now; ``expected_ms`` is how long the last look should be ago. Whether that changed."""
        last_ms, self._look_ms = self._look_ms, now_ms
        if self._limit_ms == WITHOUT_LIMIT or (last_ms is not None and now_ms - last_ms > expected_ms + _LATE_MS):
            return False
        before = self.silent
        self.silent = frozenset(b for b, heard_ms in self._heard_ms.items() if now_ms - heard_ms > self._limit_ms)
        return self.silent != before
