"""Every in-sync replica fails, and one of them loses what was not synced: which one leads, and when (KIP-966).

The clusters have three brokers and ``min.insync.replicas=2``; nothing waits for disks. The controller is broker 1.
"""

import asyncio
import random
from itertools import permutations

import pytest

from oncelog.broker.storage import intact_logs
from oncelog.coordinator.controller.api_error import NO_ERROR, ApiError
from oncelog.coordinator.controller.config_changes import (
    ConfigAlteration,
    ConfigOperation,
    ConfigResource,
    OperationType,
    ResourceType,
)
from oncelog.coordinator.controller.feature_changes import FeatureUpdate
from oncelog.coordinator.controller.finalized_features import ELIGIBLE_LEADER_REPLICAS_VERSION
from oncelog.coordinator.controller.leader_elections import ElectionType
from oncelog.coordinator.metadata_store.znodes import LeaderRecoveryState
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import NOTICED_SECONDS, create, simulate, state_of
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster

T0 = TopicPartition("t", 0)
MIN_ISR_2 = {"min.insync.replicas": "2"}
LEVEL_0 = {"oncelog.eligible.leader.replicas.version": "0"}
LONG = 3 * SESSION_SECONDS


async def written(cluster: SimulatedCluster, *replicas: int) -> AcknowledgedWriter:
    """Write acknowledged records to a topic with these replicas."""
    await create(cluster, "t", replicas)
    writer = AcknowledgedWriter(cluster, T0)
    await writer.write(20)
    await asyncio.sleep(1.0)
    assert set(state_of(cluster, "t").isr) == set(replicas)
    return writer


async def shrink_to_2(cluster: SimulatedCluster) -> AcknowledgedWriter:
    """Leave broker 2 alone in the ISR of [2, 3], with 3 eligible."""
    writer = await written(cluster, 2, 3)
    cluster[3].kill()
    await asyncio.sleep(LONG)
    state = state_of(cluster, "t")
    assert (state.leader, state.isr, state.elr) == (2, (2,), (3,))
    return writer


@pytest.mark.parametrize("comes_back", [False, True])
def test_replicas_that_were_away_are_whole_although_the_level_was_raised_only_before(comes_back: bool) -> None:
    """B57: no state has been written since, so none says in which epochs they had everything."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await written(cluster, 1, 2, 3)
        controller = cluster[cluster.controllers[0]].running
        (outcome,) = await controller.controller_apis.update_features(
            [FeatureUpdate(ELIGIBLE_LEADER_REPLICAS_VERSION, 1)]
        )
        assert outcome == NO_ERROR
        await writer.write(10)
        for broker_id in (1, 2, 3):
            cluster[broker_id].kill()
        await asyncio.sleep(LONG)
        await cluster[3].start()
        await asyncio.sleep(LONG)
        assert state_of(cluster, "t").leader == 3
        cluster[3].crash("power")
        await cluster[1].start()
        await cluster[2].start()
        if comes_back:
            await cluster[3].start()
        await asyncio.sleep(2 * LONG)
        state = state_of(cluster, "t")
        assert state.leader in (1, 2)
        assert state.leader_recovery_state is LeaderRecoveryState.RECOVERED
        writer.assert_nothing_is_lost(cluster[state.leader].content(T0))

    simulate(story, settings={**MIN_ISR_2, "unclean.recovery.strategy": "none", **LEVEL_0})


def test_damaged_replica_does_not_count_as_whole_after_the_replicas_were_put_in_another_order() -> None:
    """B57: the state is written anew, and no member has an epoch: the level was raised while all were away."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await written(cluster, 2, 3)
        for broker_id in (1, 2, 3):
            cluster[broker_id].kill()
        await asyncio.sleep(LONG)
        await cluster[1].start()
        await asyncio.sleep(LONG)
        apis = cluster[1].running.controller_apis
        assert await apis.update_features([FeatureUpdate(ELIGIBLE_LEADER_REPLICAS_VERSION, 1)]) == [NO_ERROR]
        cluster[2].disk.crash("power", random.Random(1))
        await cluster[2].start()
        await asyncio.sleep(LONG)
        await apis.alter_reassignments({T0: [3, 2]})
        await asyncio.sleep(LONG)
        assert state_of(cluster, "t").leader == -1
        await cluster[3].start()
        await asyncio.sleep(2 * LONG)
        state = state_of(cluster, "t")
        assert state.leader == 3
        writer.assert_nothing_is_lost(cluster[2].content(T0))

    simulate(story, settings={**MIN_ISR_2, **LEVEL_0})


def test_eligible_replica_leads_when_the_last_in_sync_replica_lost_power() -> None:
    """B57: the one that lost its tail does not lead, although it was the last in the ISR."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await shrink_to_2(cluster)
        cluster[2].crash("power")
        await cluster[2].start()
        await asyncio.sleep(LONG)
        waiting = state_of(cluster, "t")
        assert (waiting.leader, waiting.last_leader) == (-1, 2)
        await cluster[3].start()
        await asyncio.sleep(LONG)
        state = state_of(cluster, "t")
        assert (state.leader, set(state.isr), state.elr) == (3, {2, 3}, ())
        assert state.leader_recovery_state is LeaderRecoveryState.RECOVERED
        writer.assert_nothing_is_lost(cluster[2].content(T0))

    simulate(story, settings=MIN_ISR_2)


def test_last_leader_leads_when_every_member_lost_power() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await shrink_to_2(cluster)
        cluster[2].crash("power")
        assert cluster[3].broker is None
        cluster[3].disk.crash("power", random.Random(1))
        await cluster[3].start()
        await asyncio.sleep(LONG)
        assert state_of(cluster, "t").leader == -1
        await cluster[2].start()
        await asyncio.sleep(NOTICED_SECONDS)
        assert state_of(cluster, "t").leader == 2

    simulate(story, settings=MIN_ISR_2)


def test_reassignment_elects_no_replica_that_lost_its_tail() -> None:
    """harsh-writers:5000414: the partition waits for broker 3, and is moved meanwhile, as Kafka allows."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await shrink_to_2(cluster)
        cluster[2].crash("power")
        await cluster[2].start()
        await asyncio.sleep(LONG)
        assert (state_of(cluster, "t").leader, state_of(cluster, "t").isr) == (-1, (2,))
        apis = cluster[1].running.controller_apis
        await apis.elect_leaders([T0], ElectionType.PREFERRED)
        assert state_of(cluster, "t").leader == -1
        moved = await apis.alter_reassignments({T0: [2, 1]})
        assert not isinstance(moved, ApiError)
        assert moved[T0] == NO_ERROR
        await asyncio.sleep(LONG)
        assert (state_of(cluster, "t").leader, state_of(cluster, "t").isr) == (-1, (2,))
        await cluster[3].start()
        await asyncio.sleep(LONG)
        state = state_of(cluster, "t")
        assert (state.leader in (1, 2), set(state.isr)) == (True, {1, 2})
        for broker_id in (1, 2):
            writer.assert_nothing_is_lost(cluster[broker_id].content(T0))

    simulate(story, settings=MIN_ISR_2)


@pytest.mark.parametrize("can_overwrite", [True, False])
def test_registration_on_a_full_disk_breaks_no_logs(can_overwrite: bool) -> None:
    """harsh-writers:5000521: broker 3 registers anew while its disk is full, and is killed when it has room again."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await written(cluster, 2, 3)
        disk, path = cluster[3].disk, f"/data/{intact_logs.FILE_NAME}"
        if not can_overwrite:  # An earlier release wrote it.
            disk.write_atomic(path, disk.read(path).rstrip() + b"\n")
        disk.fill(0)
        session = cluster[3].store.session
        assert session is not None
        cluster.ensemble.expire(session.session_id)
        await asyncio.sleep(LONG)
        cluster[3].disk.make_room()
        await asyncio.sleep(LONG)
        await writer.write(20)
        await asyncio.sleep(1.0)
        assert set(state_of(cluster, "t").isr) == {2, 3}
        cluster[3].kill()
        await asyncio.sleep(LONG)
        cluster[2].crash("power")
        await cluster[2].start()
        await cluster[3].start()
        await asyncio.sleep(LONG)
        assert state_of(cluster, "t").leader == 3
        writer.assert_nothing_is_lost(cluster[2].content(T0))

    # A comparison of log ends would elect broker 3 even if its logs counted as damaged.
    simulate(story, settings={**MIN_ISR_2, "unclean.recovery.strategy": "none"})


def test_operator_may_elect_a_replica_that_lost_its_tail() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await shrink_to_2(cluster)
        cluster[2].crash("power")
        await cluster[2].start()
        await asyncio.sleep(LONG)
        await cluster[1].running.controller_apis.elect_leaders([T0], ElectionType.UNCLEAN)
        state = state_of(cluster, "t")
        assert (state.leader, state.elr, state.leader_recovery_state) == (2, (), LeaderRecoveryState.RECOVERING)

    simulate(story, settings=MIN_ISR_2)


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
def test_brokers_that_are_all_killed_lose_nothing_in_any_order_of_return(order: tuple[int, ...]) -> None:
    """B57: each that is back leads at once: its logs are whole as long as the machine runs."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await written(cluster, 1, 2, 3)
        for broker in cluster.alive:
            broker.kill()
        for number, broker_id in enumerate(order):
            await cluster[broker_id].start()
            await asyncio.sleep(LONG)
            assert state_of(cluster, "t").leader == order[0], number
        assert set(state_of(cluster, "t").isr) == {1, 2, 3}
        for broker_id in order:
            writer.assert_nothing_is_lost(cluster[broker_id].content(T0))

    simulate(story, settings=MIN_ISR_2)


@pytest.mark.parametrize("lost", [1, 2, 3])
@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
def test_cluster_that_dies_at_once_loses_nothing_with_one_copy(order: tuple[int, ...], lost: int) -> None:
    """B57: whichever machine loses power, and whoever returns first."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await written(cluster, 1, 2, 3)
        for broker in cluster.alive:
            broker.crash("power" if broker.broker_id == lost else "process")
        for broker_id in order:
            await cluster[broker_id].start()
            await asyncio.sleep(0.5)
        await asyncio.sleep(LONG)
        assert set(state_of(cluster, "t").isr) == {1, 2, 3}
        for broker_id in order:
            writer.assert_nothing_is_lost(cluster[broker_id].content(T0))

    simulate(story, settings=MIN_ISR_2)


def test_high_watermark_stands_while_others_are_eligible_although_the_minimum_was_lowered() -> None:
    """B57: the leader knows the lower minimum, and the controller, which is paused, does not."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await shrink_to_2(cluster)
        assert cluster[1].process is not None
        log = cluster[2].running.log_manager.get(T0)
        assert log is not None
        before = log.high_watermark
        cluster[1].process.pause()
        resource = ConfigResource(ResourceType.TOPIC, "t")
        lower = ConfigOperation("min.insync.replicas", OperationType.SET, "1")
        assert cluster[2].process is not None
        changed = cluster[2].process.run(
            cluster[2].running.configs.alter([ConfigAlteration(resource=resource, operations=(lower,))])
        )
        await changed
        await asyncio.sleep(0.2)
        assert log.config.min_insync_replicas == 1
        assert not await writer.try_to_write(b"too early")
        assert log.high_watermark == before
        cluster[1].process.resume()
        await asyncio.sleep(NOTICED_SECONDS)
        assert state_of(cluster, "t").elr == ()
        await writer.write(5)
        cluster[2].kill()
        await cluster[3].start()
        await asyncio.sleep(LONG)
        assert state_of(cluster, "t").leader == -1  # Broker 3 was eligible, and is not any more.
        await cluster[2].start()
        await asyncio.sleep(LONG)
        writer.assert_nothing_is_lost(cluster[3].content(T0))

    simulate(story, settings=MIN_ISR_2)


def test_cancelled_reassignment_drops_no_replica_that_the_minimum_needs() -> None:
    """B57: only the leader and a replica that was added have what was acknowledged last, and the leader loses power."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await written(cluster, 2, 3, 4)
        cluster[6].kill()
        begun = await cluster[1].running.controller_apis.alter_reassignments({T0: [2, 5, 6]})
        assert begun == {T0: NO_ERROR}
        await asyncio.sleep(LONG)
        cluster[3].kill()
        cluster[4].kill()
        await asyncio.sleep(LONG)
        assert set(state_of(cluster, "t").isr) == {2, 5}
        await writer.write(30)
        for target in (None, [2, 3, 4]):
            refused = await cluster[1].running.controller_apis.alter_reassignments({T0: target})
            assert not isinstance(refused, ApiError)
            assert refused[T0].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        cluster[2].crash("power")
        for broker in (3, 4, 2, 6):
            await cluster[broker].start()
        await asyncio.sleep(3 * LONG)
        writer.assert_nothing_is_lost(cluster[state_of(cluster, "t").leader].content(T0))

    simulate(story, brokers=6, settings=MIN_ISR_2)
