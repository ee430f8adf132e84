"""The feature ``eligible.leader.replicas.version``: who hears of eligible replicas, and what an upgrade changes."""

from collections.abc import AsyncIterator

import pytest

from oncelog.coordinator.controller.feature_changes import FeatureUpdate, UpgradeType
from oncelog.coordinator.controller.finalized_features import ELIGIBLE_LEADER_REPLICAS_VERSION as ELR
from oncelog.coordinator.controller.finalized_features import TRANSACTION_VERSION
from oncelog.coordinator.metadata_store.znodes import PartitionState
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_partition import AlterPartitionRequest
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tests.unit.coordinator.controller.cluster import ClusterUnderTest
from tests.unit.coordinator.controller.test_controller import create, manual, state_of
from tests.unit.coordinator.controller.test_isr_changes import only, request, wanting

LEVEL_1 = {TRANSACTION_VERSION: 2, ELR: 1}


@pytest.fixture
async def cluster() -> AsyncIterator[ClusterUnderTest]:
    """Three brokers, whose topics have a minimum of two in-sync replicas."""
    cluster = ClusterUnderTest()
    await cluster.start(1, 2, 3, begins_with=LEVEL_1)
    for member in cluster.members.values():
        member.controller.stored.set_default_min_isr(2)
    yield cluster
    await cluster.stop()


async def shrunk(cluster: ClusterUnderTest) -> PartitionState:
    """Let the leader drop both followers."""
    await create(cluster, manual("t", (1, 2, 3)))
    (altered,) = only(await cluster.apis.alter_partition(request(cluster, "t", wanting(0, [1]))))
    assert (altered.isr, altered.eligible_leader_replicas) == ([1], [2, 3])
    return await state_of(cluster, "t", 0)


async def test_new_cluster_remembers_eligible_replicas_and_names_them_to_all(cluster: ClusterUnderTest) -> None:
    """B57: the leader, who must not let the high watermark move, hears of it in the response."""
    assert (await shrunk(cluster)).elr == (2, 3)
    for broker in cluster.brokers.values():
        assert broker.metadata.image.topics["t"].partitions[0].eligible_leader_replicas == (2, 3)
    await cluster.kill(1)
    state = await state_of(cluster, "t", 0)
    assert (state.leader, state.isr, state.elr) == (2, (2,), (1, 3))
    sent = cluster.brokers[2].of_type(LeaderAndIsrRequest)[-1].topic_states[0].partition_states[0]
    assert (sent.leader, sent.eligible_leader_replicas) == (2, [1, 3])


async def test_lower_minimum_ends_the_eligibility_by_a_new_state(cluster: ClusterUnderTest) -> None:
    """B57: the high watermark may move again only when the leader has this state."""
    before = await shrunk(cluster)
    cluster.members[1].controller.stored.set_default_min_isr(1)
    await cluster.settle()
    state = await state_of(cluster, "t", 0)
    assert (state.leader, state.isr, state.elr, state.leader_epoch) == (1, (1,), (), before.leader_epoch + 1)
    sent = cluster.brokers[1].of_type(LeaderAndIsrRequest)[-1].topic_states[0].partition_states[0]
    assert sent.eligible_leader_replicas == []


async def test_higher_minimum_keeps_what_is_remembered(cluster: ClusterUnderTest) -> None:
    before = await shrunk(cluster)
    cluster.members[1].controller.stored.set_default_min_isr(3)
    await cluster.settle()
    assert await state_of(cluster, "t", 0) == before


async def test_downgrade_clears_what_is_remembered(cluster: ClusterUnderTest) -> None:
    """Earlier releases, which may be controllers afterwards, would drop it without acting on it."""
    before = await shrunk(cluster)
    (refused,) = await cluster.members[1].apis.update_features([FeatureUpdate(ELR, 0, UpgradeType.SAFE_DOWNGRADE)])
    assert refused.code is ErrorCode.INVALID_UPDATE_VERSION
    assert await state_of(cluster, "t", 0) == before
    for broker_id in (1, 2, 3):
        await cluster.kill(broker_id)
    await cluster.start(4, begins_with=LEVEL_1)
    waiting = await state_of(cluster, "t", 0)
    assert (waiting.leader, waiting.isr, set(waiting.elr), waiting.last_leader) == (-1, (3,), {1, 2}, 3)
    downgrade = FeatureUpdate(ELR, 0, UpgradeType.SAFE_DOWNGRADE)
    (refused,) = await cluster.members[4].apis.update_features([downgrade])
    assert refused.code is ErrorCode.INVALID_UPDATE_VERSION
    assert refused.message is not None
    assert (
        "1 partition needs what is known of replicas outside of the ISR that have every acknowledged record (t-0)."
        in refused.message
    )
    assert await state_of(cluster, "t", 0) == waiting
    (error,) = await cluster.members[4].apis.update_features([FeatureUpdate(ELR, 0, UpgradeType.UNSAFE_DOWNGRADE)])
    assert error.code is ErrorCode.NONE
    state = await state_of(cluster, "t", 0)
    assert (state.leader, set(state.isr), state.elr, state.epochs, state.last_leader) == (-1, {1, 2, 3}, (), {}, None)
    assert state.leader_epoch > before.leader_epoch


@pytest.mark.parametrize("version", [2, 3])
async def test_follower_that_registered_anew_joins_by_a_request_that_names_this_incarnation(
    cluster: ClusterUnderTest, version: int
) -> None:
    """B56: over the network as in a plain call. Version 2 names no incarnation, so nobody joins by it."""
    await shrunk(cluster)
    before = cluster.members[3].controller.broker_epoch
    await cluster.kill(3)
    await cluster.start(3, begins_with=LEVEL_1)
    present = cluster.members[3].controller.broker_epoch
    assert present > before
    outcomes = []
    for epoch in (before, -1, present):
        partition_epoch = cluster.brokers[1].metadata.image.topics["t"].partitions[0].partition_epoch
        proposed = wanting(0, [1, 3], partition_epoch=partition_epoch)
        proposed.new_isr = [1, 3]
        proposed.new_isr_with_epochs[1].broker_epoch = epoch
        sent = decode(AlterPartitionRequest, version, encode(request(cluster, "t", proposed), version))
        (altered,) = only(await cluster.apis.alter_partition(sent))
        outcomes.append(altered.error_code)
    refused = ErrorCode.INELIGIBLE_REPLICA
    assert outcomes == [refused, refused, ErrorCode.NONE if version == 3 else refused]
    state = await state_of(cluster, "t", 0)
    assert state.isr == ((1, 3) if version == 3 else (1,))
    assert (state.epochs[3] == present) is (version == 3)


async def test_broker_without_support_prevents_the_upgrade() -> None:
    cluster = ClusterUnderTest()
    await cluster.start(1, begins_with={TRANSACTION_VERSION: 2})
    await cluster.start(2, supported={TRANSACTION_VERSION: (0, 2)})
    (error,) = await cluster.apis.update_features([FeatureUpdate(ELR, 1)])
    assert error.code is ErrorCode.INVALID_UPDATE_VERSION
    assert error.message is not None
    assert "Broker 2 does not support this feature" in error.message
    await cluster.kill(2)
    (error,) = await cluster.apis.update_features([FeatureUpdate(ELR, 1)])
    assert error.code is ErrorCode.NONE
    await cluster.stop()
