"""AlterConfigs (API key 33): versions 0-2, flexible from 2.

Replaces the whole configuration of a resource; IncrementalAlterConfigs is its successor.

1: throttling moves to the client.
"""

from oncelog.protocol.schema import Message, array, boolean, int8, int16, int32, string


class AlterableConfig(Message):
    name: str = string("0+", default="")
    value: str | None = string("0+", default="", nullable="0+")


class AlterConfigsResource(Message):
    resource_type: int = int8("0+", default=0)
    resource_name: str = string("0+", default="")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+", default_factory=list)


class AlterConfigsRequest(Message, api_key=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+", default_factory=list)
    validate_only: bool = boolean("0+", default=False)


class AlterConfigsResourceResponse(Message):
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default="", nullable="0+")
    resource_type: int = int8("0+", default=0)
    resource_name: str = string("0+", default="")


class AlterConfigsResponse(Message, api_key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+", default=0)
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+", default_factory=list)
