"""DeleteAcls (API key 31): versions 1-3, flexible from 2.

Removes the access control lists that match filters.

1: pattern types (KIP-290). Throttling moves to the client. 3: user resources (KIP-373).
"""

from oncelog.protocol.schema import Message, array, int8, int16, int32, string


class DeleteAclsFilter(Message):
    resource_type_filter: int = int8("0+", default=0)
    resource_name_filter: str | None = string("0+", default="", nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("0+", default="", nullable="0+")
    host_filter: str | None = string("0+", default="", nullable="0+")
    operation: int = int8("0+", default=0)
    permission_type: int = int8("0+", default=0)


class DeleteAclsRequest(Message, api_key=31, versions="1-3", flexible="2+"):
    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter, "0+", default_factory=list)


class DeleteAclsMatchingAcl(Message):
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default="", nullable="0+")
    resource_type: int = int8("0+", default=0)
    resource_name: str = string("0+", default="")
    pattern_type: int = int8("1+", default=3)
    principal: str = string("0+", default="")
    host: str = string("0+", default="")
    operation: int = int8("0+", default=0)
    permission_type: int = int8("0+", default=0)


class DeleteAclsFilterResult(Message):
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default="", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl, "0+", default_factory=list)


class DeleteAclsResponse(Message, api_key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: int = int32("0+", default=0)
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult, "0+", default_factory=list)
