"""When the followers of a broker last fetched, and which of them are silent. Pure.

A follower that is connected fetches all the time: the leader responds within the time that the fetch may wait, and
the next request comes at once. So a follower that has not fetched for several such times is stopped, or cut off from
this leader, even if the controller reaches it, and delays the high watermark in vain. Kafka waits
``replica.lag.time.max.ms`` for it, 30 s by default, in which a follower that is merely slow may catch up.

Silence says nothing about data. It only makes a leader propose a smaller ISR to the controller, earlier than lag would;
and that leader may be the one that is cut off, so silence leaves the ISR as large as `min.insync.replicas`, and never a
leader alone (`oncelog.broker.replication.isr`).

Times are milliseconds of the event loop's clock. One that has stood still, with all requests unread behind it, makes
every follower look silent, so a check that comes late changes nothing.
"""

from typing import Final

WITHOUT_LIMIT: Final = 0
_FETCHES: Final = 4
"""Minimum silence, in longest waits of a fetch."""
_LATE_MS: Final = 500


class FollowerContacts:
    """Which followers fetch here, over all partitions."""

    def __init__(self) -> None:
        self._limit_ms = WITHOUT_LIMIT
        self._last_contact_ms: dict[int, int] = {}
        self._last_update_ms: int | None = None
        self.silent: frozenset[int] = frozenset()
        """The followers that were silent at the last check."""

    def limit(self, silence_ms: int, fetch_wait_ms: int) -> None:
        """Begin silence after ``silence_ms``, but not before four fetches can have waited. 0: never."""
        self._limit_ms = silence_ms and max(silence_ms, _FETCHES * fetch_wait_ms)

    def expect(self, broker: int, now_ms: int) -> None:
        """Expect fetches of a follower from now on."""
        self._last_contact_ms[broker] = now_ms

    def note_contact(self, broker: int, time_ms: int) -> None:
        """Note that a follower was there at a time: it has fetched, or was sent a response.

        No effect for a broker that follows nothing: any client can call itself a replica, this broker included.
        """
        known_ms = self._last_contact_ms.get(broker)
        if known_ms is not None and time_ms > known_ms:
            self._last_contact_ms[broker] = time_ms

    def update_silent(self, now_ms: int, expected_ms: int) -> bool:
        """Determine the silent followers; ``expected_ms``: time since the last check. Return whether they changed."""
        last_ms, self._last_update_ms = self._last_update_ms, now_ms
        if self._limit_ms == WITHOUT_LIMIT or (last_ms is not None and now_ms - last_ms > expected_ms + _LATE_MS):
            return False
        before = self.silent
        self.silent = frozenset(
            b for b, contact_ms in self._last_contact_ms.items() if now_ms - contact_ms > self._limit_ms
        )
        return self.silent != before
