"""IncrementalAlterConfigs (API key 44): versions 0-1, flexible from 1.

Sets, deletes, appends to or subtracts from single entries of a configuration (KIP-339).
"""

from oncelog.protocol.schema import Message, array, boolean, int8, int16, int32, string


class AlterableConfig(Message):
    name: str = string("0+", default="")
    config_operation: int = int8("0+", default=0)
    value: str | None = string("0+", default="", nullable="0+")


class AlterConfigsResource(Message):
    resource_type: int = int8("0+", default=0)
    resource_name: str = string("0+", default="")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+", default_factory=list)


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+", default_factory=list)
    validate_only: bool = boolean("0+", default=False)


class AlterConfigsResourceResponse(Message):
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default="", nullable="0+")
    resource_type: int = int8("0+", default=0)
    resource_name: str = string("0+", default="")


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32("0+", default=0)
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+", default_factory=list)
