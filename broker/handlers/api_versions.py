"""ApiVersions (API key 18): which APIs and versions are served, computed from the handlers.

A client sends this first, before it knows anything; so the response to an unknown version has version 0, with
UNSUPPORTED_VERSION and the one range that lets the client try again: that of ApiVersions itself (KIP-511). The response
header never has tagged fields, for the same reason.

Versions: 1 returns the throttle time; 3 is flexible, names the client's software, whose name and version must be plain
words, and returns features (KIP-584): what this broker supports, and what is finalised, with an epoch by which clients
know the newer of two responses. Newer Java clients use version 2 of transactions because of it. 4 also returns
supported features whose lowest level is 0; clients of version 3 cannot parse those (KAFKA-17011, KAFKA-17492).
"""

import re
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.network.heartbeats import is_heartbeat
from oncelog.broker.parts import Broker
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_VERSION_WITH_SOFTWARE: Final = 3
_FIRST_VERSION_WITH_LEVEL_0: Final = 4


@handles(ApiKey.API_VERSIONS, versions="0-4")
def handle_api_versions(broker: Broker, context: RequestContext, request: ApiVersionsRequest) -> Outcome:
    if context.api_version not in handle_api_versions.versions:
        return _only_itself(ErrorCode.UNSUPPORTED_VERSION)
    if is_heartbeat(context.client_id):
        context.connection.carries_heartbeats = True
    if context.api_version >= _FIRST_VERSION_WITH_SOFTWARE:
        if not _SOFTWARE.fullmatch(request.client_software_name):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if not _SOFTWARE.fullmatch(request.client_software_version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.client_software_name = request.client_software_name
        context.connection.client_software_version = request.client_software_version
    context.connection.note_greeting()
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(
                api_key=handler.api_key, min_version=handler.advertised.first, max_version=handler.advertised.last
            )
            for handler in broker.handlers
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in broker.features.supported.items()
            if lowest > 0 or context.api_version >= _FIRST_VERSION_WITH_LEVEL_0
        ],
        finalized_features_epoch=broker.features.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in broker.features.levels.items()
        ],
    )


def _only_itself(error: ErrorCode) -> ApiVersionsResponse:
    served = handle_api_versions.versions
    return ApiVersionsResponse(
        error_code=error,
        api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=served.first, max_version=served.last)],
    )
