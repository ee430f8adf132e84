"""A disk that does not return from a call for a while: the broker stands still, and nothing else does."""

import asyncio

import pytest

from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import assert_agreement, controller_epoch, create, simulate, state_of
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.test_cluster_administration import until

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize("victim", [1, 2, 3])
def test_disk_that_stalls_for_three_seconds_costs_no_leadership(victim: int) -> None:
    """Of the controller (1), of the leader (2), and of a follower (3)."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (2, 1, 3))
        writer = AcknowledgedWriter(cluster, T0, response_within=10.0)
        await writer.write(5)
        before, epoch = state_of(cluster, "t"), controller_epoch(cluster)
        writing = asyncio.ensure_future(writer.run())  # noqa: TID251
        await asyncio.sleep(1.0)
        process = cluster[victim].process
        assert process is not None
        process.stall()
        await asyncio.sleep(3.0)
        process.resume()
        await asyncio.sleep(10.0)
        writer.stop()
        await writing
        after = state_of(cluster, "t")
        assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
        assert controller_epoch(cluster) == epoch
        assert writer.longest_stall() < 3.5
        assert set(after.isr) == {1, 2, 3}
        writer.assert_nothing_is_lost(cluster[2].content(T0))
        assert_agreement(cluster)

    simulate(story)


@pytest.mark.parametrize("victim", [1, 2])
def test_disk_that_stalls_for_long_costs_the_leaderships(victim: int) -> None:
    """Of the controller, too."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (victim, 3))
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(5)
        process = cluster[victim].process
        assert process is not None
        process.stall()
        await until(lambda: state_of(cluster, "t").leader == 3, 9.0)
        await writer.write(5)
        process.resume()
        await until(lambda: set(state_of(cluster, "t").isr) == {victim, 3}, 10.0)
        writer.assert_nothing_is_lost(cluster[3].content(T0))

    simulate(story)
