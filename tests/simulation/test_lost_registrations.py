"""A broker that does not learn in which epoch it was registered has lost nothing by that (B105)."""

import asyncio
import errno
from collections.abc import Mapping, Sequence
from functools import partial

import pytest

from oncelog.coordinator.controller.cluster_image import NO_LEADER
from oncelog.coordinator.metadata_store import paths
from oncelog.coordinator.metadata_store.store import Delete, MultiResult, Operation, SetData
from tests.simulation.cluster_stories import session_of, simulate, state_of
from tests.simulation.sim_zookeeper import Direction
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster
from tests.simulation.stopping_disk import StoppingDisk
from tests.simulation.test_eligible_leaders import LONG, MIN_ISR_2, T0, shrink_to_2, written
from tests.simulation.test_refused_starts import files

A_MOMENT, MOST_MOMENTS = 0.000_02, 2_000_000


def epoch_of_2(cluster: SimulatedCluster) -> int | None:
    znode = cluster.ensemble.tree.get(paths.broker(2))
    return None if znode is None else znode.stat.czxid


async def registered_since(cluster: SimulatedCluster, before: int | None) -> None:
    for _ in range(MOST_MOMENTS):
        if epoch_of_2(cluster) not in (None, before):
            return
        await asyncio.sleep(A_MOMENT)
    raise AssertionError("broker 2 is not registered")


def lose_the_response_to_2(cluster: SimulatedCluster) -> None:
    """Cut broker 2 off from the ensemble at the moment in which it is registered the next time."""
    apply = cluster.ensemble.apply

    def applying(session: int, operations: Sequence[Operation]) -> MultiResult:
        result = apply(session, operations)
        if any(operation.path == paths.broker(2) for operation in operations):
            cluster.ensemble.apply = apply  # type: ignore[method-assign]
            cluster[2].cut_from_ensemble(Direction.TO_CLIENT)
        return result

    cluster.ensemble.apply = applying  # type: ignore[method-assign]


@pytest.mark.parametrize("response_is_lost", [False, True])
def test_leader_whose_session_ends_twice_leads_again(response_is_lost: bool) -> None:
    """B105"""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await shrink_to_2(cluster)
        before = epoch_of_2(cluster)
        if response_is_lost:
            lose_the_response_to_2(cluster)
        cluster.ensemble.expire(session_of(cluster[2]).session_id)
        await registered_since(cluster, before)
        await asyncio.sleep(3 * SESSION_SECONDS)
        if response_is_lost:
            cluster[2].cut_from_ensemble(Direction.NONE)
        else:
            cluster.ensemble.expire(session_of(cluster[2]).session_id)
        await asyncio.sleep(LONG)
        assert state_of(cluster, "t").leader == 2
        await cluster[3].start()
        await writer.write(1)

    simulate(story, settings=MIN_ISR_2)


@pytest.mark.parametrize("killed_after_seconds", [0.000_1, 5])
def test_leader_that_is_killed_as_it_registers_leads_again(killed_after_seconds: float) -> None:
    """B105"""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await shrink_to_2(cluster)
        cluster[2].kill()
        before, start = epoch_of_2(cluster), asyncio.get_running_loop().create_task(cluster[2].start())
        await registered_since(cluster, before)
        await asyncio.sleep(killed_after_seconds)
        cluster[2].kill()
        start.cancel()
        await asyncio.sleep(LONG)
        await cluster[2].start()
        await asyncio.sleep(LONG)
        assert state_of(cluster, "t").leader == 2
        await cluster[3].start()
        await writer.write(1)

    simulate(story, settings=MIN_ISR_2)


def test_log_that_fails_while_its_broker_is_registered_counts_as_damaged() -> None:
    """B105: the registration says that it is whole, and its response comes after the failure."""

    async def story(cluster: SimulatedCluster) -> None:
        await shrink_to_2(cluster)
        before, apply = epoch_of_2(cluster), cluster.ensemble.apply
        replica = cluster[2].running.replica_manager.partition(T0)
        assert replica is not None
        assert replica.log is not None
        fail = partial(replica.log.mark_failed, OSError(errno.EIO, "what was to be written is lost"))

        def applying(session: int, operations: Sequence[Operation]) -> MultiResult:
            result = apply(session, operations)
            if any(operation.path == paths.broker(2) for operation in operations):
                cluster.ensemble.apply = apply  # type: ignore[method-assign]
                fail()
            return result

        cluster.ensemble.apply = applying  # type: ignore[method-assign]
        cluster.ensemble.expire(session_of(cluster[2]).session_id)
        await registered_since(cluster, before)
        await asyncio.sleep(LONG)
        cluster[2].kill()
        await asyncio.sleep(LONG)
        await cluster[2].start()
        await asyncio.sleep(LONG)
        assert state_of(cluster, "t").leader == NO_LEADER

    simulate(story, settings=MIN_ISR_2)


def test_leader_that_is_killed_again_and_again_on_a_full_disk_leads_again() -> None:
    """B105"""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await shrink_to_2(cluster)
        cluster[2].disk.fill(0)
        for _ in range(3):
            cluster[2].kill()
            await asyncio.sleep(LONG)
            await cluster[2].start()
            await asyncio.sleep(LONG)
            assert state_of(cluster, "t").leader == 2
        cluster[2].disk.make_room()
        await cluster[3].start()
        await writer.write(1)

    simulate(story, settings=MIN_ISR_2)


def test_replica_leads_although_its_broker_was_once_started_with_an_empty_directory() -> None:
    """B105: its volume was not mounted. The other replica has lost records."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await written(cluster, 3, 2)
        cluster[2].kill()
        cluster[3].crash("power")
        await asyncio.sleep(LONG)
        volume, cluster[2].disk = cluster[2].disk, StoppingDisk()
        await cluster[2].start()
        await asyncio.sleep(LONG)
        await cluster[2].stop()
        cluster[2].disk = volume
        for _ in range(2):
            await cluster[2].start()
            await asyncio.sleep(LONG)
            assert state_of(cluster, "t").leader == 2
            writer.assert_nothing_is_lost(cluster[2].content(T0))
            cluster[2].kill()
            await asyncio.sleep(LONG)

    simulate(story, settings=MIN_ISR_2)


@pytest.mark.parametrize("starts", [1, 2])
def test_copy_of_a_directory_leads_nothing_that_was_written_after_it_was_made(starts: int) -> None:
    """B105: the copy was closed properly, so its own epochs do not show that another directory was in use."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await written(cluster, 3, 2)
        await cluster[2].stop()
        copy = files(cluster[2].disk)
        await cluster[2].start()
        await asyncio.sleep(LONG)
        await writer.write(20)
        for broker_id in (2, 3):
            cluster[broker_id].kill()
        await asyncio.sleep(LONG)
        cluster[2].disk = restored(copy)
        for _ in range(starts):
            await cluster[2].start()
            await asyncio.sleep(LONG)
            assert state_of(cluster, "t").leader == NO_LEADER
            cluster[2].kill()
        await cluster[2].start()
        await cluster[3].start()
        await asyncio.sleep(LONG)
        writer.assert_nothing_is_lost(cluster[state_of(cluster, "t").leader].content(T0))

    simulate(story, settings=MIN_ISR_2)


def restored(copy: Mapping[str, bytes]) -> StoppingDisk:
    disk = StoppingDisk()
    for path, content in copy.items():
        disk.make_dirs(path.rpartition("/")[0])
        disk.write_atomic(path, content)
    return disk


def test_broker_registers_although_what_its_registration_lies_beside_is_removed_meanwhile() -> None:
    """B105: an operator cleans up by hand, at the worst moment."""

    async def story(cluster: SimulatedCluster) -> None:
        apply, before = cluster.ensemble.apply, epoch_of_2(cluster)

        def applying(session: int, operations: Sequence[Operation]) -> MultiResult:
            if any(operation.path == paths.broker(2) for operation in operations):
                cluster.ensemble.apply = apply  # type: ignore[method-assign]
                leftovers = [paths.last_registration(broker_id) for broker_id in cluster.brokers]
                apply(session, [Delete(path=path) for path in (*leftovers, paths.BROKER_REGISTRATIONS)])
            return apply(session, operations)

        cluster.ensemble.apply = applying  # type: ignore[method-assign]
        cluster.ensemble.expire(session_of(cluster[2]).session_id)
        await registered_since(cluster, before)

    simulate(story)


def test_registration_that_others_change_all_the_time_is_given_up_and_tried_later() -> None:
    """B105"""

    async def story(cluster: SimulatedCluster) -> None:
        apply, before, attempts = cluster.ensemble.apply, epoch_of_2(cluster), []

        def applying(session: int, operations: Sequence[Operation]) -> MultiResult:
            if any(operation.path == paths.broker(2) for operation in operations):
                attempts.append(cluster.loop.time())
                apply(session, [SetData(path=paths.last_registration(2), data=b"{}")])
            return apply(session, operations)

        cluster.ensemble.apply = applying  # type: ignore[method-assign]
        cluster.ensemble.expire(session_of(cluster[2]).session_id)
        await asyncio.sleep(SESSION_SECONDS)
        assert 1 < len(attempts) < 200
        cluster.ensemble.apply = apply  # type: ignore[method-assign]
        await asyncio.sleep(SESSION_SECONDS)
        assert epoch_of_2(cluster) not in (None, before)

    simulate(story)
