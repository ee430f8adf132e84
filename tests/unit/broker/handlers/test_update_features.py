"""UpdateFeatures on a whole broker, and what ApiVersions says afterwards."""

import asyncio

import pytest

from oncelog.broker.handlers.api_versions import handle_api_versions
from oncelog.broker.handlers.update_features import handle_update_features
from oncelog.broker.metadata.metadata_journal import MetadataJournal
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation
from oncelog.coordinator.controller.finalized_features import IncompatibleFeatures
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.local import LocalEnsemble
from oncelog.coordinator.metadata_store.znodes import FinalizedFeatures
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.handlers.administration import Denies, after_power_loss, ask, new_disk, running_broker

TV = "transaction.version"
ELR = "eligible.leader.replicas.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3


def key(level: int, upgrade_type: int = UPGRADE, *, feature: str = TV, allow: bool = False) -> FeatureUpdateKey:
    return FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type, allow_downgrade=allow)


async def update(
    broker: Broker, *keys: FeatureUpdateKey, version: int = 2, validate_only: bool = False
) -> UpdateFeaturesResponse:
    """Both messages as the wire has them in this version."""
    request = UpdateFeaturesRequest(feature_updates=list(keys), validate_only=validate_only)
    received = decode(UpdateFeaturesRequest, version, encode(request, version))
    response = await ask(broker, handle_update_features, received, UpdateFeaturesResponse, version)
    return decode(UpdateFeaturesResponse, version, encode(response, version))


async def reported(broker: Broker) -> tuple[dict[str, int], int]:
    """What a client is told: finalised levels, and their epoch."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    response = await ask(broker, handle_api_versions, request, ApiVersionsResponse, 4)
    return {f.name: f.max_version_level for f in response.finalized_features}, response.finalized_features_epoch


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
async def test_feature_level_is_lowered_and_raised_again(kind: int) -> None:
    async with running_broker() as broker:
        assert await reported(broker) == ({TV: 2, ELR: 1}, 0)
        assert await update(broker, key(1, kind)) == UpdateFeaturesResponse()
        assert broker.features.transaction_version == 1
        assert await reported(broker) == ({TV: 1, ELR: 1}, 1)
        await update(broker, key(0, kind))
        assert await reported(broker) == ({ELR: 1}, 2)
        await update(broker, key(2))
        assert await reported(broker) == ({TV: 2, ELR: 1}, 3)


async def test_dry_run_changes_nothing() -> None:
    async with running_broker() as broker:
        assert await update(broker, key(0, SAFE), validate_only=True) == UpdateFeaturesResponse()
        refused = await update(broker, key(3), validate_only=True)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert await reported(broker) == ({TV: 2, ELR: 1}, 0)


@pytest.mark.parametrize("version", range(3))
async def test_update_features_with_one_refused_update_changes_none(version: int) -> None:
    """As Kafka 4.3 in every version: the first error is that of the request, and there are no results."""
    async with running_broker() as broker:
        response = await update(broker, key(1, SAFE, allow=True), key(1, feature="nonsense"), version=version)
        assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert response.error_message == (
            "The update failed for all features since the following feature had an error: Invalid update version 1 "
            "for feature nonsense. Local controller 1 does not support this feature."
        )
        assert response.results == []
        assert await reported(broker) == ({TV: 2, ELR: 1}, 0)


@pytest.mark.parametrize(("version", "named"), [(0, [TV]), (1, [TV]), (2, [])])
async def test_update_features_that_succeeds_names_features_before_version_2(version: int, named: list[str]) -> None:
    async with running_broker() as broker:
        response = await update(broker, key(1, SAFE, allow=True), version=version)
        assert (response.error_code, [result.feature for result in response.results]) == (ErrorCode.NONE, named)
        assert all(result.error_code == ErrorCode.NONE for result in response.results)
        assert await reported(broker) == ({TV: 1, ELR: 1}, 1)


async def test_update_features_version_0_without_allow_downgrade_is_refused() -> None:
    async with running_broker() as broker:
        assert (await update(broker, key(1), version=0)).error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert await reported(broker) == ({TV: 2, ELR: 1}, 0)


@pytest.mark.parametrize("kind", [0, 4, -1])
async def test_unknown_upgrade_type_is_refused(kind: int) -> None:
    async with running_broker() as broker:
        response = await update(broker, key(1, kind))
        assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "does not support the given upgrade type" in (response.error_message or "")


@pytest.mark.parametrize("version", range(3))
async def test_update_features_needs_alter_on_the_cluster(version: int) -> None:
    async with running_broker() as broker:
        broker.authorizer = Denies([Operation.ALTER])
        response = await update(broker, key(1, SAFE, allow=True), version=version)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert await reported(broker) == ({TV: 2, ELR: 1}, 0)


@pytest.mark.parametrize("version", range(3))
async def test_update_features_at_another_broker_is_not_controller(version: int) -> None:
    async with running_broker() as broker:
        pass
    response = await update(broker, key(1, SAFE, allow=True), version=version)
    assert response.error_code == ErrorCode.NOT_CONTROLLER
    assert response.results == []
    assert broker.features.transaction_version == 2


async def test_updated_feature_survives_a_power_loss() -> None:
    disk = new_disk()
    async with running_broker(disk) as broker:
        await update(broker, key(1, SAFE))
        await update(broker, key(0, SAFE))
        survivor = after_power_loss(disk)
    async with running_broker(survivor) as broker:
        assert await reported(broker) == ({ELR: 1}, 2)


@pytest.mark.parametrize("level", [0, 1, 2])
async def test_level_of_a_new_cluster_is_a_setting(level: int) -> None:
    settings = {"oncelog_transaction_version": str(level), "oncelog_eligible_leader_replicas_version": "0"}
    async with running_broker(**settings) as broker:
        assert await reported(broker) == ({TV: level} if level else {}, 0)


async def test_broker_that_does_not_support_what_is_finalised_does_not_start() -> None:
    disk = new_disk()
    async with running_broker(disk):
        pass
    await finalize(disk, FinalizedFeatures(levels={TV: 3}))
    with pytest.raises(IncompatibleFeatures, match=r"level 3.*supports 0 to 2.*oncelog feature downgrade"):
        async with running_broker(disk):
            pass
    await finalize(disk, FinalizedFeatures(levels={TV: 1}))
    async with running_broker(disk) as broker:
        assert await reported(broker) == ({TV: 1}, 2)


async def test_broker_stops_when_a_level_is_finalised_that_it_does_not_support() -> None:
    async with running_broker() as broker:
        session = broker.controller._store.session
        assert session is not None
        await session.set(paths.FEATURE, znodes.encode_features(FinalizedFeatures(levels={TV: 3})))
        async with asyncio.timeout(5):
            assert "level 3" in await broker.failure
        assert await reported(broker) == ({TV: 2, ELR: 1}, 0)


async def finalize(disk: SimDisk, features: FinalizedFeatures) -> None:
    """Write what a broker of another version has finalised, while none runs."""
    journal = MetadataJournal(disk, "/data")
    session = LocalEnsemble(journal).connect().session
    assert session is not None
    await session.set(paths.FEATURE, znodes.encode_features(features))
    journal.close()
