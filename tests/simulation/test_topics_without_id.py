"""Topics that a release of Kafka before 2.8, or an old tool, has written without ids."""

import asyncio
from collections.abc import Sequence

import pytest

from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Create, MultiResult, Operation, SetData
from oncelog.coordinator.metadata_store.znodes import ReplicaAssignment, TopicAssignment
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import NOTICED_SECONDS, create, session_of, simulate, state_of
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster

OLD = ("clicks", "orders", "payments")
WITHOUT_ID = TopicAssignment(topic_id=ZERO_UUID, partitions={0: ReplicaAssignment(replicas=(1, 2, 3))})


def topic_id(cluster: SimulatedCluster, topic: str) -> bytes:
    znode = cluster.ensemble.tree.get(paths.topic(topic))
    assert znode is not None
    return znodes.decode_topic(znode.data).topic_id


async def write_without_ids(cluster: SimulatedCluster, *topics: str) -> None:
    """Write the znodes of topics with three replicas, new or not; the controller that is elected next finds them."""
    data = znodes.encode_topic(WITHOUT_ID)
    for topic in topics:
        path, session = paths.topic(topic), session_of(cluster[2])
        is_new = await session.get(path) is None
        await session.multi([Create(path=path, data=data) if is_new else SetData(path=path, data=data)])
    (controller,) = cluster.controllers
    cluster[controller].kill()
    await asyncio.sleep(NOTICED_SECONDS)
    await cluster[controller].start()
    await asyncio.sleep(2 * SESSION_SECONDS)


async def write_states(cluster: SimulatedCluster, *topics: str) -> None:
    """Write the states of their partitions, as an old controller has: these topics are not new."""
    state = znodes.PartitionState(leader=1, leader_epoch=0, isr=(1, 2, 3), controller_epoch=1)
    data = znodes.encode_partition_state(state)
    for topic in topics:
        path = paths.partition_state(TopicPartition(topic, 0))
        parents = [f"{paths.topic(topic)}/partitions", path.removesuffix("/state")]
        await session_of(cluster[2]).multi([Create(path=parent, data=b"") for parent in parents])
        await session_of(cluster[2]).multi([Create(path=path, data=data)])


@pytest.mark.parametrize("are_new", [True, False])
def test_isr_of_each_topic_without_id_follows_its_own_replicas(are_new: bool) -> None:
    """B114"""

    async def story(cluster: SimulatedCluster) -> None:
        if not are_new:
            data = znodes.encode_topic(WITHOUT_ID)
            for topic in OLD:
                await session_of(cluster[2]).multi([Create(path=paths.topic(topic), data=data)])
            await write_states(cluster, *OLD)
            await write_without_ids(cluster, *OLD)
            assert {topic_id(cluster, topic) for topic in OLD} == {ZERO_UUID}, "no broker has logs of them yet"
        await write_without_ids(cluster, *OLD)
        ids = {topic_id(cluster, topic) for topic in OLD} - {ZERO_UUID}
        assert len(ids) == len(OLD)
        writers = {topic: AcknowledgedWriter(cluster, TopicPartition(topic, 0)) for topic in OLD}
        for writer in writers.values():
            await writer.write(5)
        for broker_id in (1, 2, 3):
            cluster[broker_id].kill()
            await asyncio.sleep(3 * SESSION_SECONDS)
            for topic, writer in writers.items():
                await writer.write(5)
                assert broker_id not in state_of(cluster, topic).isr
            await cluster[broker_id].start()
            await asyncio.sleep(3 * SESSION_SECONDS)
            for topic, writer in writers.items():
                await writer.write(5)
                assert set(state_of(cluster, topic).isr) == {1, 2, 3}
        for topic, writer in writers.items():
            for broker in cluster.alive:
                writer.assert_nothing_is_lost(broker.content(TopicPartition(topic, 0)))

    simulate(story, settings={"min.insync.replicas": "2"})


@pytest.mark.parametrize("all_restart", [False, True])
def test_topic_that_an_old_tool_has_written_again_keeps_its_id_and_its_records(all_restart: bool) -> None:
    """B114"""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 2, 3))
        writer = AcknowledgedWriter(cluster, TopicPartition("t", 0))
        await writer.write(5)
        before = topic_id(cluster, "t")
        await write_without_ids(cluster, "t")
        if all_restart:
            for broker in cluster.alive:
                broker.kill()
            for broker_id in (3, 2, 1):
                await cluster[broker_id].start()
            await asyncio.sleep(2 * SESSION_SECONDS)
        await writer.write(5)
        assert topic_id(cluster, "t") == before
        assert set(state_of(cluster, "t").isr) == {1, 2, 3}
        for broker in cluster.alive:
            writer.assert_nothing_is_lost(broker.content(TopicPartition("t", 0)))

    simulate(story, settings={"min.insync.replicas": "2"})


@pytest.mark.parametrize("first", [1, 4])
def test_controller_that_does_not_know_the_id_of_a_topic_invents_none(first: int) -> None:
    """B114: all brokers start again, and the first one has no replica of it."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 2, 3))
        writer = AcknowledgedWriter(cluster, TopicPartition("t", 0))
        await writer.write(5)
        before = topic_id(cluster, "t")
        data = znodes.encode_topic(WITHOUT_ID)
        await session_of(cluster[2]).multi([SetData(path=paths.topic("t"), data=data)])
        for broker in cluster.alive:
            broker.kill()
        for broker_id in (first, *(each for each in (1, 2, 3, 4) if each != first)):
            await cluster[broker_id].start()
        await asyncio.sleep(4 * SESSION_SECONDS)
        assert topic_id(cluster, "t") == (before if first == 1 else ZERO_UUID)
        cluster[3].kill()
        await asyncio.sleep(3 * SESSION_SECONDS)
        assert set(state_of(cluster, "t").isr) == {1, 2}
        await cluster[3].start()
        await writer.write(5)
        await asyncio.sleep(3 * SESSION_SECONDS)
        assert set(state_of(cluster, "t").isr) == {1, 2, 3}
        for broker_id in (1, 2, 3):
            writer.assert_nothing_is_lost(cluster[broker_id].content(TopicPartition("t", 0)))
        cluster[4].kill()
        await asyncio.sleep(3 * SESSION_SECONDS)
        assert topic_id(cluster, "t") == before

    simulate(story, brokers=4, settings={"min.insync.replicas": "2"})


def test_topic_that_is_written_again_while_it_gets_its_id_is_left_to_the_next_controller() -> None:
    """B114"""

    async def story(cluster: SimulatedCluster) -> None:
        apply = cluster.ensemble.apply

        def applying(session: int, operations: Sequence[Operation]) -> MultiResult:
            path = paths.topic("orders")
            if any(isinstance(operation, SetData) and operation.path == path for operation in operations):
                cluster.ensemble.apply = apply  # type: ignore[method-assign]
                apply(session, [SetData(path=path, data=znodes.encode_topic(WITHOUT_ID))])
            return apply(session, operations)

        cluster.ensemble.apply = applying  # type: ignore[method-assign]
        await write_without_ids(cluster, *OLD)
        assert [topic_id(cluster, topic) == ZERO_UUID for topic in OLD] == [False, True, False]
        cluster[cluster.controllers[0]].kill()
        await asyncio.sleep(2 * SESSION_SECONDS)
        assert topic_id(cluster, "orders") != ZERO_UUID
        await AcknowledgedWriter(cluster, TopicPartition("orders", 0)).write(1)

    simulate(story)
