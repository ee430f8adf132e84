"""What the members of groups take of the broker's memory, and what they may take.

Metadata and assignments are bytes that clients choose, and members outlive their connections. So the size of each group
is known, in bytes that are near enough to what the process needs for it (``footprint``), and three settings bound it:
that of one member, of one group, and of all groups of this broker. What is loaded from the log always fits. A request
that would make a group larger beyond a bound is refused; one that makes it no larger never is. A quarter of what all
groups may take is for growth of at most ``_SMALL_GROWTH``: members of ordinary size still join when large ones took
the rest.
"""

from typing import Final, NamedTuple

from oncelog.coordinator.group.footprint import GROUP_BYTES, PENDING_BYTES
from oncelog.coordinator.group.group import Group
from oncelog.coordinator.group.member import UNKNOWN_MEMBER_ID, GroupImage
from oncelog.coordinator.group.state import JoinRequest, SyncRequest
from oncelog.protocol.errors import ErrorCode

MEMBER_SETTING: Final = "oncelog.group.member.max.bytes"
GROUP_SETTING: Final = "oncelog.group.max.bytes"
ALL_GROUPS_SETTING: Final = "oncelog.groups.max.bytes"
_SMALL_GROWTH: Final = 16 * 1024


class MemoryLimits(NamedTuple):
    """The greatest sizes, in bytes."""

    member: int = 1 << 20
    group: int = 16 << 20
    all_groups: int = 128 << 20


class Refusal(NamedTuple):
    """Why a request is refused: the limit that it would break."""

    error: ErrorCode
    setting: str
    limit: int


class _Noted(NamedTuple):
    size: int
    image: GroupImage | None
    assigned: int
    """Bytes of the assignments in the image."""


_NOTHING: Final = _Noted(0, None, 0)


class GroupMemory:
    """The sizes of all groups of one coordinator, as of the last ``note`` of each."""

    __slots__ = ("_limits", "_noted", "total")

    def __init__(self, limits: MemoryLimits) -> None:
        self._limits = limits
        self._noted: dict[Group, _Noted] = {}
        self.total = 0

    def note(self, group: Group) -> None:
        """Take the group's size as it is now. One without members and pending ids has none."""
        before = self._noted.get(group, _NOTHING)
        if not group.roster and not group.pending_members:
            self.forget(group)
            return
        assigned, image = before.assigned, group.persisted
        if image is not before.image:
            assigned = 0 if image is None else sum(len(member.assignment) for member in image.members)
        size = GROUP_BYTES + group.roster.size + len(group.pending_members) * PENDING_BYTES + assigned
        self.total += size - before.size
        self._noted[group] = _Noted(size, image, assigned)

    def forget(self, group: Group) -> None:
        """Drop a group that is not here any more, or that takes next to no memory."""
        self.total -= self._noted.pop(group, _NOTHING).size

    def validate_join(self, group: Group, request: JoinRequest) -> Refusal | None:
        """Return why a JoinGroup is refused, or None."""
        if request.size > self._limits.member:
            return Refusal(ErrorCode.MESSAGE_TOO_LARGE, MEMBER_SETTING, self._limits.member)
        return self._validate_growth(group, growth_by_join(group, request), ErrorCode.GROUP_MAX_SIZE_REACHED)

    def validate_sync(self, group: Group, request: SyncRequest) -> Refusal | None:
        """Return why a SyncGroup is refused, or None."""
        growth = assigned_by(group, request) - self._noted.get(group, _NOTHING).assigned
        return self._validate_growth(group, growth, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _validate_growth(self, group: Group, growth: int, error: ErrorCode) -> Refusal | None:
        if growth <= 0:
            return None
        if self._noted.get(group, _NOTHING).size + growth > self._limits.group:
            return Refusal(error, GROUP_SETTING, self._limits.group)
        limit = self._limits.all_groups
        if self.total + growth > (limit if growth <= _SMALL_GROWTH else limit // 4 * 3):
            return Refusal(error, ALL_GROUPS_SETTING, limit)
        return None


def growth_by_join(group: Group, request: JoinRequest) -> int:
    """Return how many bytes larger a JoinGroup would make the group; less than nothing: smaller."""
    if request.member_id == UNKNOWN_MEMBER_ID and request.is_to_be_named:
        return PENDING_BYTES
    return group.roster.growth(request)


def assigned_by(group: Group, request: SyncRequest) -> int:
    """Return the bytes of the assignments in a SyncGroup: only those of the leader are kept."""
    return sum(map(len, request.assignments.values())) if request.member_id == group.roster.leader else 0
