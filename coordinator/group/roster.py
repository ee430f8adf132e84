"""The members of one group, and everything that follows from them.

The leader, the static members' ids, the protocols that all support: each is kept in step with the members here and
nowhere else, so that none of them can name a member that is gone.
"""

from collections.abc import Iterable, Iterator

from oncelog.coordinator.group.member import (
    GroupProtocol,
    JoinReply,
    JoinResult,
    Member,
    MemberImage,
    MemberInfo,
    select_protocol,
)
from oncelog.coordinator.group.state import JoinRequest, Step
from oncelog.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE, Subscription
from oncelog.protocol.errors import ErrorCode


class Roster:
    """Members in order of seniority. The leader is the most senior one until a rebalance elects another."""

    __slots__ = ("_by_id", "_support", "leader", "parked_joins", "size", "static_ids")

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._support: dict[str, int] = {}
        self.leader: str | None = None
        self.parked_joins = 0
        """Members whose JoinGroup is parked."""
        self.size = 0
        """Bytes of memory that the members take, their assignments apart."""
        self.static_ids: dict[str, str] = {}
        """Group instance id → member id, of the static members."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> Member:
        return self._by_id[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def ids(self) -> list[str]:
        return list(self._by_id)

    def add(self, member: Member) -> None:
        assert member.member_id not in self._by_id
        self._by_id[member.member_id] = member
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_ids
            self.static_ids[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._count(member, 1)

    def pop(self, member_id: str) -> Member | None:
        member = self._by_id.pop(member_id, None)
        if member is None:
            return None
        if member.group_instance_id is not None:
            del self.static_ids[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._by_id), None)
        self._count(member, -1)
        return member

    def replace(self, old: Member, new: Member) -> None:
        """Give a static member's place, with seniority and leadership, to its new process."""
        assert old.group_instance_id is not None
        assert old.group_instance_id == new.group_instance_id
        self._by_id = {member.member_id: member for member in self.with_replaced(old, new)}
        self.static_ids[old.group_instance_id] = new.member_id
        if self.leader == old.member_id:
            self.leader = new.member_id
        self._count(old, -1)
        self._count(new, 1)

    def with_replaced(self, old: Member, new: Member) -> list[Member]:
        """Return the members as they would be after ``replace``."""
        return [new if member is old else member for member in self]

    def change_protocols(self, member: Member, protocols: tuple[GroupProtocol, ...]) -> None:
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def park_join(self, member: Member, reply: JoinReply) -> None:
        """Park the JoinGroup of a member of this roster."""
        self.parked_joins += member.join_reply is None
        member.join_reply = reply

    def respond_to_join(self, step: Step, member: Member, result: JoinResult) -> None:
        """Respond to the parked JoinGroup of a member of this roster, if there is one."""
        self.parked_joins -= member.join_reply is not None
        step.respond_to_join(member, result)

    def elect_leader(self) -> bool:
        """Elect a leader that has joined, to compute the assignment; return False if no member has."""
        if self.leader is not None and self._by_id[self.leader].join_reply is not None:
            return True
        successor = next((member.member_id for member in self if member.join_reply is not None), None)
        if successor is not None:
            self.leader = successor
        return successor is not None

    def validate(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Check a member's ids: FENCED_INSTANCE_ID if its place was taken, UNKNOWN_MEMBER_ID if it is not here."""
        if group_instance_id is not None:
            holder = self.static_ids.get(group_instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self._by_id else ErrorCode.UNKNOWN_MEMBER_ID

    def supports_any_of(self, protocols: Iterable[GroupProtocol]) -> bool:
        """Return whether one of ``protocols`` has the support of all members."""
        return any(self._support.get(protocol.name, 0) == len(self) for protocol in protocols)

    def select_protocol(self) -> str:
        return select_protocol(self)

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def infos(self, protocol_name: str) -> tuple[MemberInfo, ...]:
        return tuple(
            MemberInfo(member.member_id, member.group_instance_id, member.metadata(protocol_name)) for member in self
        )

    def subscription(self, protocol_type: str | None, protocol_name: str | None) -> Subscription:
        """Return what the members of a consumer group subscribe to under a protocol; of other groups it is unknown."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE or (protocol_name is None and self._by_id):
            return Subscription()
        return Subscription(member.metadata(protocol_name or "") for member in self)

    def growth(self, request: JoinRequest) -> int:
        """Return by how many bytes the roster would grow if it had the member that a request makes or changes."""
        holder = None
        if request.group_instance_id is not None:
            holder = self.static_ids.get(request.group_instance_id)
        known = self._by_id.get(request.member_id if holder is None else holder)
        return request.size - (0 if known is None else known.size)

    def _count(self, member: Member, by: int) -> None:
        self.size += by * member.size
        self.parked_joins += by * (member.join_reply is not None)
        for protocol in member.protocols:
            supporters = self._support.get(protocol.name, 0) + by
            if supporters:
                self._support[protocol.name] = supporters
            else:
                del self._support[protocol.name]


def images(members: Iterable[Member], protocol_name: str, assignments: dict[str, bytes]) -> tuple[MemberImage, ...]:
    """Return the members as a record keeps them; one that the leader left out has an empty assignment."""
    return tuple(
        member.image(member.metadata(protocol_name), assignments.get(member.member_id, b"")) for member in members
    )
