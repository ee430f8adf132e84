"""Feature levels: those that brokers support, those that the cluster has finalised, and changes (KIP-584)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from oncelog.clients import VERSION
from oncelog.clients.admin.item_requests import ANY_VERSION, send_items
from oncelog.clients.checked_fields import checked_fields
from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import SOFTWARE_NAME
from oncelog.clients.errors import Refusal, refusal, require_success
from oncelog.clients.routes import Controller
from oncelog.protocol.schema import Versions

_FIRST_WITH_VALIDATE_ONLY: Final = 1
"""The version of UpdateFeatures from which it can only check; an older broker would make the change."""


class UpgradeType(IntEnum):
    """The allowed direction of a change, by Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@checked_fields()
@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """A new level of one feature; 0 removes it. A lower level has to be allowed as a downgrade."""

    level: int
    allow_downgrade: bool = False
    unsafe: bool = False
    """Allow also a downgrade that loses data."""

    @property
    def upgrade_type(self) -> UpgradeType:
        """What the two flags come to in a request."""
        if self.unsafe:
            return UpgradeType.UNSAFE_DOWNGRADE
        return UpgradeType.SAFE_DOWNGRADE if self.allow_downgrade else UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureDescription:
    """One feature: the levels that the controller supports, if it reports them, and the finalised level."""

    feature: str
    lowest: int | None
    highest: int | None
    finalized: int


@dataclass(frozen=True, slots=True)
class FeatureMetadata:
    """All features, by name; the epoch grows with every change of a finalised level, and is -1 if there is none."""

    epoch: int
    features: tuple[FeatureDescription, ...]


async def describe_features(cluster: Cluster) -> FeatureMetadata:
    """Return the features of the controller's ApiVersions response. Raises ``BrokerRefused``."""
    from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

    request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION)
    response = await cluster.call(Controller(), request, ApiVersionsResponse, errors=lambda r: [r.error_code])
    require_success("features", response.error_code)
    supported = {feature.name: feature for feature in response.supported_features}
    finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
    return FeatureMetadata(
        response.finalized_features_epoch,
        tuple(
            FeatureDescription(
                feature=name,
                lowest=supported[name].min_version if name in supported else None,
                highest=supported[name].max_version if name in supported else None,
                finalized=finalized.get(name, 0),
            )
            for name in sorted(supported.keys() | finalized.keys())
        ),
    )


async def update_features(
    cluster: Cluster, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False
) -> dict[str, Refusal | None]:
    """Change levels, or with ``validate_only`` only check them. Newer brokers change all of them or none.

    A refused level counts as changed if an earlier attempt of the same call had no response, and it is finalised now.
    """
    from oncelog.protocol.messages.update_features import (
        FeatureUpdateKey,
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )

    def build(pending: Mapping[str, FeatureUpdate], timeout_ms: int) -> UpdateFeaturesRequest:
        return UpdateFeaturesRequest(
            timeout_ms=timeout_ms,
            feature_updates=[
                FeatureUpdateKey(
                    feature=name,
                    max_version_level=update.level,
                    allow_downgrade=update.allow_downgrade or update.unsafe,
                    upgrade_type=update.upgrade_type,
                )
                for name, update in pending.items()
            ],
            validate_only=validate_only,
        )

    def split(response: UpdateFeaturesResponse) -> Iterable[tuple[str, Refusal | None]]:
        whole = refusal(response.error_code, response.error_message)
        results = {result.feature: refusal(result.error_code, result.error_message) for result in response.results}
        return ((name, whole or results.get(name)) for name in updates)

    updated = await send_items(
        cluster,
        Controller(),
        updates,
        build,
        UpdateFeaturesResponse,
        split,
        versions=Versions(_FIRST_WITH_VALIDATE_ONLY, ANY_VERSION.last) if validate_only else ANY_VERSION,
    )
    in_doubt = {name for name in updated.maybe_done if updated.outcomes[name] is not None}
    if not in_doubt or validate_only:
        return updated.outcomes
    levels = {feature.feature: feature.finalized for feature in (await describe_features(cluster)).features}
    return updated.with_done(name for name in in_doubt if levels.get(name, 0) == updates[name].level)
