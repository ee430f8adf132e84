"""The version of each API to send to a broker: the newest that both sides support. Pure.

The first request on a connection is ApiVersions, in its newest version that this side supports. An older broker
responds in version 0 with UNSUPPORTED_VERSION and its own range of that API (KIP-511), and the request is sent again in
that range, or in version 0 if the response has no range.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import parse_response
from oncelog.protocol.messages.api_versions import ApiVersionsResponse
from oncelog.protocol.schema import MessageType, Versions

_FIRST_WITH_BATCHES: Final[Mapping[int, int]] = {ApiKey.PRODUCE: 3, ApiKey.FETCH: 4}
"""Versions before have records of formats that only brokers know, for the sake of old clients."""
_CORRELATION_ID_AND_ERROR: Final = Struct(">ih")


class FinalizedFeatures(NamedTuple):
    """What a cluster has finalised, with the epoch that grows with every change (KIP-584); epoch -1: it did not say."""

    epoch: int
    levels: Mapping[str, int]

    @property
    def transaction_version(self) -> int:
        """The level of ``transaction.version``: 2 allows transaction protocol version 2 (KIP-890)."""
        return self.levels.get("transaction.version", 0)


NO_FEATURES: Final = FinalizedFeatures(-1, {})


def newer_features(known: FinalizedFeatures, received: FinalizedFeatures) -> FinalizedFeatures:
    """Return the features with the larger epoch: brokers learn of a change one after the other."""
    return received if received.epoch > known.epoch else known


class BrokerVersions:
    """What a broker said about itself: versions of APIs, and the features that its cluster has finalised."""

    __slots__ = ("_chosen", "_ranges", "features")

    def __init__(self, response: ApiVersionsResponse) -> None:
        self._ranges: Mapping[int, Versions] = {
            served.api_key: Versions(served.min_version, served.max_version) for served in response.api_keys
        }
        self._chosen: dict[tuple[MessageType, int | None], int | None] = {}
        """Earlier results; there are as many entries as kinds of requests."""
        self.features = FinalizedFeatures(
            response.finalized_features_epoch,
            {feature.name: feature.max_version_level for feature in response.finalized_features},
        )

    def range_of(self, api_key: int) -> Versions | None:
        """Return the versions of an API that the broker serves; None if it does not have it."""
        return self._ranges.get(api_key)

    def choose(self, cls: MessageType, at_most: int | None = None) -> int | None:
        """Return the newest version of a request that both sides support; None if there is none."""
        try:
            return self._chosen[cls, at_most]
        except KeyError:
            return self._chosen.setdefault((cls, at_most), self._choose(cls, at_most))

    def _choose(self, cls: MessageType, at_most: int | None) -> int | None:
        assert cls.api_key is not None, f"{cls.__name__} is not a request"
        theirs = self._ranges.get(cls.api_key)
        if theirs is None:
            return None
        newest = min(theirs.last, cls.versions.last if at_most is None else at_most)
        oldest = max(theirs.first, _FIRST_WITH_BATCHES.get(cls.api_key, cls.versions.first))
        return newest if newest >= oldest and newest in cls.versions else None


def parse_api_versions_response(frame: memoryview, requested: int) -> tuple[int, ApiVersionsResponse]:
    """Parse the response to an ApiVersions request: a refusal of its version always comes in version 0."""
    refused = (
        len(frame) >= _CORRELATION_ID_AND_ERROR.size
        and _CORRELATION_ID_AND_ERROR.unpack_from(frame)[1] == ErrorCode.UNSUPPORTED_VERSION
    )
    return parse_response(ApiVersionsResponse, 0 if refused else requested, frame)


def version_to_retry(refused: ApiVersionsResponse, requested: int) -> int | None:
    """Return the version of ApiVersions to try after ``requested`` was refused; None if there is none."""
    if requested == 0:
        return None
    for served in refused.api_keys:
        if served.api_key == ApiKey.API_VERSIONS:
            newest = min(served.max_version, requested - 1)
            return newest if newest >= served.min_version else None
    return 0
