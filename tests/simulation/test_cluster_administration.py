"""What clients ask of a cluster, over the wire and with real replicas: moves, elections, deletions, configurations.

And brokers that leave in an orderly way, or are suspected without reason, while producers write.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from oncelog.broker.peers.departures import RETURN_SECONDS
from oncelog.broker.replication.partition import Partition
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_stories import (
    NOTICED_SECONDS,
    assert_agreement,
    create,
    simulate,
    state_of,
)
from tests.simulation.simulated_cluster import SESSION_SECONDS, ClusterBroker, SimulatedCluster
from tests.simulation.wire_client import WireClient

T0 = TopicPartition("t", 0)
LOOK_SECONDS = 0.01


async def ask(broker: ClusterBroker, request: Message, version: int) -> Any:
    client = await broker.client()
    try:
        return await client.call(request, version)
    finally:
        client.close()


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until something is so; time is virtual, so looking often costs nothing."""
    for _ in range(int(seconds / LOOK_SECONDS)):
        if condition():
            return
        await asyncio.sleep(LOOK_SECONDS)
    raise AssertionError(f"it is not so after {seconds} s")


def replica(broker: ClusterBroker, partition: TopicPartition = T0) -> Partition:
    found = broker.running.replica_manager.partition(partition)
    assert found is not None
    return found


def partition_count(broker: ClusterBroker, topic: str) -> int:
    """Of a topic, as far as a broker knows it."""
    known = broker.running.metadata.image.topics.get(topic)
    return 0 if known is None else len(known.partitions)


class TestCreations:
    def test_created_topic_and_partitions_are_known_to_all_brokers_before_the_response(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            (controller_id,) = cluster.controllers
            for round_number in range(5):
                topic = CreatableTopic(name=f"t{round_number}", num_partitions=3, replication_factor=2)
                await ask(cluster[controller_id], CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7)
                assert all(partition_count(broker, topic.name) == 3 for broker in cluster.alive)
                grown = CreatePartitionsTopic(name=topic.name, count=5, assignments=None)
                await ask(cluster[controller_id], CreatePartitionsRequest(topics=[grown], timeout_ms=5_000), 3)
                assert all(partition_count(broker, topic.name) == 5 for broker in cluster.alive)

        simulate(story)

    def test_creation_does_not_wait_for_an_unresponsive_broker(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            (controller_id,) = cluster.controllers
            silent = next(broker for broker in cluster.alive if broker.broker_id != controller_id)
            cluster.loop.network.sever(f"broker {controller_id}", f"broker {silent.broker_id}")
            began = cluster.loop.time()
            topic = CreatableTopic(name="t", num_partitions=3, replication_factor=2)
            response = await ask(cluster[controller_id], CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7)
            assert response.topics[0].error_code == ErrorCode.NONE
            assert cluster.loop.time() - began < NOTICED_SECONDS

        simulate(story)


class TestMoves:
    def test_partition_moves_with_all_that_it_holds_while_it_is_written_to(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1, 2))
            writer = AcknowledgedWriter(cluster, T0)
            await writer.write(20)
            target = ReassignablePartition(partition_index=0, replicas=[3])
            request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[target])])
            assert (await ask(cluster[2], request, 0)).error_code == ErrorCode.NOT_CONTROLLER
            response = await ask(cluster[1], request, 0)
            assert response.responses[0].partitions[0].error_code == ErrorCode.NONE
            await writer.write(20)
            await until(lambda: state_of(cluster, "t").isr == (3,))
            await writer.write(20)
            writer.assert_nothing_is_lost(cluster[3].content(T0))
            listed = await ask(cluster[1], ListPartitionReassignmentsRequest(topics=None), 0)
            assert listed.topics == []
            await until(lambda: not any(b.disk.exists(f"/data/t-0/{0:020d}.log") for b in (cluster[1], cluster[2])))
            assert_agreement(cluster)

        simulate(story)

    def test_move_to_a_broker_that_is_away_waits_for_it_and_can_be_taken_back(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1, 2))
            cluster[3].kill()
            await asyncio.sleep(1.0)
            target = ReassignablePartition(partition_index=0, replicas=[2, 3])
            request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[target])])
            assert (await ask(cluster[1], request, 0)).responses[0].partitions[0].error_code == ErrorCode.NONE
            listed = await ask(cluster[1], ListPartitionReassignmentsRequest(topics=None), 0)
            (moving,) = listed.topics[0].partitions
            assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ([2, 3, 1], [3], [1])
            await AcknowledgedWriter(cluster, T0).write(5)
            target.replicas = None
            assert (await ask(cluster[1], request, 0)).responses[0].partitions[0].error_code == ErrorCode.NONE
            assert (await ask(cluster[1], ListPartitionReassignmentsRequest(topics=None), 0)).topics == []
            await cluster[3].start()
            await asyncio.sleep(1.0)
            assert cluster[3].running.replica_manager.partition(T0) is None
            assert_agreement(cluster)

        simulate(story)


class TestLeadership:
    def test_stopped_broker_hands_its_partitions_over_without_a_pause(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (2, 1, 3))
            writer = AcknowledgedWriter(cluster, T0)
            writing = asyncio.ensure_future(writer.write(400))  # noqa: TID251
            await asyncio.sleep(0.2)
            began = cluster.loop.time()
            await cluster[2].stop()
            assert cluster.loop.time() - began < 2.0
            await writing
            assert writer.longest_stall() < 0.25
            state = state_of(cluster, "t")
            assert (state.leader, 2 in state.isr) == (1, False)
            writer.assert_nothing_is_lost(cluster[1].content(T0))
            assert cluster.ensemble.tree.get(paths.broker(2)) is None
            assert_agreement(cluster)

        simulate(story)

    def test_follower_that_has_stopped_delays_no_writes(self) -> None:
        """Records that it no longer fetches, although it was nearly in sync, delay no response."""

        async def story(cluster: SimulatedCluster) -> None:
            partitions = 10
            await create(cluster, "t", *[(2, 1, 3)] * partitions)
            writers = [AcknowledgedWriter(cluster, TopicPartition("t", p), pause=0.001) for p in range(partitions)]
            writing = asyncio.gather(*(writer.run() for writer in writers))
            await asyncio.sleep(0.1)
            (controller_id,) = cluster.controllers
            await cluster[controller_id].running.controller_apis.controlled_shutdown(
                ControlledShutdownRequest(broker_id=2)
            )
            await asyncio.sleep(0.1)
            cluster[2].kill()
            await asyncio.sleep(0.5)
            for writer in writers:
                writer.stop()
            await writing
            assert max(writer.longest_stall() for writer in writers) < 0.25

        simulate(story, seed=2)

    def test_broker_that_stops_takes_up_nothing_new(self) -> None:
        """To follow those that lead now it would first cut its logs, while clients wait to hear who they are."""

        async def story(cluster: SimulatedCluster) -> None:
            partitions = 10
            await create(cluster, "t", *[(2, 1, 3)] * partitions)
            writers = [AcknowledgedWriter(cluster, TopicPartition("t", p), pause=0.001) for p in range(partitions)]
            writing = asyncio.gather(*(writer.run() for writer in writers))
            await asyncio.sleep(0.1)
            await cluster[2].stop()
            for writer in writers:
                writer.stop()
            await writing

            def ends_alone() -> list[TopicPartition]:
                """Where broker 2 has records that were never replicated."""
                names = [writer.partition for writer in writers]
                return [p for p in names if not cluster[1].content(p).startswith(cluster[2].content(p))]

            assert ends_alone() != []
            await cluster[2].start()
            await until(lambda: not ends_alone())

        simulate(story)

    def test_stopped_controller_hands_over_everything(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1, 2, 3))
            await cluster[1].stop()
            await asyncio.sleep(1.0)
            assert state_of(cluster, "t").leader == 2
            assert_agreement(cluster)

        simulate(story)

    def test_brokers_that_stop_one_after_the_other_start_again(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1, 2, 3))
            writer = AcknowledgedWriter(cluster, T0)
            await writer.write(10)
            for broker_id in (1, 2, 3):
                await cluster[broker_id].stop()
            for broker_id in (2, 1, 3):
                await cluster[broker_id].start()
            await writer.write(10)
            await until(lambda: len(state_of(cluster, "t").isr) == 3)
            writer.assert_nothing_is_lost(cluster[3].content(T0))
            await asyncio.sleep(1.0)  # The last ISR may have grown at this very moment.
            assert_agreement(cluster)

        simulate(story)

    def test_leadership_returns_on_request(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (2, 1, 3))
            cluster[2].kill()
            await asyncio.sleep(1.0)
            await cluster[2].start()
            await until(lambda: 2 in state_of(cluster, "t").isr)
            assert state_of(cluster, "t").leader == 1
            request = ElectLeadersRequest(topic_partitions=[ElectLeadersTopic(topic="t", partitions=[0])])
            response = await ask(cluster[1], request, 1)
            assert response.replica_election_results[0].partition_result[0].error_code == ErrorCode.NONE
            assert state_of(cluster, "t").leader == 2
            await AcknowledgedWriter(cluster, T0).write(3)
            assert_agreement(cluster)

        simulate(story)

    def test_leadership_returns_by_itself(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (2, 1, 3))
            cluster[2].kill()
            await asyncio.sleep(1.0)
            await cluster[2].start()
            await until(lambda: state_of(cluster, "t").leader == 2, seconds=310)

        simulate(story)

    def test_brokers_that_stop_at_once_end_cleanly(self) -> None:
        """The remaining brokers do not wait for those that have left."""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
            began = cluster.loop.time()
            await asyncio.gather(*(broker.stop() for broker in cluster.brokers.values()))
            assert cluster.loop.time() - began < 20
            assert cluster.ensemble.tree.children(paths.BROKER_IDS) == []
            await cluster.start()
            await asyncio.sleep(1.0)
            for index in range(3):
                await AcknowledgedWriter(cluster, TopicPartition("t", index)).write(2)
            assert_agreement(cluster)

        simulate(story)

    def test_broker_whose_log_failed_gives_its_partitions_away(self) -> None:
        """B84: there is one data directory, so the broker stops, in an orderly way."""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (2, 1, 3), (2, 1, 3))
            writer = AcknowledgedWriter(cluster, T0)
            await writer.write(5)
            cluster[2].disk.fail("append", f"/t-1/{0:020d}.log")
            await AcknowledgedWriter(cluster, TopicPartition("t", 1)).try_to_write(b"lost")
            assert cluster[2].running.failure.done()
            await cluster[2].stop()
            assert {state_of(cluster, "t", index).leader for index in (0, 1)} == {1}
            await writer.write(5)
            writer.assert_nothing_is_lost(cluster[1].content(T0))
            assert_agreement(cluster)

        simulate(story)


class TestUnreachableBrokers:
    def test_suspicions_that_are_wrong_lose_nothing(self) -> None:
        """A thousand of them, of every broker and of the controller, while a producer writes with acks=all."""

        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1, 2, 3))
            rng, writer = random.Random(11), AcknowledgedWriter(cluster, T0)
            writing = asyncio.ensure_future(writer.write(3_000))  # noqa: TID251
            for _ in range(1_000):
                accuser, accused = rng.sample([1, 2, 3], 2)
                cluster[accuser].running.controller._unreachable_backoff.forget(accused)
                cluster[accuser].running.controller.report_unreachable(accused)
                await asyncio.sleep(rng.uniform(0, 0.05))
            await writing
            await asyncio.sleep(NOTICED_SECONDS)
            assert_agreement(cluster)
            assert len(state_of(cluster, "t").isr) == 3
            assert state_of(cluster, "t").leader_epoch > 50
            await until(lambda: len({broker.content(T0) for broker in cluster.alive}) == 1)
            writer.assert_nothing_is_lost(cluster[1].content(T0))

        simulate(story)


class TestTopics:
    def test_topic_is_deleted_also_from_a_broker_that_was_away(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1, 2, 3), (3, 2, 1))
            await AcknowledgedWriter(cluster, T0).write(5)
            cluster[3].kill()
            await asyncio.sleep(2 * SESSION_SECONDS)
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1_000)
            assert (await ask(cluster[1], request, 6)).responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
            assert not cluster[1].running.metadata.topic_exists("t")
            await cluster[3].start()
            await until(lambda: cluster.ensemble.tree.get(paths.topic("t")) is None)
            for broker in cluster.alive:
                assert not [name for name in broker.disk.list_dir("/data") if name in ("t-0", "t-1")]
            assert_agreement(cluster)

        simulate(story)

    def test_new_partitions_are_led_by_everybody(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1, 2))
            request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=6, assignments=None)])
            assert (await ask(cluster[1], request, 2)).results[0].error_code == ErrorCode.NONE
            await asyncio.sleep(0.1)
            assert {state_of(cluster, "t", index).leader for index in range(6)} == {1, 2, 3}
            for index in range(6):
                await AcknowledgedWriter(cluster, TopicPartition("t", index)).write(2)
            assert_agreement(cluster)

        simulate(story)

    def test_configuration_that_any_broker_changes_is_known_to_all(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            await create(cluster, "t", (1, 2, 3))
            change = AlterableConfig(name="retention.ms", config_operation=0, value="12345")
            resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
            response = await ask(cluster[3], IncrementalAlterConfigsRequest(resources=[resource]), 1)
            assert response.responses[0].error_code == ErrorCode.NONE
            await asyncio.sleep(0.1)
            for broker in cluster.alive:
                assert broker.running.configs.topic_overrides("t") == {"retention.ms": "12345"}
                log = replica(broker).log
                assert log is not None
                assert log.config.retention_ms == 12345
            znode = cluster.ensemble.tree.get(paths.topic_config("t"))
            assert znode is not None
            assert znodes.decode_config(znode.data) == {"retention.ms": "12345"}

        simulate(story)


def test_topic_that_needs_a_broker_that_restarts_is_created_when_it_is_back() -> None:
    """Clients retry LEADER_NOT_AVAILABLE; INVALID_REPLICATION_FACTOR is final for many of them."""

    async def story(cluster: SimulatedCluster) -> None:
        async def requested() -> ErrorCode:
            client = await WireClient.connect(cluster[2].port)
            response = await client.call(requests.metadata("orders"), requests.METADATA_VERSION)
            client.close()
            return ErrorCode(response.topics[0].error_code)

        await cluster[1].stop()
        await asyncio.sleep(NOTICED_SECONDS)
        assert await requested() is ErrorCode.LEADER_NOT_AVAILABLE
        await asyncio.sleep(RETURN_SECONDS)
        assert await requested() is ErrorCode.INVALID_REPLICATION_FACTOR
        await cluster[1].start()
        await asyncio.sleep(NOTICED_SECONDS)
        assert await requested() is ErrorCode.NONE

    simulate(story, settings={"default.replication.factor": "3", "auto.create.topics.enable": "true"})
