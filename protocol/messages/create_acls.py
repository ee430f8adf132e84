"""CreateAcls (API key 30): versions 1-3, flexible from 2.

Adds access control lists.

1: pattern types (KIP-290). Throttling moves to the client. 3: user resources (KIP-373).
"""

from oncelog.protocol.schema import Message, array, int8, int16, int32, string


class AclCreation(Message):
    resource_type: int = int8("0+", default=0)
    resource_name: str = string("0+", default="")
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string("0+", default="")
    host: str = string("0+", default="")
    operation: int = int8("0+", default=0)
    permission_type: int = int8("0+", default=0)


class CreateAclsRequest(Message, api_key=30, versions="1-3", flexible="2+"):
    creations: list[AclCreation] = array(AclCreation, "0+", default_factory=list)


class AclCreationResult(Message):
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default="", nullable="0+")


class CreateAclsResponse(Message, api_key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: int = int32("0+", default=0)
    results: list[AclCreationResult] = array(AclCreationResult, "0+", default_factory=list)
