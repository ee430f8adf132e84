"""LeaveGroup (API key 13): versions 0-5, flexible from 4.

Members leave a classic group.

1: throttle time. 2: throttling moves to the client. 3: several members, named by member or static id (KIP-345).
5: the reason for leaving (KIP-800).
"""

from oncelog.protocol.schema import Message, array, int16, int32, string


class MemberIdentity(Message):
    member_id: str = string("3+", default="")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    reason: str | None = string("5+", default=None, nullable="5+")


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    group_id: str = string("0+", default="")
    member_id: str = string("0-2", default="")
    members: list[MemberIdentity] = array(MemberIdentity, "3+", default_factory=list)


class MemberResponse(Message):
    member_id: str = string("3+", default="")
    group_instance_id: str | None = string("3+", default="", nullable="3+")
    error_code: int = int16("3+", default=0)


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16("0+", default=0)
    members: list[MemberResponse] = array(MemberResponse, "3+", default_factory=list)
