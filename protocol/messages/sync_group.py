"""SyncGroup (API key 14): versions 0-5, flexible from 4.

The leader of a classic group hands in the assignment, the others receive theirs.

1: throttle time. 2: throttling moves to the client. 3: static members (KIP-345). 5: protocol type and name, which must
be those of the group (KIP-559).
"""

from oncelog.protocol.schema import Message, array, binary, int16, int32, string


class SyncGroupRequestAssignment(Message):
    member_id: str = string("0+", default="")
    assignment: bytes = binary("0+", default=b"")


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    group_id: str = string("0+", default="")
    generation_id: int = int32("0+", default=0)
    member_id: str = string("0+", default="")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    protocol_type: str | None = string("5+", default=None, nullable="5+")
    protocol_name: str | None = string("5+", default=None, nullable="5+")
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, "0+", default_factory=list)


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16("0+", default=0)
    protocol_type: str | None = string("5+", default=None, nullable="5+")
    protocol_name: str | None = string("5+", default=None, nullable="5+")
    assignment: bytes = binary("0+", default=b"")
