"""One log loses its end while all brokers are down and no machine has lost power; its broker returns first."""

import asyncio
from collections.abc import Callable

import pytest

from oncelog.broker.storage.checkpoints import REPLICATION_CHECKPOINT
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import create, simulate, state_of
from tests.simulation.lost_log_ends import (
    checkpointed_high_watermarks,
    cut_log,
    remove_directory,
    remove_files,
)
from tests.simulation.sim_disk import SimDisk
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster

T0 = TopicPartition("t", 0)
LONG = 3 * SESSION_SECONDS
CHECKPOINTED_SECONDS = 6.0
RECORDS = 20
NOTHING_COMPARED = {"min.insync.replicas": "2", "unclean.recovery.strategy": "none"}


def cut_in_half(disk: SimDisk, partition: TopicPartition) -> None:
    cut_log(disk, partition, RECORDS // 2)


async def written(cluster: SimulatedCluster) -> AcknowledgedWriter:
    await create(cluster, "t", (1, 2, 3))
    writer = AcknowledgedWriter(cluster, T0)
    await writer.write(RECORDS)
    await asyncio.sleep(CHECKPOINTED_SECONDS)
    assert set(state_of(cluster, "t").isr) == {1, 2, 3}
    return writer


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("lose", [remove_directory, remove_files, cut_in_half])
def test_log_that_lost_its_end_waits_for_one_that_has_it(
    lose: Callable[[SimDisk, TopicPartition], None], first: int, caplog: pytest.LogCaptureFixture
) -> None:
    """B112: broker 1 led; any of them would have led if its log counted as intact."""

    async def story(cluster: SimulatedCluster) -> None:
        writer = await written(cluster)
        for broker in cluster.alive:
            broker.kill()
        lose(cluster[first].disk, T0)
        await cluster[first].start()
        assert ("1 directory of a partition is missing" in caplog.text) == (lose is remove_directory)
        await asyncio.sleep(LONG)
        assert state_of(cluster, "t").leader == -1
        others = {1, 2, 3} - {first}
        for broker_id in others:
            await cluster[broker_id].start()
        await asyncio.sleep(LONG)
        assert state_of(cluster, "t").leader in others
        assert set(state_of(cluster, "t").isr) == {1, 2, 3}
        for broker in cluster.alive:
            writer.assert_nothing_is_lost(broker.content(T0))

    simulate(story, settings=NOTHING_COMPARED)


def test_topic_that_was_deleted_just_before_a_kill_damages_nothing() -> None:
    """B112: the checkpoint named the topic until it was deleted, and its directory is gone after the start."""

    async def story(cluster: SimulatedCluster) -> None:
        await written(cluster)
        await create(cluster, "gone", (1, 2, 3))
        await asyncio.sleep(CHECKPOINTED_SECONDS)
        gone = TopicPartition("gone", 0)
        assert b"gone 0 0\n" in cluster[2].disk.read(f"/data/{REPLICATION_CHECKPOINT}")
        await cluster[cluster.controllers[0]].running.controller_apis.delete_topics(["gone"], timeout_seconds=1.0)
        assert not any(broker.disk.is_dir(f"/data/{gone}") for broker in cluster.alive)
        for broker in cluster.alive:
            broker.kill()
            for name in broker.disk.list_dir("/data"):
                if name.endswith("-delete"):
                    broker.disk.remove_tree(f"/data/{name}")
        await cluster[2].start()
        await asyncio.sleep(LONG)
        assert state_of(cluster, "t").leader == 2
        assert checkpointed_high_watermarks(cluster[2].disk)[T0] == RECORDS

    simulate(story, settings=NOTHING_COMPARED)
