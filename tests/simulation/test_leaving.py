"""How long brokers take to stop, in virtual time: they hand over what they lead, and wait for no broker that left."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.cluster_stories import NOTICED_SECONDS, create, simulate, state_of
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster

T0 = TopicPartition("t", 0)
FAREWELL = 0.25
"""For which a broker that leads nothing any more tells who does."""
AT_ONCE = 0.25 + FAREWELL
WITHOUT_HELP = 1.2
PRODUCE_WITH_HINTS = 12


def play(story: Callable[[SimulatedCluster], Awaitable[None]]) -> None:
    async def prepared(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
        await story(cluster)

    simulate(prepared)


async def stop(cluster: SimulatedCluster, broker_id: int) -> float:
    """How long that took."""
    began = cluster.loop.time()
    await cluster[broker_id].stop()
    return cluster.loop.time() - began


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 1, 3)])
def test_brokers_that_leave_one_after_the_other_hand_over_wherever_the_controller_is(order: Sequence[int]) -> None:
    """Who stops next hears at once of the controller that follows one that has stopped."""

    async def story(cluster: SimulatedCluster) -> None:
        for number, broker_id in enumerate(order):
            assert await stop(cluster, broker_id) < AT_ONCE
            for partition in range(3):
                assert number == 2 or state_of(cluster, "t", partition).leader in order[number + 1 :]

    play(story)


def test_brokers_that_leave_at_once_end_in_time() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        times = await asyncio.gather(*(stop(cluster, broker_id) for broker_id in (1, 2, 3)))
        assert max(times) < AT_ONCE

    play(story)


@pytest.mark.parametrize("away_seconds", [3.0, 5 * SESSION_SECONDS])
def test_leaving_soon_after_the_ensemble_has_restarted_ends_in_time(away_seconds: float) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        cluster.ensemble.is_up = False
        await asyncio.sleep(away_seconds)
        cluster.ensemble.is_up = True
        for broker_id in (1, 2, 3):
            assert await stop(cluster, broker_id) < AT_ONCE

    play(story)


@pytest.mark.parametrize("away_seconds", [4.0, 5 * SESSION_SECONDS])
def test_leaving_while_the_ensemble_is_away_ends_in_time(away_seconds: float) -> None:
    """No broker can change the metadata, and all know it."""

    async def story(cluster: SimulatedCluster) -> None:
        cluster.ensemble.is_up = False
        await asyncio.sleep(away_seconds)
        for broker_id in (1, 2, 3):
            assert await stop(cluster, broker_id) < WITHOUT_HELP

    play(story)


def test_leaving_after_the_controller_was_killed_ends_in_time() -> None:
    """The next one helps."""

    async def story(cluster: SimulatedCluster) -> None:
        cluster[1].kill()
        assert await stop(cluster, 2) < 2 * AT_ONCE
        assert state_of(cluster, "t", 1).leader == 3
        assert await stop(cluster, 3) < WITHOUT_HELP

    play(story)


def test_leaving_while_the_controller_is_silent_ends_in_time() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        assert cluster[1].process is not None
        cluster[1].process.pause()
        assert await stop(cluster, 2) < NOTICED_SECONDS + FAREWELL
        assert state_of(cluster, "t", 1).leader == 3

    play(story)


def test_metadata_soon_after_leaving_names_the_new_leaders() -> None:
    """Otherwise they would find a closed connection, and some of them look for another broker a second later."""

    async def story(cluster: SimulatedCluster) -> None:
        client = await cluster[1].client()
        began = cluster.loop.time()
        async with asyncio.TaskGroup() as tasks:
            stopping = tasks.create_task(stop(cluster, 1))
            await asyncio.sleep(FAREWELL * 3 / 5)
            assert state_of(cluster, "t").leader == 2
            assert not stopping.done()
            response = await client.call(requests.produce(T0, requests.batch([b"late"])), PRODUCE_WITH_HINTS)
            refused = response.responses[0].partition_responses[0]
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert refused.current_leader.leader_id == 2
        assert cluster.loop.time() - began < AT_ONCE

    play(story)


def test_last_brokers_that_leave_while_one_is_away_do_not_wait_for_each_other() -> None:
    """Broker 2 leads a partition whose other replica has left; then broker 3 stops, too, and no broker stays."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "u", (2, 1))
        await create(cluster, "w", (3, 2))
        await stop(cluster, 1)
        began = cluster.loop.time()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(stop(cluster, 2))
            await asyncio.sleep(1.0)
            assert not waiting.done()
            assert await stop(cluster, 3) < AT_ONCE
        assert cluster.loop.time() - began < 1.0 + 2 * AT_ONCE

    play(story)


def test_leaving_waits_for_a_replica_that_is_about_to_be_in_sync(caplog: pytest.LogCaptureFixture) -> None:
    """As long as a controller responds, what it cannot move yet is tried again, and the log names it."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "u", (1, 2), (1, 2), (1, 2), (1, 2))
        cluster[2].kill()
        await asyncio.sleep(2 * SESSION_SECONDS)
        stopping = asyncio.ensure_future(stop(cluster, 1))  # noqa: TID251
        await asyncio.sleep(2.0)
        assert not stopping.done()
        assert "No other broker can lead 4 partitions of this one yet (u-0, u-1, u-2 and 1 more)" in caplog.text
        await cluster[2].start()
        assert await stopping < 5.5
        assert state_of(cluster, "u").leader == 2

    play(story)
