"""The states of a classic group, and the values that its state machine takes and gives.

The machine itself is ``group.Group``; what a member is, ``member``. Nothing here knows a clock, a socket or a log.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from oncelog.coordinator.group.footprint import MEMBER_BYTES, size_of_protocols
from oncelog.coordinator.group.member import (
    UNKNOWN_MEMBER_ID,
    GroupImage,
    GroupProtocol,
    JoinReply,
    JoinResult,
    Member,
    SyncReply,
    SyncResult,
)
from oncelog.protocol.errors import ErrorCode


class GroupState(Enum):
    """Where a group is between two generations. The values are what ListGroups and DescribeGroups say."""

    EMPTY = "Empty"
    """No members; committed offsets may linger, or be all that the group ever had."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """JoinGroups are parked until every member has sent one or the rebalance time-out has passed."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation has begun; SyncGroups are parked until its leader hands in the assignment."""
    STABLE = "Stable"
    """Every member can have its assignment, and heartbeats keep it a member."""
    DEAD = "Dead"
    """Deleted, or handed over to another coordinator: a group object in this state is in no map."""


TRANSITIONS: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}


def format_transitions() -> str:
    """Return the table to print: one line per state."""
    lines = []
    for state, successors in TRANSITIONS.items():
        names = [successor.value for successor in GroupState if successor in successors]
        lines.append(f"{state.value:<20} -> {', '.join(names) or '(final)'}")
    return "\n".join(lines)


class GroupRules(NamedTuple):
    """The settings of the state machine."""

    max_size: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 3000
    new_member_join_timeout_ms: int = 300_000


@dataclass(slots=True)
class InitialDelay:
    """The first rebalance of an empty group waits for company: a delay, repeated while new members keep coming.

    All of it takes no longer than the members' rebalance time-out.
    """

    delay_ms: int
    remaining_ms: int
    has_company: bool = False

    def extended(self) -> "InitialDelay | None":
        if not self.has_company or self.remaining_ms <= 0:
            return None
        delay_ms = min(self.delay_ms, self.remaining_ms)
        return InitialDelay(delay_ms, self.remaining_ms - delay_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A JoinGroup as the state machine sees it. ``new_member_id`` is used if the group has to name the member."""

    member_id: str
    new_member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[GroupProtocol, ...]
    requires_known_member_id: bool
    supports_skipping_assignment: bool

    @property
    def is_to_be_named(self) -> bool:
        """Whether a new member of this request is given an id first, with which it must join again."""
        return self.group_instance_id is None and self.requires_known_member_id

    @property
    def size(self) -> int:
        """Bytes of memory that its member takes, without an assignment."""
        return MEMBER_BYTES + size_of_protocols(self.protocols)

    def to_member(self, member_id: str, reply: JoinReply) -> Member:
        """Return the member that this request makes, parked."""
        return Member(
            member_id=member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            protocols=self.protocols,
            join_reply=reply,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A SyncGroup. A protocol type or name of None is not checked: before version 5 requests do not carry them."""

    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]


class TransitionKind(Enum):
    """Why a group metadata record is written."""

    ASSIGNED = "the leader has handed in the assignment of its generation"
    EMPTIED = "the last member is gone"
    REPLACED = "another process has taken over a static member"


class Transition(NamedTuple):
    """A change that is true once its image is in the log."""

    kind: TransitionKind
    image: GroupImage
    member_id: str = UNKNOWN_MEMBER_ID
    """ASSIGNED: the leader. REPLACED: the member that is replaced."""
    replacement: Member | None = None
    skip_assignment: bool = False


@dataclass(slots=True)
class Step:
    """What follows from one event: responses to send, and possibly a transition to write."""

    joins: list[tuple[JoinReply, JoinResult]] = field(default_factory=list)
    syncs: list[tuple[SyncReply, SyncResult]] = field(default_factory=list)
    transition: Transition | None = None
    expired: list[str] = field(default_factory=list)
    """Ids of members, or of clients that were to become members, that a deadline has removed."""

    def refuse_join(self, reply: JoinReply, error: ErrorCode, member_id: str = UNKNOWN_MEMBER_ID) -> None:
        self.joins.append((reply, JoinResult(error=error, member_id=member_id)))

    def respond_to_join(self, member: Member, result: JoinResult) -> None:
        """Respond to the member's parked JoinGroup, if there is one."""
        if member.join_reply is not None:
            self.joins.append((member.join_reply, result))
            member.join_reply = None

    def respond_to_sync(self, member: Member, result: SyncResult) -> None:
        """Respond to the member's parked SyncGroup, if there is one."""
        if member.sync_reply is not None:
            self.syncs.append((member.sync_reply, result))
            member.sync_reply = None
