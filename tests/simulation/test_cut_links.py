"""One link of a cluster is cut: two brokers do not reach each other, both reach the third and the ensemble.

The controller stays the controller while the majority reaches it, each partition changes its leader once at most, and
writes go on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest

from oncelog.coordinator.metadata_store import paths
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import (
    NOTICED_SECONDS,
    assert_agreement,
    controller_epoch,
    create,
    session_of,
    simulate,
    state_of,
    views,
)
from tests.simulation.sim_zookeeper import Direction, SimSession
from tests.simulation.simulated_cluster import SESSION_SECONDS, ClusterBroker, SimulatedCluster

REPLICAS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
SETTINGS = {"min.insync.replicas": "2"}
HOLD_SECONDS = 60
LONGEST_STALL_SECONDS = NOTICED_SECONDS + 1.5
"""Until the cut is noticed, and a request that the former leader took has timed out."""
LINKS = [(1, 2), (2, 3)]
"""Controller and broker; broker and broker."""
WAYS = ["both", "there", "back"]
UNNOTICED_SECONDS = 0.9 * SESSION_SECONDS
"""The ensemble does not miss a member that is silent for this time."""
_LOOK_SECONDS = 0.0005
_MOST_LOOKS = 12_000


def cut(cluster: SimulatedCluster, link: tuple[int, int], ways: str) -> None:
    one, other = (f"broker {broker_id}" for broker_id in link)
    if ways in ("both", "there"):
        cluster.loop.network.sever(one, other)
    if ways in ("both", "back"):
        cluster.loop.network.sever(other, one)


@asynccontextmanager
async def writing(cluster: SimulatedCluster) -> AsyncIterator[list[AcknowledgedWriter]]:
    """Write to each partition with acks=all."""
    writers = [AcknowledgedWriter(cluster, TopicPartition("t", index), pause=0.1) for index in range(len(REPLICAS))]
    tasks = [asyncio.ensure_future(writer.run()) for writer in writers]  # noqa: TID251
    yield writers
    for writer in writers:
        writer.stop()
    await asyncio.gather(*tasks)


def leader_epochs(cluster: SimulatedCluster) -> list[int]:
    return [state_of(cluster, "t", index).leader_epoch for index in range(len(REPLICAS))]


def leaders_known_to(cluster: SimulatedCluster, broker_id: int) -> Iterable[tuple[int, int]]:
    known = views(cluster)[broker_id][2]
    return [known["t", index][:2] for index in range(len(REPLICAS))]


class TestCutLink:
    @pytest.mark.parametrize("ways", WAYS)
    @pytest.mark.parametrize("link", LINKS)
    def test_cut_link_keeps_the_controller_and_bounds_leader_epochs(self, link: tuple[int, int], ways: str) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", *REPLICAS)
            cut(cluster, link, ways)
            await asyncio.sleep(HOLD_SECONDS)
            assert controller_epoch(cluster) == 1
            assert cluster.controllers == [1]
            assert max(leader_epochs(cluster)) <= 1
            cluster.loop.network.heal()
            await asyncio.sleep(4 * SESSION_SECONDS)
            assert controller_epoch(cluster) == 1
            assert_agreement(cluster)

        simulate(story, settings=SETTINGS)

    def test_broker_that_learned_of_the_controller_from_it_before_the_ensemble_watches_it(self) -> None:
        """Otherwise it says that it has lost a controller that it never connected to, and another one takes over."""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", *REPLICAS)
            cluster[3].cut_from_ensemble(Direction.TO_CLIENT)
            cluster.ensemble.expire(session_of(cluster[1]).session_id)
            await asyncio.sleep(1)
            cluster[3].cut_from_ensemble(Direction.NONE)
            await asyncio.sleep(2 * SESSION_SECONDS)
            (controller,) = cluster.controllers
            assert controller != 3
            before = controller_epoch(cluster)
            cut(cluster, (1, 2), "both")
            await asyncio.sleep(HOLD_SECONDS)
            assert controller_epoch(cluster) == before
            assert cluster.controllers == [controller]

        simulate(story, settings=SETTINGS)

    @pytest.mark.parametrize("ways", WAYS)
    @pytest.mark.parametrize("link", LINKS)
    def test_cut_link_lets_writes_go_on(self, link: tuple[int, int], ways: str) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", *REPLICAS)
            async with writing(cluster) as writers:
                await asyncio.sleep(2)
                cut(cluster, link, ways)
                await asyncio.sleep(HOLD_SECONDS)
                cluster.loop.network.heal()
                await asyncio.sleep(2 * SESSION_SECONDS)
            stalls = [writer.longest_stall() for writer in writers]
            assert max(stalls) < LONGEST_STALL_SECONDS, stalls
            for writer in writers:
                leader = state_of(cluster, *writer.partition).leader
                writer.assert_nothing_is_lost(cluster[leader].content(writer.partition))

        simulate(story, settings=SETTINGS)

    @pytest.mark.parametrize("ways", WAYS)
    def test_broker_cut_from_the_controller_learns_who_leads_from_the_store(self, ways: str) -> None:
        """Its clients would otherwise be sent to itself, which leads nothing any more."""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", *REPLICAS)
            cut(cluster, (1, 2), ways)
            await asyncio.sleep(10)
            assert state_of(cluster, "t", 1).leader == 3
            led = [(s.leader, s.leader_epoch) for s in (state_of(cluster, "t", index) for index in range(3))]
            assert leaders_known_to(cluster, 2) == led
            assert cluster[2].running.metadata.image.controller_id == 1
            for index in range(len(REPLICAS)):
                replica = cluster[2].running.replica_manager.partition(TopicPartition("t", index))
                assert replica is not None
                assert replica.leading is None

        simulate(story, settings=SETTINGS)

    def test_link_that_comes_and_goes_bounds_leader_epochs_and_lets_writes_go_on(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", *REPLICAS)
            async with writing(cluster) as writers:
                for _ in range(60):
                    cut(cluster, (1, 2), "both")
                    await asyncio.sleep(4)
                    cluster.loop.network.heal()
                    await asyncio.sleep(1.5)
            assert controller_epoch(cluster) == 1
            assert max(leader_epochs(cluster)) <= 8, leader_epochs(cluster)
            assert max(writer.longest_stall() for writer in writers) < LONGEST_STALL_SECONDS

        simulate(story, settings=SETTINGS)

    @pytest.mark.parametrize("how", ["kill", "pause"])
    def test_controller_that_dies_while_a_link_is_cut_is_replaced_before_its_session_ends(self, how: str) -> None:
        """The link between the two others is whole, so they agree that the controller is gone."""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", *REPLICAS)
            cut(cluster, (1, 2), "both")
            await asyncio.sleep(30)
            if how == "kill":
                cluster[1].kill()
            else:
                assert cluster[1].process is not None
                cluster[1].process.pause()
            await asyncio.sleep(NOTICED_SECONDS)
            assert cluster.ensemble.tree.get(paths.broker(1)) is not None
            assert controller_epoch(cluster) == 2
            (controller_id,) = [broker_id for broker_id in cluster.controllers if broker_id != 1]
            assert controller_id in (2, 3)

        simulate(story, settings=SETTINGS)


def test_broker_is_trusted_again_although_the_controllers_session_was_in_doubt_at_that_moment() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", *REPLICAS)
        cluster[1].running.controller.report_unreachable(2)  # It responds, so it would be trusted after a second.
        await asyncio.sleep(0.7)
        assert views(cluster)[1][:2] == (1, [1, 3])
        session = session_of(cluster[1])
        assert isinstance(session, SimSession)
        for _ in range(20):
            session.last_contact = -SESSION_SECONDS
            assert not session.is_live()
            await asyncio.sleep(0.03)
        await asyncio.sleep(NOTICED_SECONDS)
        assert controller_epoch(cluster) == 1
        assert_agreement(cluster)

    simulate(story)


@pytest.mark.parametrize("level", ["0", "1"])
def test_leader_that_lost_power_does_not_lead_again_by_what_the_store_says(level: str) -> None:
    """B116: the controller, which it does not reach, has not written yet that another one leads."""

    async def story(cluster: SimulatedCluster) -> None:
        assert cluster.controllers == [1]
        await create(cluster, "t", (3, 4, 2))
        writer = AcknowledgedWriter(cluster, TopicPartition("t", 0))
        await writer.write(20)
        cluster[1].cut_from_ensemble()
        cluster[3].crash("power")
        former = cluster.ensemble.tree.get(paths.broker(3))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(cluster[3].start())
            await until(lambda: cluster.ensemble.tree.get(paths.broker(3)) not in (former, None))
            cluster[1].kill()
            await until(lambda: bool(cluster.controllers) and has_metadata(cluster[3]))
            (controller,) = cluster.controllers
            cluster[controller].cut_from_ensemble()
            cluster.isolate(controller, 3)
            assert state_of(cluster, "t").leader == 3
            await asyncio.sleep(UNNOTICED_SECONDS)
            for follower in (2, 4):
                writer.assert_nothing_is_lost(cluster[follower].content(writer.partition))
            cluster[controller].cut_from_ensemble(Direction.NONE)
            cluster.loop.network.heal()
            await writer.write(5)
        writer.assert_nothing_is_lost(cluster[state_of(cluster, "t").leader].content(writer.partition))

    simulate(story, brokers=4, settings={**SETTINGS, "oncelog.eligible.leader.replicas.version": level})


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, so closely that little else happens meanwhile."""
    for _ in range(_MOST_LOOKS):
        if condition():
            return
        await asyncio.sleep(_LOOK_SECONDS)
    raise AssertionError("in vain")


def has_metadata(broker: ClusterBroker) -> bool:
    return broker.broker is not None and bool(broker.broker.metadata.image.brokers)
