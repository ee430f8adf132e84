"""JoinGroup (API key 11): versions 0-9, flexible from 6.

A member enters a classic group's rebalance; the response names the leader, and to it all members.

1: a rebalance time-out of its own; before, it is the session time-out. 2: throttle time. 3: throttling moves to the
client. 4: a new member first gets its id with MEMBER_ID_REQUIRED and joins again with it (KIP-394).
5: static members (KIP-345). 7: the response names the protocol type (KIP-559). 8: the reason for joining (KIP-800).
9: the response may make the leader skip the assignment.
"""

from oncelog.protocol.schema import Message, array, binary, boolean, int16, int32, string


class JoinGroupRequestProtocol(Message):
    name: str = string("0+", default="")
    metadata: bytes = binary("0+", default=b"")


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    group_id: str = string("0+", default="")
    session_timeout_ms: int = int32("0+", default=0)
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string("0+", default="")
    group_instance_id: str | None = string("5+", default=None, nullable="5+")
    protocol_type: str = string("0+", default="")
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, "0+", default_factory=list)
    reason: str | None = string("8+", default=None, nullable="8+")


class JoinGroupResponseMember(Message):
    member_id: str = string("0+", default="")
    group_instance_id: str | None = string("5+", default=None, nullable="5+")
    metadata: bytes = binary("0+", default=b"")


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = int32("2+", default=0)
    error_code: int = int16("0+", default=0)
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", default=None, nullable="7+")
    protocol_name: str | None = string("0+", default="", nullable="7+")
    leader: str = string("0+", default="")
    skip_assignment: bool = boolean("9+", default=False)
    member_id: str = string("0+", default="")
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, "0+", default_factory=list)
