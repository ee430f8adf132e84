"""No replica certainly has everything: which one leads, and when, under each ``unclean.recovery.strategy`` (KIP-966).

The clusters have three brokers, ``min.insync.replicas=2`` and a topic on brokers 2 and 3; nothing waits for disks. The
controller is broker 1.
"""

import asyncio

import pytest

from oncelog.coordinator.controller.api_error import NO_ERROR, ApiError
from oncelog.coordinator.controller.config_changes import (
    ConfigAlteration,
    ConfigOperation,
    ConfigResource,
    OperationType,
    ResourceType,
)
from oncelog.coordinator.controller.recovery_waits import WAIT_SECONDS
from oncelog.coordinator.controller.waiting_partition import NO_TIME, WaitingPartition
from oncelog.coordinator.metadata_store.znodes import LeaderRecoveryState
from tests.simulation import topic_requests
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_history import log_of
from tests.simulation.cluster_stories import simulate, state_of
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster
from tests.simulation.test_eligible_leaders import LONG, T0, written

REPORTED_SECONDS = 2.0
"""Seconds after its start in which a broker is registered and has reported its log ends."""


def settings(strategy: str) -> dict[str, str]:
    return {"min.insync.replicas": "2", "unclean.recovery.strategy": strategy}


def flush(cluster: SimulatedCluster, broker_id: int) -> None:
    log = cluster[broker_id].running.log_manager.get(T0)
    assert log is not None
    log.flush()


def waiting_of(cluster: SimulatedCluster) -> WaitingPartition:
    (controller_id,) = cluster.controllers
    active = cluster[controller_id].running.controller.active
    assert active is not None
    return active.context.state.waiting[T0]


async def drop_3(cluster: SimulatedCluster) -> AcknowledgedWriter:
    """Leave broker 2 alone in the ISR, broken and down; 3, which is down too, was dropped and has every record."""
    writer = await written(cluster, 2, 3)
    flush(cluster, 3)
    cluster[3].crash("power")
    await asyncio.sleep(LONG)
    cluster[2].kill()
    await cluster[3].start()
    await asyncio.sleep(SESSION_SECONDS)
    assert state_of(cluster, "t").leader == -1
    cluster[3].kill()
    await cluster[2].start()
    await asyncio.sleep(LONG)
    alone = state_of(cluster, "t")
    assert (alone.leader, alone.isr, alone.elr, alone.last_known_elr) == (2, (2,), (), (3,))
    cluster[2].crash("power")
    await asyncio.sleep(LONG)
    return writer


@pytest.mark.parametrize("first", [2, 3])
@pytest.mark.parametrize("strategy", ["balanced", "longest_log"])
def test_member_that_was_dropped_leads_by_its_longer_log(strategy: str, first: int) -> None:
    """B110: two machines lose power one after the other, before two replicas are in sync again."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await drop_3(cluster)
        await cluster[first].start()
        await asyncio.sleep(REPORTED_SECONDS)
        assert state_of(cluster, "t").leader == -1
        await cluster[5 - first].start()
        await asyncio.sleep(REPORTED_SECONDS)
        elected = state_of(cluster, "t")
        assert elected.leader == 3
        await asyncio.sleep(LONG)
        state = state_of(cluster, "t")
        assert (state.leader, set(state.isr), state.last_known_elr) == (3, {2, 3}, ())
        assert state.leader_recovery_state is LeaderRecoveryState.RECOVERED
        for broker_id in (2, 3):
            writer.assert_nothing_is_lost(cluster[broker_id].content(T0))

    simulate(story, settings=settings(strategy))


def test_replica_that_was_behind_leads_if_all_others_lost_more() -> None:
    """B110: it lacks what was acknowledged without it; the members of the ISR lack everything."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await written(cluster, 1, 2, 3)
        early = cluster[3].content(T0)
        flush(cluster, 3)
        cluster[3].kill()
        await asyncio.sleep(LONG)
        await writer.write(5)
        for broker_id in (2, 1):
            cluster[broker_id].kill()
            cluster[broker_id].disk.remove_tree("/data/t-0")
        for broker_id in (3, 2, 1):
            await cluster[broker_id].start()
        await asyncio.sleep(LONG)
        state = state_of(cluster, "t")
        assert (state.leader, set(state.isr)) == (3, {1, 2, 3})
        for broker_id in (1, 2, 3):
            assert cluster[broker_id].content(T0)[: len(early)] == early

    simulate(story, settings=settings("balanced"))


def test_replica_that_was_behind_does_not_lead_before_logs_whose_records_were_deleted() -> None:
    """B110: offsets that consumers have committed would be given to other records."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await written(cluster, 1, 2, 3)
        cluster[3].kill()
        await asyncio.sleep(LONG)
        await writer.write(5)
        leader = state_of(cluster, "t").leader
        end = log_of(cluster, leader, T0).log_end_offset
        client, version = await cluster[leader].client(), topic_requests.INCREMENTAL_ALTER_CONFIGS_VERSION
        response = await client.call(topic_requests.set_topic_config("t", "retention.ms", "1000"), version)
        assert not response.responses[0].error_code
        await asyncio.sleep(120.0)
        for broker_id in (1, 2):
            await cluster[broker_id].stop()
            await cluster[broker_id].start()
            await asyncio.sleep(LONG)
            log = log_of(cluster, broker_id, T0)
            assert (log.log_start_offset, log.log_end_offset, log.epochs.entries[:-1]) == (end, end, [])
        for broker_id in (1, 2):
            cluster[broker_id].crash("power")
        await asyncio.sleep(LONG)
        for broker_id in (3, 1, 2):
            await cluster[broker_id].start()
        await asyncio.sleep(LONG)
        state = state_of(cluster, "t")
        assert (state.leader in (1, 2), set(state.isr)) == (True, {1, 2, 3})
        assert {log_of(cluster, broker_id, T0).log_end_offset for broker_id in (1, 2, 3)} == {end}

    simulate(story, settings={**settings("balanced"), "log.retention.check.interval.ms": "7000"})


def test_last_leader_leads_without_comparison_under_none() -> None:
    """A limit of that strategy: the member that was dropped has more."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await drop_3(cluster)
        await cluster[2].start()
        await asyncio.sleep(REPORTED_SECONDS)
        assert state_of(cluster, "t").leader == 2
        await cluster[3].start()
        await asyncio.sleep(LONG)
        assert set(state_of(cluster, "t").isr) == {2, 3}
        with pytest.raises(AssertionError, match="is lost"):
            writer.assert_nothing_is_lost(cluster[3].content(T0))

    simulate(story, settings=settings("none"))


def test_partition_waits_for_the_member_that_never_returns_under_balanced() -> None:
    """Until the topic gets another strategy."""

    async def story(cluster: SimulatedCluster) -> None:
        await drop_3(cluster)
        await cluster[2].start()
        await asyncio.sleep(10 * WAIT_SECONDS)
        assert state_of(cluster, "t").leader == -1
        waiting = waiting_of(cluster)
        assert (waiting.strategy, waiting.waits_for, waiting.elects) == ("balanced", (3,), 2)
        assert (waiting.log_ends.keys(), waiting.decides_at_ms) == ({2}, NO_TIME)
        for broker in cluster.alive:
            shown = broker.running.metadata.image.partition(T0)
            assert shown is not None
            assert shown.recovery is not None
            assert (shown.recovery.waits_for, shown.recovery.elects) == ([3], 2)
        resource = ConfigResource(ResourceType.TOPIC, "t")
        other = ConfigOperation("unclean.recovery.strategy", OperationType.SET, "none")
        await cluster[1].running.configs.alter([ConfigAlteration(resource=resource, operations=(other,))])
        await asyncio.sleep(REPORTED_SECONDS)
        assert state_of(cluster, "t").leader == 2
        shown = cluster[1].running.metadata.image.partition(T0)
        assert shown is not None
        assert shown.recovery is None

    simulate(story, settings=settings("balanced"))


def test_brokers_setting_takes_effect_while_the_controller_runs() -> None:
    """The older setting, too, which means the longest log; without any, the strategy is balanced."""

    async def story(cluster: SimulatedCluster) -> None:
        await drop_3(cluster)
        await cluster[2].start()
        await asyncio.sleep(2 * WAIT_SECONDS)
        assert (state_of(cluster, "t").leader, waiting_of(cluster).strategy) == (-1, "balanced")
        all_brokers = ConfigResource(ResourceType.BROKER, "")
        allow = ConfigOperation("unclean.leader.election.enable", OperationType.SET, "true")
        await cluster[2].running.configs.alter([ConfigAlteration(resource=all_brokers, operations=(allow,))])
        await asyncio.sleep(REPORTED_SECONDS)
        assert (state_of(cluster, "t").leader, waiting_of(cluster).strategy) == (-1, "longest_log")
        await asyncio.sleep(WAIT_SECONDS)
        assert state_of(cluster, "t").leader == 2

    simulate(story, settings={"min.insync.replicas": "2"})


def test_longest_log_waits_a_bounded_time_for_the_member_that_never_returns(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await drop_3(cluster)
        began = cluster.loop.time()
        await cluster[2].start()
        await asyncio.sleep(REPORTED_SECONDS)
        waiting = waiting_of(cluster)
        assert (waiting.waits_for, waiting.elects) == ((3,), 2)
        assert waiting.decides_at_ms != NO_TIME
        await asyncio.sleep(WAIT_SECONDS - REPORTED_SECONDS - 0.5)
        assert cluster.loop.time() - began < WAIT_SECONDS
        assert state_of(cluster, "t").leader == -1
        await asyncio.sleep(REPORTED_SECONDS)
        assert state_of(cluster, "t").leader == 2

    simulate(story, settings=settings("longest_log"))
    assert any("leads t-0 now and may lack acknowledged records" in line for line in caplog.messages)


def test_partition_that_is_reassigned_while_it_waits_is_decided_in_a_bounded_time() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await drop_3(cluster)
        await cluster[2].start()
        await asyncio.sleep(REPORTED_SECONDS)
        decides_at_ms = waiting_of(cluster).decides_at_ms
        moved = await cluster[1].running.controller_apis.alter_reassignments({T0: [1, 2]})
        assert not isinstance(moved, ApiError)
        assert moved[T0] == NO_ERROR
        assert (state_of(cluster, "t").leader, waiting_of(cluster).elects) == (-1, 2)
        assert waiting_of(cluster).decides_at_ms > decides_at_ms > NO_TIME
        await asyncio.sleep(WAIT_SECONDS + REPORTED_SECONDS)
        state = state_of(cluster, "t")
        assert (state.leader, set(state.isr), state.epochs.keys() >= {2}) == (2, {1, 2}, True)

    simulate(story, settings=settings("longest_log"))


def test_leader_that_is_damaged_while_recovering_is_warned_of_again(caplog: pytest.LogCaptureFixture) -> None:
    warnings: list[int] = []
    counted: list[int] = []

    async def story(cluster: SimulatedCluster) -> None:
        await drop_3(cluster)
        await cluster[2].start()
        for stop in (cluster[2].kill, lambda: cluster[2].crash("power")):
            await asyncio.sleep(2 * WAIT_SECONDS)
            state = state_of(cluster, "t")
            assert (state.leader, state.leader_recovery_state) == (2, LeaderRecoveryState.RECOVERING)
            warnings.append(sum("leads t-0 now and may lack" in line for line in caplog.messages))
            stop()
            await cluster[2].start()
        await asyncio.sleep(2 * WAIT_SECONDS)
        warnings.append(sum("leads t-0 now and may lack" in line for line in caplog.messages))
        counted.append(cluster[1].running.controller.unclean_elections.count)

    simulate(story, settings=settings("longest_log"))
    first, after_kill, after_power_loss = warnings
    assert (after_kill, after_power_loss) == (first, first + 1)
    assert counted == [after_power_loss]


def test_longest_log_does_not_wait_for_an_eligible_member_that_is_away() -> None:
    """What is acknowledged and only that member has is lost; here the one that leads has everything, by chance."""

    async def story(cluster: SimulatedCluster) -> None:
        await written(cluster, 2, 3)
        cluster[3].crash("power")
        await asyncio.sleep(LONG)
        cluster[2].kill()
        await cluster[3].start()
        await asyncio.sleep(WAIT_SECONDS + SESSION_SECONDS)
        state = state_of(cluster, "t")
        assert (state.leader, state.isr, state.elr) == (3, (3,), ())

    simulate(story, settings=settings("longest_log"))


@pytest.mark.parametrize("flushed", [2, 3])
def test_longest_log_of_all_leads_when_every_machine_lost_power(flushed: int) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        writer = await written(cluster, 2, 3)
        flush(cluster, flushed)
        for broker in (cluster[2], cluster[3]):
            broker.crash("power")
        for broker in (cluster[2], cluster[3]):
            await broker.start()
        await asyncio.sleep(LONG)
        state = state_of(cluster, "t")
        assert (state.leader, set(state.isr)) == (flushed, {2, 3})
        for broker_id in (2, 3):
            writer.assert_nothing_is_lost(cluster[broker_id].content(T0))

    simulate(story, settings=settings("balanced"))


def test_new_controller_goes_on_waiting_under_balanced() -> None:
    """B110: what it knows of log ends it must learn again."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await drop_3(cluster)
        await cluster[2].start()
        await asyncio.sleep(REPORTED_SECONDS)
        cluster[1].kill()
        await asyncio.sleep(LONG)
        assert cluster.controllers == [2]
        assert (state_of(cluster, "t").leader, waiting_of(cluster).waits_for) == (-1, (3,))
        await cluster[3].start()
        await asyncio.sleep(REPORTED_SECONDS)
        assert state_of(cluster, "t").leader == 3
        writer.assert_nothing_is_lost(cluster[3].content(T0))

    simulate(story, settings=settings("balanced"))


def test_new_controller_waits_the_bounded_time_anew() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await drop_3(cluster)
        await cluster[2].start()
        await asyncio.sleep(0.8 * WAIT_SECONDS)
        assert state_of(cluster, "t").leader == -1
        cluster[1].kill()
        await asyncio.sleep(0.8 * WAIT_SECONDS)
        assert (cluster.controllers, state_of(cluster, "t").leader) == ([2], -1)
        await asyncio.sleep(WAIT_SECONDS)
        assert state_of(cluster, "t").leader == 2

    simulate(story, settings=settings("longest_log"))


def test_balanced_waits_for_a_member_that_is_registered_and_cannot_be_reached() -> None:
    """B110: it cannot report, and may have the longest log."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await drop_3(cluster)
        cluster.isolate(1, 3)
        await cluster[2].start()
        await cluster[3].start()
        await asyncio.sleep(3 * WAIT_SECONDS)
        assert state_of(cluster, "t").leader == -1
        cluster.loop.network.heal()
        await asyncio.sleep(LONG)
        assert state_of(cluster, "t").leader == 3
        writer.assert_nothing_is_lost(cluster[2].content(T0))

    simulate(story, settings=settings("balanced"))
