"""DescribeGroups (API key 15): versions 0-6, flexible from 5.

Members, state and assignment of consumer groups.

1: throttle time. 2: throttling moves to the client. 3: authorized operations on request. 4: static members' ids.
6: a group that does not exist is GROUP_ID_NOT_FOUND with a message, not a group in state Dead (KIP-1043).
"""

from oncelog.protocol.schema import Message, array, array_of, binary, boolean, int16, int32, string


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    groups: list[str] = array_of(string, "0+", default_factory=list)
    include_authorized_operations: bool = boolean("3+", default=False)


class DescribedGroupMember(Message):
    member_id: str = string("0+", default="")
    group_instance_id: str | None = string("4+", default=None, nullable="4+")
    client_id: str = string("0+", default="")
    client_host: str = string("0+", default="")
    member_metadata: bytes = binary("0+", default=b"")
    member_assignment: bytes = binary("0+", default=b"")


class DescribedGroup(Message):
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("6+", default=None, nullable="6+")
    group_id: str = string("0+", default="")
    group_state: str = string("0+", default="")
    protocol_type: str = string("0+", default="")
    protocol_data: str = string("0+", default="")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, "0+", default_factory=list)
    authorized_operations: int = int32("3+", default=-2147483648)


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = int32("1+", default=0)
    groups: list[DescribedGroup] = array(DescribedGroup, "0+", default_factory=list)
