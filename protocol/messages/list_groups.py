"""ListGroups (API key 16): versions 0-5, flexible from 3.

The groups that a broker coordinates.

1: throttle time. 2: throttling moves to the client. 4: filter by state (KIP-518). 5: filter by type (KIP-848).
"""

from oncelog.protocol.schema import Message, array, array_of, int16, int32, string


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    states_filter: list[str] = array_of(string, "4+", default_factory=list)
    types_filter: list[str] = array_of(string, "5+", default_factory=list)


class ListedGroup(Message):
    group_id: str = string("0+", default="")
    protocol_type: str = string("0+", default="")
    group_state: str = string("4+", default="")
    group_type: str = string("5+", default="")


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16("0+", default=0)
    groups: list[ListedGroup] = array(ListedGroup, "0+", default_factory=list)
