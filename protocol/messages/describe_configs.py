"""DescribeConfigs (API key 32): versions 1-4, flexible from 4.

The configuration of topics and brokers, with the source of each value.

1: synonyms and the source of each value instead of ``is_default``. 2: throttling moves to the client.
3: type and documentation of each entry (KIP-569).
"""

from oncelog.protocol.schema import Message, array, array_of, boolean, int8, int16, int32, string


class DescribeConfigsResource(Message):
    resource_type: int = int8("0+", default=0)
    resource_name: str = string("0+", default="")
    configuration_keys: list[str] | None = array_of(string, "0+", default_factory=list, nullable="0+")


class DescribeConfigsRequest(Message, api_key=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource, "0+", default_factory=list)
    include_synonyms: bool = boolean("1+", default=False)
    include_documentation: bool = boolean("3+", default=False)


class DescribeConfigsSynonym(Message):
    name: str = string("1+", default="")
    value: str | None = string("1+", default="", nullable="0+")
    source: int = int8("1+", default=0)


class DescribeConfigsResourceResult(Message):
    name: str = string("0+", default="")
    value: str | None = string("0+", default="", nullable="0+")
    read_only: bool = boolean("0+", default=False)
    config_source: int = int8("1+", default=-1)
    is_sensitive: bool = boolean("0+", default=False)
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", default_factory=list)
    config_type: int = int8("3+", default=0)
    documentation: str | None = string("3+", default="", nullable="0+")


class DescribeConfigsResult(Message):
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default="", nullable="0+")
    resource_type: int = int8("0+", default=0)
    resource_name: str = string("0+", default="")
    configs: list[DescribeConfigsResourceResult] = array(
        DescribeConfigsResourceResult, "0+", default_factory=list, shared=True
    )


class DescribeConfigsResponse(Message, api_key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: int = int32("0+", default=0)
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult, "0+", default_factory=list)
