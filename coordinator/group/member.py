"""The members of a group, and the image of them that ``__consumer_offsets`` keeps.

A member is *dynamic* (its id dies with its session) or *static* (KIP-345: it carries a ``group.instance.id``, and the
process that comes back under that name takes over its place). Metadata and assignments are opaque bytes: which
assignor the members use is their affair. The one thing read out of them is the list of topics of ``consumer`` groups
(``subscription``), because offsets of subscribed topics neither expire nor may be deleted.

``GroupImage`` is what a group metadata record holds, no more: a group that is loaded from the log equals its image.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.coordinator.group.footprint import MEMBER_BYTES, size_of_protocols
from oncelog.protocol.errors import ErrorCode

UNKNOWN_MEMBER_ID: Final = ""
UNKNOWN_GENERATION: Final = -1


class Instant(NamedTuple):
    """One moment on both clocks: the loop's, for time-outs, and the wall's, for what is written down."""

    monotonic: float
    wall_ms: int


class GroupProtocol(NamedTuple):
    """An assignment strategy that a member offers, with what it wants to tell the leader under it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberImage:
    """A member as a group metadata record keeps it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupImage:
    """A group as a group metadata record keeps it. ``state_timestamp_ms`` is None in records of before Kafka 2.1."""

    protocol_type: str | None
    generation: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int | None
    members: tuple[MemberImage, ...]

    @staticmethod
    def empty(protocol_type: str | None, generation: int, at: Instant) -> "GroupImage":
        return GroupImage(
            protocol_type=protocol_type,
            generation=generation,
            protocol_name=None,
            leader=None,
            state_timestamp_ms=at.wall_ms,
            members=(),
        )


class MemberInfo(NamedTuple):
    """A member in the response to its generation's leader."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """The result of a JoinGroup."""

    error: ErrorCode
    member_id: str
    generation: int = UNKNOWN_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[MemberInfo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """The result of a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


JoinReply = Callable[[JoinResult], None]
SyncReply = Callable[[SyncResult], None]


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a live group. ``join_reply`` and ``sync_reply`` are set while its request is parked."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[GroupProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    """Not yet in any generation: its parked JoinGroup may time out, since it cannot send heartbeats."""
    join_reply: JoinReply | None = field(default=None, repr=False)
    sync_reply: SyncReply | None = field(default=None, repr=False)

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_parked(self) -> bool:
        return self.join_reply is not None or self.sync_reply is not None

    @property
    def size(self) -> int:
        """Bytes of memory, its assignment apart."""
        return MEMBER_BYTES + size_of_protocols(self.protocols)

    def metadata(self, protocol_name: str) -> bytes:
        return next(protocol.metadata for protocol in self.protocols if protocol.name == protocol_name)

    def vote(self, candidates: frozenset[str]) -> str:
        """Return its most preferred protocol among those that every member supports."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    def image(self, subscription: bytes, assignment: bytes) -> MemberImage:
        return MemberImage(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=subscription,
            assignment=assignment,
        )

    @staticmethod
    def from_image(image: MemberImage, protocol_name: str) -> "Member":
        return Member(
            member_id=image.member_id,
            group_instance_id=image.group_instance_id,
            client_id=image.client_id,
            client_host=image.client_host,
            rebalance_timeout_ms=image.rebalance_timeout_ms,
            session_timeout_ms=image.session_timeout_ms,
            protocols=(GroupProtocol(protocol_name, image.subscription),),
            assignment=image.assignment,
        )


def select_protocol(members: Iterable[Member]) -> str:
    """Return the elected protocol: each member votes for its first one that all support; ties go by seniority."""
    voters = list(members)
    support = Counter(protocol.name for member in voters for protocol in member.protocols)
    candidates = frozenset(name for name, supporters in support.items() if supporters == len(voters))
    votes = Counter(member.vote(candidates) for member in voters)
    return max(votes, key=lambda name: votes[name])
