"""DescribeAcls (API key 29): versions 1-3, flexible from 2.

Lists the access control lists that match a filter.

1: pattern types (KIP-290). Throttling moves to the client. 3: user resources (KIP-373).
"""

from oncelog.protocol.schema import Message, array, int8, int16, int32, string


class DescribeAclsRequest(Message, api_key=29, versions="1-3", flexible="2+"):
    resource_type_filter: int = int8("0+", default=0)
    resource_name_filter: str | None = string("0+", default="", nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("0+", default="", nullable="0+")
    host_filter: str | None = string("0+", default="", nullable="0+")
    operation: int = int8("0+", default=0)
    permission_type: int = int8("0+", default=0)


class AclDescription(Message):
    principal: str = string("0+", default="")
    host: str = string("0+", default="")
    operation: int = int8("0+", default=0)
    permission_type: int = int8("0+", default=0)


class DescribeAclsResource(Message):
    resource_type: int = int8("0+", default=0)
    resource_name: str = string("0+", default="")
    pattern_type: int = int8("1+", default=3)
    acls: list[AclDescription] = array(AclDescription, "0+", default_factory=list)


class DescribeAclsResponse(Message, api_key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default="", nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource, "0+", default_factory=list)
