"""Feature levels: what a new cluster finalises, who may change it, and what brokers make of it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from oncelog.coordinator.controller.api_error import NO_ERROR, NOT_CONTROLLER, ApiError
from oncelog.coordinator.controller.cluster_state import LiveBroker
from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.controller_election import stand_for_election
from oncelog.coordinator.controller.feature_changes import (
    FeatureUpdate,
    UpgradeType,
    initial_levels,
    update_features,
    why_refused,
)
from oncelog.coordinator.controller.finalized_features import FinalizedFeatureCache, IncompatibleFeatures
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import MultiResult, Operation, Session, Stat
from oncelog.coordinator.metadata_store.znodes import BrokerRegistration, FinalizedFeatures
from oncelog.protocol.errors import ErrorCode
from tests.unit.coordinator.controller.cluster import ClusterUnderTest, running_cluster

TV = "transaction.version"
ELR = "eligible.leader.replicas.version"
LEVEL_0_TO_2 = {TV: (0, 2)}
UPGRADE, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


def finalized(**levels: int) -> FinalizedFeatures:
    return FinalizedFeatures(levels={name.replace("_", "."): level for name, level in levels.items()})


def written(version: int, *, at: int | None = None) -> Stat:
    """A version of the znode, and the transaction that wrote it."""
    return Stat(czxid=0, mzxid=version if at is None else at, version=version)


async def update(cluster: ClusterUnderTest, *updates: FeatureUpdate, **options: bool) -> list[ErrorCode]:
    errors = await cluster.apis.update_features(updates, **options)
    assert not isinstance(errors, ApiError)
    return [error.code for error in errors]


def nobody() -> None:
    pass


class TestCache:
    def test_feature_cache_is_empty_before_the_first_read(self) -> None:
        cache = FinalizedFeatureCache()
        assert (dict(cache.levels), cache.epoch, cache.transaction_version) == ({}, -1, 0)

    def test_older_epoch_changes_no_level(self) -> None:
        cache = FinalizedFeatureCache()
        cache.learn(finalized(transaction_version=2), written(5))
        cache.learn(finalized(transaction_version=1), written(4))
        assert (dict(cache.levels), cache.epoch, cache.transaction_version) == ({TV: 2}, 5, 2)
        cache.learn(finalized(), written(6))
        assert (dict(cache.levels), cache.epoch, cache.transaction_version) == ({}, 6, 0)

    @pytest.mark.parametrize("levels", [{"transaction_version": 3}, {"group_version": 1}])
    def test_level_that_is_not_supported_is_not_taken(self, levels: dict[str, int]) -> None:
        cache = FinalizedFeatureCache()
        cache.learn(finalized(transaction_version=1), written(1))
        with pytest.raises(IncompatibleFeatures, match="oncelog feature downgrade"):
            cache.learn(finalized(**levels), written(2))
        assert (dict(cache.levels), cache.epoch) == ({TV: 1}, 1)

    def test_recreated_znode_is_newer_with_any_version(self) -> None:
        cache = FinalizedFeatureCache()
        cache.learn(finalized(transaction_version=2), written(5, at=100))
        cache.learn(finalized(transaction_version=1), written(0, at=120))
        assert (cache.epoch, cache.transaction_version) == (0, 1)
        cache.learn(finalized(transaction_version=2), written(6, at=110))
        assert (cache.epoch, cache.transaction_version) == (0, 1)

    async def test_brokers_follow_a_znode_that_was_deleted_and_made_anew(self) -> None:
        async with running_cluster(1, 2) as cluster:
            session = cluster.members[1].session
            await update(cluster, FeatureUpdate(TV, 1, SAFE))
            await session.delete(paths.FEATURE)
            await cluster.settle()
            await session.create(paths.FEATURE, znodes.encode_features(finalized(transaction_version=2)))
            await cluster.settle()
            for member in cluster.members.values():
                assert (member.features.transaction_version, member.features.epoch) == (2, 0)

    async def test_new_controller_writes_deleted_levels_again(self) -> None:
        async with running_cluster(1, 2) as cluster:
            session = cluster.members[2].session
            await update(cluster, FeatureUpdate(TV, 1, SAFE))
            await cluster.settle()
            await session.delete(paths.FEATURE)
            await session.delete(paths.CONTROLLER)
            await cluster.settle()
            znode = await session.get(paths.FEATURE)
            assert znode is not None
            assert znodes.decode_features(znode.data) == finalized(transaction_version=1)
            for member in cluster.members.values():
                assert (member.features.transaction_version, member.features.epoch) == (1, 0)

    async def test_known_levels_outlive_their_znode(self) -> None:
        async with running_cluster(1) as cluster:
            await cluster.members[1].session.delete(paths.FEATURE)
            await cluster.settle()
            assert cluster.members[1].features.transaction_version == 2
            assert cluster.refusals[1] == []

    async def test_incomprehensible_features_stop_the_broker_and_change_nothing(self) -> None:
        async with running_cluster(1) as cluster:
            member = cluster.members[1]
            await member.session.set(paths.FEATURE, b"nonsense")
            await cluster.settle()
            assert member.features.transaction_version == 2
            assert len(cluster.refusals[1]) == 1
            assert "/feature" in cluster.refusals[1][0]
            with pytest.raises(IncompatibleFeatures, match="/feature"):
                await FinalizedFeatureCache().load(member.session)


class TestNewCluster:
    @pytest.mark.parametrize("level", [0, 1, 2])
    async def test_new_cluster_begins_with_the_wanted_levels(self, level: int) -> None:
        cluster = ClusterUnderTest()
        member = await cluster.start(1, begins_with={TV: level})
        assert (member.features.transaction_version, member.features.epoch) == (level, 0)
        znode = await member.session.get(paths.FEATURE)
        assert znode is not None
        assert znodes.decode_features(znode.data).levels == ({TV: level} if level else {})
        await cluster.stop()

    async def test_broker_registers_the_levels_that_it_supports(self) -> None:
        async with running_cluster(1, 2) as cluster:
            for member in cluster.members.values():
                assert member.features.transaction_version == 2
                znode = await member.session.get(paths.broker(member.controller.broker_id))
                assert znode is not None
                assert znodes.decode_broker(0, znode.data).features == {**LEVEL_0_TO_2, ELR: (0, 1)}

    @pytest.mark.parametrize(
        ("ranges", "level"), [([], 2), ([(0, 2)], 2), ([(0, 2), (0, 1)], 1), ([(0, 3)], 2), ([None, (0, 2)], 0)]
    )
    def test_level_that_one_broker_lacks_is_not_finalised(
        self, ranges: list[tuple[int, int] | None], level: int
    ) -> None:
        brokers = [
            BrokerRegistration(broker_id=index, endpoints=(), features={} if range_ is None else {TV: range_})
            for index, range_ in enumerate(ranges)
        ]
        assert initial_levels({TV: 2}, brokers) == {TV: level}

    async def test_older_cluster_keeps_its_levels_and_says_how_to_raise_them(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A data directory from before features holds a znode without any."""
        cluster = ClusterUnderTest()
        session = cluster.ensemble.connect().session
        assert session is not None
        await session.create(paths.FEATURE, znodes.encode_features(FinalizedFeatures()))
        with caplog.at_level("INFO"):
            member = await cluster.start(1)
        assert member.features.transaction_version == 0
        named = [record for record in caplog.messages if "oncelog feature upgrade transaction.version 2" in record]
        assert len(named) == 1
        await cluster.stop()


class TestIncompatibleBroker:
    async def test_broker_of_unsupported_level_reports_that_it_cannot_serve(self) -> None:
        async with running_cluster(1) as cluster:
            late = await cluster.start(2, supported={TV: (0, 1)})
            assert late.features.transaction_version == 0
            assert len(cluster.refusals[2]) >= 1
            assert "transaction.version at level 2" in cluster.refusals[2][0]
            assert cluster.refusals[1] == []

    async def test_broker_without_support_prevents_raising_a_level(self) -> None:
        cluster = ClusterUnderTest()
        await cluster.start(1, begins_with={TV: 1})
        await cluster.start(2, supported={TV: (0, 1)})
        errors = await cluster.apis.update_features([FeatureUpdate(TV, 2)])
        assert errors == [
            (
                ErrorCode.INVALID_UPDATE_VERSION,
                "Invalid update version 2 for feature transaction.version. Broker 2 only supports versions 0-1",
            )
        ]
        await cluster.kill(2)
        assert await update(cluster, FeatureUpdate(TV, 2)) == [ErrorCode.NONE]
        await cluster.stop()


class TestUpdate:
    async def test_update_reaches_every_broker(self) -> None:
        async with running_cluster(1, 2) as cluster:
            assert await update(cluster, FeatureUpdate(TV, 0, SAFE)) == [ErrorCode.NONE]
            leader, follower = cluster.members[1].features, cluster.members[2].features
            assert (leader.transaction_version, leader.epoch) == (0, 1)
            await cluster.settle()
            assert (follower.transaction_version, follower.epoch) == (0, 1)
            assert await update(cluster, FeatureUpdate(TV, 1)) == [ErrorCode.NONE]
            await cluster.settle()
            assert (follower.transaction_version, follower.epoch) == (1, 2)

    async def test_epoch_survives_a_power_loss(self) -> None:
        cluster = ClusterUnderTest()
        await cluster.start(1)
        await update(cluster, FeatureUpdate(TV, 1, UNSAFE))
        await update(cluster, FeatureUpdate(TV, 2))
        await cluster.crash()
        member = await cluster.start(1, begins_with={TV: 0})
        assert (member.features.transaction_version, member.features.epoch) == (2, 2)
        await cluster.stop()

    @pytest.mark.parametrize(
        ("level", "kind", "validate_only"), [(2, UPGRADE, False), (2, SAFE, False), (1, SAFE, True), (0, SAFE, True)]
    )
    async def test_update_without_change_writes_nothing(
        self, level: int, kind: UpgradeType, validate_only: bool
    ) -> None:
        async with running_cluster(1) as cluster:
            wanted = FeatureUpdate(TV, level, kind)
            assert await update(cluster, wanted, validate_only=validate_only) == [ErrorCode.NONE]
            assert (cluster.members[1].features.transaction_version, cluster.members[1].features.epoch) == (2, 0)

    async def test_updates_with_one_refused_change_none(self) -> None:
        async with running_cluster(1) as cluster:
            updates = [FeatureUpdate(TV, 1, SAFE), FeatureUpdate("nonsense", 1)]
            errors = await update(cluster, *updates)
            assert errors == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
            assert cluster.members[1].features.transaction_version == 2

    async def test_update_on_another_broker_is_refused(self) -> None:
        async with running_cluster(1, 2) as cluster:
            refused = await cluster.members[2].apis.update_features([FeatureUpdate(TV, 1, SAFE)])
            assert refused == NOT_CONTROLLER

    async def test_zombie_controller_changes_nothing(self) -> None:
        """B62: its epoch is over, and it does not know yet."""
        async with running_cluster(1) as cluster:
            zombie = cluster.apis
            usurper = cluster.ensemble.connect().session
            assert usurper is not None
            cluster.lose_notifications()
            await usurper.delete(paths.CONTROLLER)
            await stand_for_election(usurper, 9, 0, nobody)
            assert zombie.controller.is_active
            assert await zombie.update_features([FeatureUpdate(TV, 1, SAFE)]) == NOT_CONTROLLER
            znode = await usurper.get(paths.FEATURE)
            assert znode is not None
            assert znode.stat.version == 0

    async def test_update_is_decided_on_the_levels_that_it_replaces(self) -> None:
        """Somebody else lowers the level further between the reading and the writing: it is no downgrade any more."""
        async with running_cluster(1) as cluster:
            member = cluster.members[1]

            async def interruption() -> None:
                await member.session.set(paths.FEATURE, znodes.encode_features(finalized()))

            await member.session.delete(paths.CONTROLLER)
            session = InterruptedBeforeCommit(member.session, interruption)
            context = await context_of(cluster, cast(Session, session))
            (error,) = await update_features(
                context, member.features, [FeatureUpdate(TV, 1, SAFE)], nobody, validate_only=False
            )
            assert error.message is not None
            assert "Can't downgrade to a newer version." in error.message
            znode = await member.session.get(paths.FEATURE)
            assert znode is not None
            assert znodes.decode_features(znode.data) == finalized()


class InterruptedBeforeCommit:
    """A session in which something else happens just before the first batch of multis."""

    def __init__(self, session: Session, interruption: Callable[[], Awaitable[None]]) -> None:
        self._session = session
        self._interruption = interruption
        self.commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def multi_many(self, batches: Sequence[Sequence[Operation]]) -> list[MultiResult]:
        self.commits += 1
        if self.commits == 1:
            await self._interruption()
        return await self._session.multi_many(batches)


async def context_of(cluster: ClusterUnderTest, session: Session) -> ControllerContext:
    context = await cluster.context_of_outsider(session)
    registration = BrokerRegistration(broker_id=1, endpoints=(), features=LEVEL_0_TO_2)
    context.state.brokers = {1: LiveBroker(registration=registration, epoch=1)}
    return context


@pytest.mark.parametrize(
    ("before", "level", "kind", "reason"),
    [
        (0, 0, UPGRADE, None),
        (0, 1, UPGRADE, None),
        (0, 2, UPGRADE, None),
        (2, 2, UPGRADE, None),
        (2, 2, SAFE, None),
        (2, 1, SAFE, None),
        (2, 1, UNSAFE, None),
        (2, 0, SAFE, None),
        (2, 0, UNSAFE, None),
        (2, 1, UPGRADE, "Can't downgrade the version of this feature without setting the upgrade type to either "
                        "safe or unsafe downgrade."),
        (2, 0, UPGRADE, "Can't downgrade the version of this feature without setting the upgrade type to either "
                        "safe or unsafe downgrade."),
        (1, 2, SAFE, "Can't downgrade to a newer version."),
        (1, 2, UNSAFE, "Can't downgrade to a newer version."),
        (1, 3, UPGRADE, "Local controller 1 only supports versions 0-2"),
        (1, -1, UPGRADE, "A feature version cannot be less than 0."),
        (1, -1, SAFE, "A feature version cannot be less than 0."),
        (1, 2, UpgradeType.UNKNOWN, "The controller does not support the given upgrade type."),
    ],
)  # fmt: skip
def test_level_changes_only_in_the_direction_of_the_upgrade_type(
    before: int, level: int, kind: UpgradeType, reason: str | None
) -> None:
    supported = {"Local controller 1": LEVEL_0_TO_2, "Broker 1": LEVEL_0_TO_2}
    error = why_refused(FeatureUpdate(TV, level, kind), {TV: before} if before else {}, supported)
    if reason is None:
        assert error == NO_ERROR
    else:
        text = f"Invalid update version {level} for feature transaction.version. {reason}"
        assert error == (ErrorCode.INVALID_UPDATE_VERSION, text)


@pytest.mark.parametrize("name", ["", "nonsense", "metadata.version"])
def test_unknown_feature_is_refused(name: str) -> None:
    error = why_refused(FeatureUpdate(name, 1), {}, {"Local controller 1": LEVEL_0_TO_2})
    reason = "Local controller 1 does not support this feature."
    assert error == (ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version 1 for feature {name}. {reason}")
