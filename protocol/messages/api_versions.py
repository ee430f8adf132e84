"""ApiVersions (API key 18): versions 0-4, flexible from 3.

The first request of most connections: which APIs and versions does the broker serve?

A broker that does not know the requested version responds in version 0 with UNSUPPORTED_VERSION and its own range of
this API (KIP-511). The response header never has tagged fields, whatever the version.
1: throttle time. 2: throttling moves to the client. 3: the client names its software; features are tagged fields.
4: a supported feature may have the minimum version 0, which older clients take for an error.
"""

from oncelog.protocol.schema import Message, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, api_key=18, versions="0-4", flexible="3+"):
    client_software_name: str = string("3+", default="")
    client_software_version: str = string("3+", default="")


class ApiVersion(Message):
    api_key: int = int16("0+", default=0)
    min_version: int = int16("0+", default=0)
    max_version: int = int16("0+", default=0)


class SupportedFeatureKey(Message):
    name: str = string("3+", default="")
    min_version: int = int16("3+", default=0)
    max_version: int = int16("3+", default=0)


class FinalizedFeatureKey(Message):
    name: str = string("3+", default="")
    max_version_level: int = int16("3+", default=0)
    min_version_level: int = int16("3+", default=0)


class ApiVersionsResponse(Message, api_key=18, versions="0-4", flexible="3+"):
    error_code: int = int16("0+", default=0)
    api_keys: list[ApiVersion] = array(ApiVersion, "0+", default_factory=list)
    throttle_time_ms: int = int32("1+", default=0)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", default_factory=list, tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", default_factory=list, tag=2)
    zk_migration_ready: bool = boolean("3+", default=False, tag=3)
