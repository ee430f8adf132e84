"""ListConfigResources (API key 74): versions 0-1, all flexible.

Lists the resources that have a configuration. Version 0 was called ListClientMetricsResources (KIP-714).

1: types of resources (KIP-1142); without any, all are listed.
"""

from oncelog.protocol.schema import Message, array, array_of, int8, int16, int32, string


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+"):
    resource_types: list[int] = array_of(int8, "1+", default_factory=list)


class ConfigResource(Message):
    resource_name: str = string("0+", default="")
    resource_type: int = int8("1+", default=16)


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    config_resources: list[ConfigResource] = array(ConfigResource, "0+", default_factory=list)
