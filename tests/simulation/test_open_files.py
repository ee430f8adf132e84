"""More logs than a broker may open files for: the ones that it has go on, the others come when they can be opened."""

import asyncio
import errno
import logging

import pytest

from oncelog.broker.metrics.monitor import warnings
from oncelog.broker.metrics.partition_metrics import Clock, replica_metrics
from oncelog.broker.parts import Broker
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.acknowledged_writers import records_of
from tests.simulation.cluster_history import log_of
from tests.simulation.cluster_stories import assert_agreement, create, simulate, state_of
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.test_cluster_administration import until

NEW_LOG = f"{0:020d}.log"
HEALED_SECONDS = 31.0
"""Seconds after which logs are open for which there are descriptors again."""
REFUSING_SECONDS = 8.0
"""Seconds after which a log that refuses writes for want of descriptors is led elsewhere."""
COUNT = 20


def without_descriptors(cluster: SimulatedCluster, broker_id: int) -> None:
    """From now on no log can be opened by a broker, until there is room."""
    cluster[broker_id].disk.fail("open", NEW_LOG, error=errno.EMFILE, times=1_000_000)


def unopened(broker: Broker) -> float:
    found = replica_metrics(broker.replica_manager, broker.replica_control, Clock(0, 900_000))
    metrics = {metric.name: metric.samples for metric in found if metric is not None}
    (sample,) = metrics["oncelog_unopened_logs"]
    return sample.value


def lines_about(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if words in record.getMessage()]


def test_logs_beyond_the_limit_of_open_files_are_opened_when_they_can_be(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "before", (2, 3))
        epoch = state_of(cluster, "before").leader_epoch
        without_descriptors(cluster, 2)
        await create(cluster, "t", *[(2, 1), (2, 3), (3, 2)] * (COUNT // 3))
        broker, count = cluster[2].running, COUNT // 3 * 3
        orders = broker.replica_control.requests_admitted
        await asyncio.sleep(300.0)
        assert broker.replica_control.requests_admitted - orders <= 2, "what cannot be done is told once"
        assert state_of(cluster, "before").leader == 2
        assert state_of(cluster, "before").leader_epoch == epoch, "what is open goes on"
        await AcknowledgedWriter(cluster, TopicPartition("before", 0)).write(3)
        assert unopened(broker) == count
        (warning,) = warnings(broker)
        assert f"{count} logs cannot be opened" in warning
        assert "ulimit -n" in warning
        assert len(lines_about(caplog, "ulimit -n")) == 1
        assert not [
            r for r in caplog.records if r.levelno >= logging.WARNING and "LeaderAndIsr of t-" in r.getMessage()
        ]
        cluster[2].disk.make_room()
        await asyncio.sleep(HEALED_SECONDS)
        assert unopened(broker) == 0
        assert not warnings(broker)
        for index in (0, 1, 2):
            await AcknowledgedWriter(cluster, TopicPartition("t", index)).write(3)
        assert all(len(state_of(cluster, "t", index).isr) == 2 for index in range(3))
        assert len(lines_about(caplog, "can be opened again")) == 1
        assert_agreement(cluster)

    simulate(story)


def test_log_that_cannot_be_continued_for_want_of_descriptors_is_led_elsewhere_until_it_can() -> None:
    """B84: and a log that needs no new file stays where it is."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (3, 1, 2))
        await create(cluster, "small", (3, 1, 2))
        small = state_of(cluster, "small")
        writer = AcknowledgedWriter(cluster, TopicPartition("t", 0))
        await writer.write(5)
        cluster[3].disk.fail("open", ".log", error=errno.EMFILE, times=1_000_000)
        while await writer.try_to_write(bytes(100)):
            pass
        assert state_of(cluster, "t").leader == 3
        await until(lambda: 3 not in state_of(cluster, "t").isr, REFUSING_SECONDS)
        assert state_of(cluster, "t").leader != 3
        await writer.write(50)
        (warning,) = warnings(cluster[3].running)
        assert "ulimit -n" in warning
        await AcknowledgedWriter(cluster, TopicPartition("small", 0)).write(3)
        epoch = state_of(cluster, "t").leader_epoch
        await asyncio.sleep(300.0)
        assert state_of(cluster, "t").leader_epoch == epoch
        assert state_of(cluster, "small") == small
        cluster[3].disk.make_room()
        await until(lambda: set(state_of(cluster, "t").isr) == {1, 2, 3}, HEALED_SECONDS)
        assert not warnings(cluster[3].running)
        await asyncio.sleep(1.0)
        for broker_id in (1, 2, 3):
            writer.assert_in_place(dict(records_of(log_of(cluster, broker_id, TopicPartition("t", 0)))))
        assert_agreement(cluster)

    simulate(story, settings={"min.insync.replicas": "2", "log.segment.bytes": "4096"})


def test_follower_that_cannot_continue_its_log_holds_up_no_write_for_long() -> None:
    """B84: it leaves the ISR before it has lagged for replica.lag.time.max.ms."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 2, 3))
        writer = AcknowledgedWriter(cluster, TopicPartition("t", 0), pause=0.05)
        cluster[3].disk.fail("open", ".log", error=errno.EMFILE, times=1_000_000)
        writing = asyncio.ensure_future(writer.run())  # noqa: TID251
        await until(lambda: 3 not in state_of(cluster, "t").isr, 60.0)
        await asyncio.sleep(1.0)
        writer.stop()
        await writing
        assert writer.longest_stall() < REFUSING_SECONDS

    simulate(story, settings={"log.segment.bytes": "4096"})


def test_follower_that_must_cut_its_log_without_descriptors_does_so_when_it_can() -> None:
    """B124: a former leader has records that were not replicated, and producers of which a snapshot tells."""

    async def story(cluster: SimulatedCluster) -> None:
        partition = TopicPartition("t", 0)
        await create(cluster, "t", (2, 1, 3))
        client = await cluster[2].client()

        async def produce(sequence: int, acks: int) -> None:
            data = requests.batch([b"v"], producer_id=77, epoch=0, sequence=sequence)
            response = await client.call(requests.produce(partition, data, acks=acks), requests.PRODUCE_VERSION)
            assert not response.responses[0].partition_responses[0].error_code

        for sequence in range(10):
            await produce(sequence, -1)
        log = log_of(cluster, 2, partition)
        log.roll()
        for sequence in range(10, 15):
            await produce(sequence, -1)
        cluster.isolate(2)
        await produce(15, 1)
        await until(lambda: state_of(cluster, "t").leader != 2, 60.0)
        writer = AcknowledgedWriter(cluster, partition)
        await writer.write(3)
        cluster[2].disk.fail("open", error=errno.EMFILE, times=1_000_000)
        cluster[2].disk.fail("sync_dir", error=errno.EMFILE, times=1_000_000)
        cluster.loop.network.heal()
        await asyncio.sleep(60.0)
        assert cluster[2].broker is not None
        assert (cluster[2].running.failure.done(), log.failed, log.log_end_offset) == (False, False, 16)
        cluster[2].disk.make_room()
        await until(lambda: set(state_of(cluster, "t").isr) == {1, 2, 3}, HEALED_SECONDS)
        for broker_id in (1, 2, 3):
            writer.assert_in_place(dict(records_of(log_of(cluster, broker_id, partition))))

    simulate(story, settings={"min.insync.replicas": "2"})


def test_new_partition_whose_log_cannot_be_opened_by_its_leader_is_led_by_another_replica() -> None:
    """B84"""

    async def story(cluster: SimulatedCluster) -> None:
        without_descriptors(cluster, 3)
        await create(cluster, "t", (3, 1, 2))
        await until(lambda: 3 not in state_of(cluster, "t").isr, 1.0)
        writer = AcknowledgedWriter(cluster, TopicPartition("t", 0))
        await writer.write(3)
        (controller_id,) = cluster.controllers
        cluster[controller_id].kill()
        await asyncio.sleep(20.0)
        assert state_of(cluster, "t").leader == ({1, 2} - {controller_id}).pop(), "a new controller knows it, too"
        assert 3 not in state_of(cluster, "t").isr
        await cluster[controller_id].start()
        cluster[3].disk.make_room()
        await until(lambda: set(state_of(cluster, "t").isr) == {1, 2, 3}, HEALED_SECONDS)
        writer.assert_nothing_is_lost(cluster[3].content(TopicPartition("t", 0)))

    simulate(story)


def test_log_that_could_not_be_opened_is_not_opened_once_its_topic_is_deleted() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        without_descriptors(cluster, 2)
        await create(cluster, "t", (2,), (3,))
        assert unopened(cluster[2].running) == 1
        (controller_id,) = cluster.controllers
        await cluster[controller_id].running.controller_apis.delete_topics(["t"], timeout_seconds=10)
        cluster[2].disk.make_room()
        await asyncio.sleep(HEALED_SECONDS)
        assert unopened(cluster[2].running) == 0
        assert cluster[2].running.replica_manager.partition(("t", 0)) is None
        assert_agreement(cluster)

    simulate(story)


def test_log_that_could_not_be_opened_is_forgotten_with_a_new_leader_that_has_all_of_it() -> None:
    """An order that is carried out late changes nothing that a later one has decided."""

    async def story(cluster: SimulatedCluster) -> None:
        without_descriptors(cluster, 2)
        await create(cluster, "t", (3, 2))
        await until(lambda: state_of(cluster, "t").isr == (3,), 60.0)
        cluster[3].kill()
        await asyncio.sleep(10.0)
        await cluster[3].start()
        await AcknowledgedWriter(cluster, TopicPartition("t", 0)).write(5)
        cluster[2].disk.make_room()
        await asyncio.sleep(HEALED_SECONDS + 10.0)
        assert set(state_of(cluster, "t").isr) == {2, 3}
        assert cluster[2].content(TopicPartition("t", 0)) == cluster[3].content(TopicPartition("t", 0))
        assert_agreement(cluster)

    simulate(story)
