"""The time by which each member of a group must send a request, and which of them is the next.

A heartbeat moves its member's deadline, which must cost nothing, and the next deadline is wanted after every request,
so that looking through all members each time would make a large group quadratic. Deadlines stand in a heap. An entry is
too early where the deadline has moved since, and void where it is gone: that is put right when it comes to the top.
"""

from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from oncelog.coordinator.group.member import Instant, Member

_FEW_ENTRIES: Final = 64
"""A heap of fewer is not tidied up."""


class Sessions:
    """Deadlines by member id, of members and of ids that wait to become members. Seconds of the loop's clock."""

    __slots__ = ("_deadlines", "_entries", "_heap")

    def __init__(self) -> None:
        self._deadlines: dict[str, float] = {}
        self._entries: dict[str, float] = {}
        """Of each member with a deadline, its entry in the heap: the deadline or an earlier time."""
        self._heap: list[tuple[float, str]] = []

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._deadlines

    def set(self, member_id: str, deadline: float) -> None:
        self._deadlines[member_id] = deadline
        entry = self._entries.get(member_id)
        if entry is None or deadline < entry:
            self._entries[member_id] = deadline
            heappush(self._heap, (deadline, member_id))
            if len(self._heap) > 2 * len(self._deadlines) + _FEW_ENTRIES:
                self._rebuild()

    def touch(self, member: Member, at: Instant) -> None:
        """Begin the member's session anew."""
        self.set(member.member_id, at.monotonic + member.session_timeout_ms / 1000)

    def clear(self, member_id: str) -> None:
        """Forget the member's deadline, if it has one."""
        if self._deadlines.pop(member_id, None) is not None:
            del self._entries[member_id]

    def next(self) -> float | None:
        """Return the earliest deadline."""
        while self._heap:
            when, member_id = self._heap[0]
            if self._entries.get(member_id) != when:
                heappop(self._heap)
                continue
            deadline = self._deadlines[member_id]
            if deadline == when:
                return deadline
            self._entries[member_id] = deadline
            heapreplace(self._heap, (deadline, member_id))
        return None

    def take_due(self, now: float) -> list[str]:
        """Forget the deadlines that have come, and return whose they were, the earliest first."""
        due = []
        while (deadline := self.next()) is not None and deadline <= now:
            _, member_id = self._heap[0]
            self.clear(member_id)
            due.append(member_id)
        return due

    def _rebuild(self) -> None:
        self._entries = dict(self._deadlines)
        self._heap = [(deadline, member_id) for member_id, deadline in self._deadlines.items()]
        heapify(self._heap)
