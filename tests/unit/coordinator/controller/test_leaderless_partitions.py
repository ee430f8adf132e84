"""The controller's part of an unclean recovery: reports, the bounded wait, and what all brokers learn of it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from oncelog.coordinator.controller.config_changes import ConfigAlteration as Alteration
from oncelog.coordinator.controller.config_changes import ConfigOperation, ConfigResource, OperationType, ResourceType
from oncelog.coordinator.controller.finalized_features import ELIGIBLE_LEADER_REPLICAS_VERSION, TRANSACTION_VERSION
from oncelog.coordinator.controller.leader_elections import ElectionType
from oncelog.coordinator.controller.log_ends import LogEnd
from oncelog.coordinator.controller.recovery_strategy import RecoverySettings, RecoveryStrategy
from oncelog.coordinator.controller.recovery_waits import WAIT_SECONDS
from oncelog.coordinator.metadata_store.znodes import LeaderRecoveryState, PartitionState
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.messages.update_metadata import UpdateMetadataRecovery, UpdateMetadataRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.controller.cluster import NOW_MS, ClusterUnderTest
from tests.unit.coordinator.controller.test_controller import create, manual, state_of

LEVEL_1 = {TRANSACTION_VERSION: 2, ELIGIBLE_LEADER_REPLICAS_VERSION: 1}
T0 = TopicPartition("t", 0)
SHORT, LONG = LogEnd(0, 10), LogEnd(0, 20)


@pytest.fixture
async def cluster() -> AsyncIterator[ClusterUnderTest]:
    """Broker 1, the controller, with a topic on brokers 2 and 3. Their logs are broken whenever they start again."""
    cluster = ClusterUnderTest()
    await cluster.start(1, 2, 3, begins_with=LEVEL_1)
    cluster.members[1].controller.stored.set_default_min_isr(2)
    await create(cluster, manual("t", (2, 3)))
    yield cluster
    await cluster.stop()


def use(cluster: ClusterUnderTest, strategy: RecoveryStrategy) -> None:
    cluster.members[1].controller.stored.set_recovery(RecoverySettings(strategy))


async def lose_both(cluster: ClusterUnderTest) -> None:
    """Stop broker 3 and then 2, the leader."""
    await cluster.kill(3)
    await cluster.kill(2)
    assert (await state_of(cluster, "t", 0)).leader == -1


async def restart(cluster: ClusterUnderTest, broker_id: int, log_end: LogEnd | None) -> PartitionState:
    cluster.brokers[broker_id] = type(cluster.brokers[broker_id])(log_end=log_end)
    await cluster.start(broker_id, begins_with=LEVEL_1)
    return await state_of(cluster, "t", 0)


def shown(cluster: ClusterUnderTest) -> UpdateMetadataRecovery | None:
    """What broker 1 learned, as it crosses the wire."""
    sent = cluster.brokers[1].of_type(UpdateMetadataRequest)
    with_topic = next(each for each in reversed(sent) if any(topic.topic_name == "t" for topic in each.topic_states))
    read = decode(UpdateMetadataRequest, 8, encode(with_topic, 8))
    return read.topic_states[0].partition_states[0].recovery


async def test_longest_reported_log_leads_at_once_when_all_have_reported(cluster: ClusterUnderTest) -> None:
    """B110"""
    await lose_both(cluster)
    assert (await restart(cluster, 2, SHORT)).leader == -1
    state = await restart(cluster, 3, LONG)
    assert (state.leader, state.isr, state.leader_recovery_state) == (3, (3,), LeaderRecoveryState.RECOVERING)
    assert cluster.active.context.state.waiting == {}
    assert shown(cluster) is None


async def test_partition_waits_a_bounded_time_for_a_broker_of_an_earlier_release(cluster: ClusterUnderTest) -> None:
    """B110: it reports nothing, and counts as the shortest then."""
    await lose_both(cluster)
    await restart(cluster, 2, None)
    assert (await restart(cluster, 3, SHORT)).leader == -1
    recovery = shown(cluster)
    assert recovery is not None
    assert (recovery.strategy, recovery.waits_for, recovery.elects) == ("balanced", [2], 3)
    assert recovery.decides_at_ms == NOW_MS + WAIT_SECONDS * 1000
    assert [(end.broker_id, end.leader_epoch, end.offset) for end in recovery.log_ends] == [(3, *SHORT)]
    await asyncio.sleep(WAIT_SECONDS - 0.1)
    assert (await state_of(cluster, "t", 0)).leader == -1
    await asyncio.sleep(0.2)
    assert (await state_of(cluster, "t", 0)).leader == 3


async def test_last_leader_leads_after_the_wait_when_no_broker_reports(cluster: ClusterUnderTest) -> None:
    await lose_both(cluster)
    await restart(cluster, 3, None)
    await restart(cluster, 2, None)
    await asyncio.sleep(WAIT_SECONDS + 0.1)
    assert (await state_of(cluster, "t", 0)).leader == 2


async def test_wait_begins_anew_when_a_broker_comes_back_again(cluster: ClusterUnderTest) -> None:
    await lose_both(cluster)
    await restart(cluster, 2, None)
    await restart(cluster, 3, None)
    await asyncio.sleep(WAIT_SECONDS - 1)
    await cluster.kill(3)
    await asyncio.sleep(WAIT_SECONDS)
    assert (await state_of(cluster, "t", 0)).leader == -1
    await restart(cluster, 3, LONG)
    await asyncio.sleep(WAIT_SECONDS - 1)
    assert (await state_of(cluster, "t", 0)).leader == -1
    await asyncio.sleep(2)
    assert (await state_of(cluster, "t", 0)).leader == 3


async def test_other_strategy_decides_at_once(cluster: ClusterUnderTest) -> None:
    await lose_both(cluster)
    await restart(cluster, 2, SHORT)
    await asyncio.sleep(10 * WAIT_SECONDS)
    recovery = shown(cluster)
    assert recovery is not None
    assert (recovery.waits_for, recovery.elects, recovery.decides_at_ms) == ([3], 2, -1)
    use(cluster, RecoveryStrategy.LONGEST_LOG)
    await cluster.settle()
    timed = shown(cluster)
    assert timed is not None
    assert (timed.strategy, timed.waits_for) == ("longest_log", [3])
    assert timed.decides_at_ms == NOW_MS + WAIT_SECONDS * 1000
    await asyncio.sleep(WAIT_SECONDS + 0.1)
    assert (await state_of(cluster, "t", 0)).leader == 2


async def test_strategy_of_a_topic_is_followed_when_it_changes(cluster: ClusterUnderTest) -> None:
    await lose_both(cluster)
    await restart(cluster, 2, SHORT)
    enable = ConfigOperation("unclean.leader.election.enable", OperationType.SET, "true")
    topic = ConfigResource(ResourceType.TOPIC, "t")
    await cluster.members[1].configs.alter([Alteration(resource=topic, operations=(enable,))])
    await asyncio.sleep(WAIT_SECONDS - 0.1)
    assert (await state_of(cluster, "t", 0)).leader == -1
    await asyncio.sleep(0.2)
    assert (await state_of(cluster, "t", 0)).leader == 2


async def test_operator_elects_the_longest_known_log_without_a_wait(cluster: ClusterUnderTest) -> None:
    """B110"""
    await lose_both(cluster)
    await restart(cluster, 2, None)
    await restart(cluster, 3, SHORT)
    assert (await state_of(cluster, "t", 0)).leader == -1
    await cluster.apis.elect_leaders([T0], ElectionType.UNCLEAN)
    assert (await state_of(cluster, "t", 0)).leader == 3


async def test_topic_that_is_deleted_waits_no_more(cluster: ClusterUnderTest) -> None:
    await lose_both(cluster)
    await restart(cluster, 2, None)
    await restart(cluster, 3, None)
    await cluster.apis.delete_topics(["t"], timeout_seconds=1)
    assert cluster.active.context.state.waiting == {}
    await asyncio.sleep(2 * WAIT_SECONDS)
    assert cluster.active.context.waits.over() == []
