"""UpdateFeatures (API key 57): versions 0-2, flexible from 0.

Changes which levels of features the cluster has finalised (KIP-584). A level below 1 takes the feature back.

1: upgrade types instead of ``allow_downgrade``, and ``validate_only`` (KIP-778). 2: one error for the whole request
instead of one for each feature.
"""

from oncelog.protocol.schema import Message, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(Message):
    feature: str = string("0+", default="")
    max_version_level: int = int16("0+", default=0)
    allow_downgrade: bool = boolean("0", default=False)
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Message, api_key=57, versions="0-2", flexible="0+"):
    timeout_ms: int = int32("0+", default=60_000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey, "0+", default_factory=list)
    validate_only: bool = boolean("1+", default=False)


class UpdatableFeatureResult(Message):
    feature: str = string("0+", default="")
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default=None, nullable="0+")


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default=None, nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", default_factory=list)
