"""UpdateFeatures (API key 57): change which feature levels the cluster has finalised (KIP-584, KIP-778).

Only the controller serves it, and only to clients with ALTER on the cluster. When the response is sent, this broker
itself uses the new levels; the other brokers learn them from the metadata store, and clients from their next
ApiVersions. Of a feature that is named twice the last update counts. An update that takes longer than the request's
time-out (but at least 1 s) is REQUEST_TIMED_OUT, and may still take effect.

All features change or none does, in every version, as in Apache Kafka 4: the first error is that of the request, and
then there are no results.

Versions: 0 has "allow downgrade" for a safe downgrade; 1 has upgrade types and ``validate_only``. Both name every
feature in the response of an update that succeeded; 2 names none.
"""

from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.coordinator.controller.api_error import NO_ERROR, ApiError
from oncelog.coordinator.controller.feature_changes import FeatureUpdate, UpgradeType
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_FIRST_VERSION_WITH_UPGRADE_TYPES: Final = 1
_FIRST_VERSION_WITHOUT_RESULTS: Final = 2


@handles(ApiKey.UPDATE_FEATURES, versions="0-2")
def handle_update_features(broker: Broker, context: RequestContext, request: UpdateFeaturesRequest) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return _refused(ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."))
    return _update(broker, context.api_version, request)


async def _update(broker: Broker, version: int, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    updates = list({key.feature: _update_of(key, version) for key in request.feature_updates}.values())
    errors = await broker.controller_apis.update_features(
        updates, validate_only=request.validate_only, timeout_seconds=request.timeout_ms / 1000
    )
    if isinstance(errors, ApiError):
        return _refused(errors)
    first = next((error for error in errors if error != NO_ERROR), None)
    if first is not None:
        return _refused(_of_the_whole_request(first))
    if version >= _FIRST_VERSION_WITHOUT_RESULTS:
        return UpdateFeaturesResponse()
    return UpdateFeaturesResponse(results=[UpdatableFeatureResult(feature=update.feature) for update in updates])


def _update_of(key: FeatureUpdateKey, version: int) -> FeatureUpdate:
    if version < _FIRST_VERSION_WITH_UPGRADE_TYPES:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if key.allow_downgrade else UpgradeType.UPGRADE
    else:
        known = key.upgrade_type in UpgradeType.__members__.values()
        upgrade_type = UpgradeType(key.upgrade_type) if known else UpgradeType.UNKNOWN
    return FeatureUpdate(key.feature, key.max_version_level, upgrade_type)


def _of_the_whole_request(error: ApiError) -> ApiError:
    return ApiError(
        error.code, f"The update failed for all features since the following feature had an error: {error.message}"
    )


def _refused(error: ApiError) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
