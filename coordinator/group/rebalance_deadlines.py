"""What a rebalance waits for, and until when: first for JoinGroups, then for SyncGroups.

Of the two deadlines at most one is set. The first rebalance of an empty group is delayed (``InitialDelay``), so that
its members join one generation and not one after the other.
"""

from collections.abc import Iterable

from oncelog.coordinator.group.member import Instant
from oncelog.coordinator.group.state import InitialDelay


class RebalanceDeadlines:
    """The deadlines of one group, in seconds of the loop's clock; None while there is none."""

    __slots__ = ("initial_delay", "join", "pending_sync", "sync")

    def __init__(self) -> None:
        self.join: float | None = None
        self.sync: float | None = None
        self.pending_sync: set[str] = set()
        """The members that have not fetched their assignment."""
        self.initial_delay: InitialDelay | None = None

    def await_joins(self, timeout_ms: int, at: Instant) -> None:
        """Wait for JoinGroups, or for a later attempt to write what they led to."""
        self.join = at.monotonic + timeout_ms / 1000

    def delay(self, delay: InitialDelay, at: Instant) -> None:
        """Wait for more members of an empty group."""
        self.initial_delay = delay
        self.await_joins(delay.delay_ms, at)

    def extend_delay(self, at: Instant) -> bool:
        """Return whether new members have extended the initial delay."""
        extended = None if self.initial_delay is None else self.initial_delay.extended()
        if extended is None:
            return False
        self.delay(extended, at)
        return True

    def end_joins(self) -> None:
        """Wait for no more JoinGroups."""
        self.initial_delay = None
        self.join = None

    def await_syncs(self, member_ids: Iterable[str], timeout_ms: int, at: Instant) -> None:
        """Wait until each of the members has fetched its assignment."""
        self.pending_sync.update(member_ids)
        self.sync = at.monotonic + timeout_ms / 1000

    def end_sync(self, member_id: str) -> None:
        """Do not wait for a member's SyncGroup any more."""
        self.pending_sync.discard(member_id)
        if not self.pending_sync:
            self.sync = None

    def end_syncs(self) -> None:
        """Wait for no more SyncGroups."""
        self.pending_sync.clear()
        self.sync = None
