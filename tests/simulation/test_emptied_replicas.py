"""A replica whose log is empty is away while the logs of the others are lost and begin again (B122)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import topic_requests
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_history import log_of
from tests.simulation.cluster_stories import create, simulate, state_of
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster

T0 = TopicPartition("t", 0)
LONG = 3 * SESSION_SECONDS
RECORDS = 20
SETTINGS = {"min.insync.replicas": "2", "log.retention.check.interval.ms": "10000"}


async def expire(cluster: SimulatedCluster) -> None:
    """Have retention delete everything, on all brokers."""
    client = await cluster[3].client()
    for retention_ms in ("1000", "604800000"):
        request = topic_requests.set_topic_config("t", "retention.ms", retention_ms)
        response = await client.call(request, topic_requests.INCREMENTAL_ALTER_CONFIGS_VERSION)
        assert not response.responses[0].error_code
        await asyncio.sleep(120.0)


async def delete(cluster: SimulatedCluster) -> None:
    client = await cluster[3].client()
    response = await client.call(topic_requests.delete_records(T0, RECORDS), topic_requests.DELETE_RECORDS_VERSION)
    assert not response.topics[0].partitions[0].error_code
    await asyncio.sleep(1.0)


async def lose_the_logs(cluster: SimulatedCluster, *broker_ids: int) -> None:
    """Leave nothing of the logs of these brokers, which know no log start offset either."""
    for broker_id in broker_ids:
        cluster[broker_id].crash("power")
        cluster[broker_id].disk.remove_tree("/data/t-0")
        if cluster[broker_id].disk.exists("/data/log-start-offset-checkpoint"):
            cluster[broker_id].disk.remove("/data/log-start-offset-checkpoint")
    await asyncio.sleep(LONG)
    for broker_id in broker_ids:
        await cluster[broker_id].start()
    await asyncio.sleep(LONG)


@pytest.mark.parametrize("empty", [expire, delete])
def test_emptied_replica_copies_what_was_written_where_the_log_began_again(
    empty: Callable[[SimulatedCluster], Awaitable[None]],
) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (3, 1, 2))
        await AcknowledgedWriter(cluster, T0).write(RECORDS)
        await empty(cluster)
        assert (log_of(cluster, 3, T0).log_start_offset, log_of(cluster, 3, T0).log_end_offset) == (RECORDS, RECORDS)
        await cluster[3].stop()
        await asyncio.sleep(LONG)
        await lose_the_logs(cluster, 1, 2)
        assert log_of(cluster, state_of(cluster, "t").leader, T0).log_end_offset == 0
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(RECORDS + 10)
        assert set(state_of(cluster, "t").isr) == {1, 2}
        await cluster[3].start()
        await asyncio.sleep(LONG)
        assert set(state_of(cluster, "t").isr) == {1, 2, 3}
        for broker_id in (1, 2, 3):
            writer.assert_nothing_is_lost(cluster[broker_id].content(T0))

    simulate(story, settings=SETTINGS)


def test_emptied_replica_joins_a_leader_whose_log_begins_where_its_own_does(caplog: pytest.LogCaptureFixture) -> None:
    """Its log stays as it is."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (3, 1, 2))
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(RECORDS)
        await delete(cluster)
        await cluster[3].stop()
        await asyncio.sleep(LONG)
        await writer.write(10)
        await cluster[3].start()
        await asyncio.sleep(LONG)
        assert set(state_of(cluster, "t").isr) == {1, 2, 3}
        assert log_of(cluster, 3, T0).log_start_offset == RECORDS
        assert "t-0 is cut" not in caplog.text

    simulate(story, settings=SETTINGS)
