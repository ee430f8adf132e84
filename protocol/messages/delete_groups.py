"""DeleteGroups (API key 42): versions 0-2, flexible from 2.

Deletes groups that have no members.

1: throttling moves to the client.
"""

from oncelog.protocol.schema import Message, array, array_of, int16, int32, string


class DeleteGroupsRequest(Message, api_key=42, versions="0-2", flexible="2+"):
    groups_names: list[str] = array_of(string, "0+", default_factory=list)


class DeletableGroupResult(Message):
    group_id: str = string("0+", default="")
    error_code: int = int16("0+", default=0)


class DeleteGroupsResponse(Message, api_key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+", default=0)
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+", default_factory=list)
