"""Control requests that are late, held up or repeated, and brokers that they do not reach, in virtual time.

(Histories with such faults are in ``test_cluster_histories``.)
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from oncelog.coordinator.controller.api_error import TIMED_OUT
from oncelog.coordinator.controller.reassignment import is_moving
from oncelog.coordinator.controller.topic_plan import NewTopic
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from oncelog.protocol.messages.stop_replica import StopReplicaRequest
from oncelog.protocol.messages.update_metadata import UpdateMetadataRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import (
    NOTICED_SECONDS,
    assert_agreement,
    assignments,
    create,
    session_of,
    simulate,
    state_of,
)
from tests.simulation.control_post import ControlFrame, ControlPost
from tests.simulation.sim_zookeeper import Direction
from tests.simulation.simulated_cluster import SESSION_SECONDS, ClusterBroker, SimulatedCluster
from tests.simulation.test_cluster_transactions import Producer, create_log, stable_end, until

T0 = TopicPartition("t", 0)
ACKNOWLEDGED_SECONDS = 60.0


def held(broker: ClusterBroker) -> set[TopicPartition]:
    return {log.topic_partition for log in broker.running.log_manager}


def strays(broker: ClusterBroker) -> list[str]:
    return [name for name in broker.disk.list_dir("/data") if name.endswith("-stray")]


async def change_controller(cluster: SimulatedCluster, to: int) -> None:
    """Have another broker elected."""
    others = [broker for broker in cluster.alive if broker.broker_id != to]
    for broker in others:
        broker.cut_from_ensemble(Direction.TO_CLIENT)
    (controller_id,) = cluster.controllers
    cluster.ensemble.expire(session_of(cluster[controller_id]).session_id)
    await until(lambda: to in cluster.controllers)
    for broker in others:
        broker.cut_from_ensemble(Direction.NONE)
    await until(lambda: cluster.controllers == [to])


async def move(cluster: SimulatedCluster, partition: TopicPartition, *replicas: int) -> None:
    """Move a partition, and wait until it has arrived."""
    (controller_id,) = cluster.controllers
    results = await cluster[controller_id].running.controller_apis.alter_reassignments({partition: replicas})
    assert isinstance(results, dict)
    assert results[partition].code is ErrorCode.NONE
    await until(lambda: assignments(cluster)[partition] == replicas)


async def delete(cluster: SimulatedCluster, topic: str) -> None:
    (controller_id,) = cluster.controllers
    (error,) = await cluster[controller_id].running.controller_apis.delete_topics([topic], timeout_seconds=10.0)
    assert error.code is ErrorCode.NONE


def is_whole(cluster: SimulatedCluster, partition: TopicPartition) -> bool:
    return set(state_of(cluster, *partition).isr) == set(assignments(cluster)[partition])


def test_commit_becomes_visible_when_new_coordinator_learns_of_topic_after_its_election() -> None:
    """B15: the acknowledged commit of a transaction whose partition the next coordinator has not heard of yet.

    Broker 1 coordinates; broker 2, which takes over, never got the UpdateMetadata that names the topic; broker 3, which
    is the next controller, leads it. What follows the LeaderAndIsr that makes broker 2 coordinator is held up.
    """

    async def story(cluster: SimulatedCluster) -> None:
        post = ControlPost(cluster)
        await create_log(cluster, (1, 2))
        post.wants = lambda frame: frame.receiver == 2
        topic = NewTopic(name="t", assignments=[(0, (3,))])
        (controller_id,) = cluster.controllers
        assert await cluster[controller_id].running.controller_apis.create_topics([topic], timeout_seconds=1.0) == [
            TIMED_OUT
        ]
        assert not cluster[2].running.metadata.topic_exists("t")
        producer = Producer(cluster, "id")
        assert await producer.init() is ErrorCode.NONE
        await producer.write(T0)
        cluster.loop.network.sever("broker 1", "broker 3")  # So that the marker is not written yet.
        assert await producer.end(commit=True) is ErrorCode.NONE
        assert stable_end(cluster)[0] == 0
        post.wants = _updates_after_leadership(2)
        cluster[2].cut_from_ensemble()
        cluster[1].kill()
        await until(lambda: cluster.controllers == [3])
        cluster[2].cut_from_ensemble(Direction.NONE)
        await until(lambda: state_of(cluster, "__transaction_state").leader == 2)
        await asyncio.sleep(1.0)
        post.release()
        await until(lambda: stable_end(cluster) == (2, 2))  # The record and its marker.

    simulate(story, settings={"transaction.state.log.min.isr": "1"})


def _updates_after_leadership(broker_id: int) -> Callable[[ControlFrame], bool]:
    """UpdateMetadata to a broker, once it was sent a LeaderAndIsr."""
    led: set[int] = set()

    def wants(frame: ControlFrame) -> bool:
        if frame.receiver != broker_id:
            return False
        if frame.kind is LeaderAndIsrRequest:
            led.add(frame.sender)
        return frame.kind is UpdateMetadataRequest and frame.sender in led

    return wants


async def _move_away_unheard(cluster: SimulatedCluster) -> None:
    """Partition 0 of a topic leaves broker 3, which does not hear of it before there is another controller."""
    await create(cluster, "t", (1, 3))
    await AcknowledgedWriter(cluster, T0).write(3)
    cluster.isolate(3)
    await asyncio.sleep(NOTICED_SECONDS)
    await move(cluster, T0, 1, 2)
    await change_controller(cluster, 2)
    cluster.loop.network.heal()
    await asyncio.sleep(SESSION_SECONDS)


def test_replica_moved_away_from_unreachable_broker_is_set_aside_after_change_of_controller() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await _move_away_unheard(cluster)
        assert held(cluster[3]) == set()
        (name,) = strays(cluster[3])
        assert name.startswith("t-0.")
        await cluster[3].stop()
        await cluster[3].start()
        assert (held(cluster[3]), strays(cluster[3])) == (set(), [name])
        assert_agreement(cluster)

    simulate(story)


def test_replica_moved_away_from_stopped_broker_is_set_aside_when_it_starts() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 3))
        await AcknowledgedWriter(cluster, T0).write(3)
        cluster[3].kill()
        await asyncio.sleep(2 * SESSION_SECONDS)
        await move(cluster, T0, 1, 2)
        await change_controller(cluster, 2)
        await cluster[3].start()
        await asyncio.sleep(1.0)
        assert held(cluster[3]) == set()
        assert len(strays(cluster[3])) == 1

    simulate(story)


def test_topic_created_again_after_unheard_move_accepts_writes_on_all_replicas() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await _move_away_unheard(cluster)
        await delete(cluster, "t")
        await create(cluster, "t", (3, 1, 2))
        writer = AcknowledgedWriter(cluster, T0)
        async with asyncio.timeout(ACKNOWLEDGED_SECONDS):
            await writer.write(3)
        await until(lambda: is_whole(cluster, T0))
        for broker in cluster.alive:
            await until(lambda broker=broker: broker.content(T0) == cluster[3].content(T0))  # type: ignore[misc]
        writer.assert_nothing_is_lost(cluster[3].content(T0))

    simulate(story)


def test_moving_replicas_are_kept_by_a_new_controller() -> None:
    """A move that is under way assigns all replicas: none of them is stray."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 3))
        await AcknowledgedWriter(cluster, T0).write(3)
        cluster[2].kill()
        await asyncio.sleep(1.0)
        await cluster[1].running.controller_apis.alter_reassignments({T0: (2, 3)})
        await change_controller(cluster, 3)
        topic = cluster.ensemble.tree.get(paths.topic("t"))
        assert topic is not None
        assert is_moving(znodes.decode_topic(topic.data).partitions[0])
        assert (held(cluster[1]), held(cluster[3])) == ({T0}, {T0})
        await cluster[2].start()
        await until(lambda: assignments(cluster)[T0] == (2, 3))
        await until(lambda: held(cluster[1]) == set())
        assert not strays(cluster[1])  # It heard that it was to delete its replica.

    simulate(story)


Interlude = Callable[[SimulatedCluster], Awaitable[None]]


async def _nothing(cluster: SimulatedCluster) -> None:
    """The same controller."""


async def _next_controller(cluster: SimulatedCluster) -> None:
    await change_controller(cluster, 2)
    await asyncio.sleep(1.0)


@pytest.mark.parametrize("interlude", [_nothing, _next_controller])
def test_repeated_stop_replica_does_not_delete_the_log_of_topic_created_again(interlude: Interlude) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        post = ControlPost(cluster)
        await create(cluster, "t", (1, 2, 3))
        await AcknowledgedWriter(cluster, T0).write(3)
        await delete(cluster, "t")
        stops = [frame for frame in post.sent if frame.kind is StopReplicaRequest]
        assert {frame.receiver for frame in stops} == {2, 3}
        await create(cluster, "t", (3, 1, 2))
        writer = AcknowledgedWriter(cluster, T0)
        await writer.write(3)
        await interlude(cluster)
        for frame in stops:
            await post.deliver_again(frame)
        assert all(held(broker) == {T0} for broker in cluster.alive)
        await writer.write(3)
        for broker in cluster.alive:
            await until(lambda broker=broker: broker.content(T0) == cluster[1].content(T0))  # type: ignore[misc]
        writer.assert_nothing_is_lost(cluster[3].content(T0))

    simulate(story)


@pytest.mark.parametrize("interlude", [_nothing, _next_controller])
def test_repeated_control_requests_of_the_past_change_nothing(interlude: Interlude) -> None:
    """Everything that was ever sent, oldest first and newest first: brokers agree and logs stay as they are."""

    async def story(cluster: SimulatedCluster) -> None:
        post = ControlPost(cluster)
        await create(cluster, "t", (1, 2, 3))
        await delete(cluster, "t")
        await create(cluster, "t", (3, 2))
        await move(cluster, T0, 3, 1)
        await create(cluster, "u", (2, 3))
        await AcknowledgedWriter(cluster, T0).write(3)
        await interlude(cluster)
        await asyncio.sleep(1.0)
        past = list(post.sent)
        before = [(held(broker), broker.running.metadata.image) for broker in cluster.alive]
        for frame in [*past, *reversed(past)]:
            await post.deliver_again(frame)
        assert [(held(broker), broker.running.metadata.image) for broker in cluster.alive] == before
        assert_agreement(cluster)

    simulate(story)
