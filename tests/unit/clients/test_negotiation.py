"""Which version is sent to whom."""

import pytest

from oncelog.clients.negotiation import (
    NO_FEATURES,
    BrokerVersions,
    FinalizedFeatures,
    newer_features,
    parse_api_versions_response,
    version_to_retry,
)
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_response
from oncelog.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from oncelog.protocol.messages.fetch import FetchRequest
from oncelog.protocol.messages.produce import ProduceRequest


def versions(first: int, last: int, api_key: int = ApiKey.FETCH) -> BrokerVersions:
    served = ApiVersion(api_key=api_key, min_version=first, max_version=last)
    return BrokerVersions(ApiVersionsResponse(api_keys=[served]))


@pytest.mark.parametrize(
    ("first", "last", "at_most", "chosen"),
    [
        (0, 6, None, 6),
        (0, 99, None, 18),
        (0, 99, 12, 12),
        (0, 6, 12, 6),
        (4, 4, None, 4),
        (0, 3, None, None),  # Older than anything we can write.
        (19, 25, None, None),  # Newer than anything we can write.
        (13, 17, 12, None),
    ],
)
def test_version_choice_returns_the_newest_common_one(
    first: int, last: int, at_most: int | None, chosen: int | None
) -> None:
    assert versions(first, last).choose(FetchRequest, at_most) == chosen


def test_version_choice_for_a_missing_api_returns_none() -> None:
    assert versions(0, 9).choose(ProduceRequest) is None


def test_finalised_features_are_kept() -> None:
    feature = FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=0)
    reported = BrokerVersions(ApiVersionsResponse(finalized_features=[feature], finalized_features_epoch=7))
    assert reported.features == FinalizedFeatures(7, {"transaction.version": 2})
    assert reported.features.transaction_version == 2
    assert NO_FEATURES.transaction_version == 0


def test_features_of_the_larger_epoch_win_in_any_order() -> None:
    """A downgrade is a change like any other; a broker that has not heard of it yet is wrong."""
    upgraded = FinalizedFeatures(7, {"transaction.version": 2})
    downgraded = FinalizedFeatures(8, {"transaction.version": 1})
    assert newer_features(upgraded, downgraded) is newer_features(downgraded, upgraded) is downgraded
    assert newer_features(upgraded, NO_FEATURES) is upgraded


def frame(response: ApiVersionsResponse, version: int) -> memoryview:
    return memoryview(b"".join(encode_response(5, response, version)))[4:]


def test_refusal_is_parsed_in_version_0() -> None:
    """KIP-511: the broker responds in the only version that every client reads."""
    served = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2)
    refused = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[served])
    assert parse_api_versions_response(frame(refused, 0), 4) == (5, refused)


def test_response_is_parsed_in_the_requested_version() -> None:
    response = ApiVersionsResponse(throttle_time_ms=3, finalized_features_epoch=9)
    assert parse_api_versions_response(frame(response, 4), 4) == (5, response)


@pytest.mark.parametrize(
    ("reported", "requested", "next_version"),
    [((0, 2), 4, 2), ((0, 9), 4, 3), ((4, 9), 4, None), (None, 4, 0), (None, 0, None), ((0, 0), 0, None)],
)
def test_version_to_retry_follows_the_refusal(
    reported: tuple[int, int] | None, requested: int, next_version: int | None
) -> None:
    keys = (
        [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=reported[0], max_version=reported[1])] if reported else []
    )
    assert version_to_retry(ApiVersionsResponse(api_keys=keys), requested) == next_version
