"""Every broker runs a topic by the topic's own settings: those that did not create it, a new controller, and after
restarts; also topics that were created before brokers were notified of a creation."""

import asyncio
import random
from collections.abc import Coroutine, Mapping

import pytest

from oncelog.broker.config.topic_config import TOPIC_SETTINGS
from oncelog.broker.dispatch.request import ConnectionInfo, RequestContext
from oncelog.broker.handlers.leader_and_isr import handle_leader_and_isr
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.topic_plan import NewPartitions, NewTopic
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Create
from oncelog.coordinator.metadata_store.znodes import ReplicaAssignment, TopicAssignment
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import INTERNAL_TOPICS
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.messages.stop_replica import StopReplicaRequest
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.acknowledged_writer import AcknowledgedWriter
from tests.simulation.cluster_routes import ClusterRoutes
from tests.simulation.cluster_stories import (
    NOTICED_SECONDS,
    assert_agreement,
    controller_epoch,
    session_of,
    simulate,
    state_of,
)
from tests.simulation.patient_client import PatientClient, error_of
from tests.simulation.requests import committed_partitions, find_coordinator, init_producer_id, offset_fetch
from tests.simulation.sim_zookeeper import Direction
from tests.simulation.simulated_cluster import SESSION_SECONDS, SimulatedCluster
from tests.simulation.topic_settings import (
    TOPIC_RESOURCE,
    assert_settings_are_known,
    described_overrides,
    unusual_overrides,
)

T0 = TopicPartition("t", 0)
EVERYWHERE = ((0, (1, 2, 3)), (1, (2, 3, 1)), (2, (3, 1, 2)))
OTHERS = {"retention.ms": "-1", "min.insync.replicas": "2"}
GROUPS = 8


async def create(
    cluster: SimulatedCluster,
    configs: dict[str, str | None],
    name: str = "t",
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = EVERYWHERE,
) -> None:
    (controller_id,) = cluster.controllers
    topic = NewTopic(name=name, assignments=assignments, configs=configs)
    (result,) = await cluster[controller_id].running.controller_apis.create_topics([topic])
    assert not isinstance(result, ApiError), result
    await asyncio.sleep(0.1)


async def assert_known_everywhere(cluster: SimulatedCluster, overrides: dict[str, str], topic: str = "t") -> None:
    for broker in cluster.alive:
        assert_settings_are_known(broker, topic, overrides)
        assert await described_overrides(broker, topic) == overrides


def test_settings_of_a_created_topic_are_known_to_every_broker_through_failovers_and_restarts() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        overrides = unusual_overrides(cluster[1].running.config)
        assert overrides.keys() == TOPIC_SETTINGS.keys() - {"remote.storage.enable"}
        await create(cluster, dict(overrides))
        assert len(cluster.alive) == 3
        await assert_known_everywhere(cluster, overrides)

        (first,) = cluster.controllers
        cluster[first].kill()
        await asyncio.sleep(NOTICED_SECONDS)
        assert cluster.controllers != [first]
        await assert_known_everywhere(cluster, overrides)
        await cluster[first].start()

        for broker in list(cluster.brokers.values()):
            await broker.stop()
            await broker.start()
            await asyncio.sleep(1.0)
        assert_agreement(cluster)
        await assert_known_everywhere(cluster, overrides)

    simulate(story)


def test_settings_decide_about_writes_on_a_leader_that_did_not_create_the_topic() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, {"min.insync.replicas": "3", "max.message.bytes": "200"}, assignments=((0, (2, 3, 1)),))
        writer = AcknowledgedWriter(cluster, T0)
        assert state_of(cluster, "t").leader == 2
        assert await writer.try_to_write(b"small")
        assert not await writer.try_to_write(b"l" * 300)
        cluster[3].kill()
        await asyncio.sleep(NOTICED_SECONDS)
        assert not await writer.try_to_write(b"two are not enough")

    simulate(story)


def test_partitions_added_under_another_controller_get_the_topics_settings() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, dict(OTHERS), assignments=((0, (1, 2)),))
        await assert_known_everywhere(cluster, OTHERS)
        cluster[1].kill()
        await asyncio.sleep(NOTICED_SECONDS)
        (controller_id,) = cluster.controllers
        request = NewPartitions(topic="t", total_count=4)
        (error,) = await cluster[controller_id].running.controller_apis.create_partitions([request])
        assert error.code == ErrorCode.NONE
        await asyncio.sleep(0.1)
        await assert_known_everywhere(cluster, OTHERS)
        held = {log.topic_partition.partition for broker in cluster.alive for log in broker.running.log_manager}
        assert held >= {1, 2, 3}

    simulate(story)


def test_topic_written_without_a_notification_is_known_after_a_change_of_controller() -> None:
    """As the code before left it, or another tool: znodes, and no entry below /config/changes."""

    async def story(cluster: SimulatedCluster) -> None:
        partitions = {index: ReplicaAssignment(replicas=replicas) for index, replicas in EVERYWHERE}
        assignment = TopicAssignment(topic_id=bytes(range(16)), partitions=partitions)
        await session_of(cluster[1]).multi(
            [
                Create(path=paths.topic_config("t"), data=znodes.encode_config(OTHERS)),
                Create(path=paths.topic("t"), data=znodes.encode_topic(assignment)),
            ]
        )
        (first,) = cluster.controllers
        cluster[first].kill()
        await asyncio.sleep(NOTICED_SECONDS)
        await assert_known_everywhere(cluster, OTHERS)
        await cluster[first].start()
        await asyncio.sleep(1.0)
        assert len(cluster.alive) == 3
        for index in range(3):
            await AcknowledgedWriter(cluster, TopicPartition("t", index)).write(1)
        await assert_known_everywhere(cluster, OTHERS)

    simulate(story)


def test_new_controller_reads_whether_unclean_elections_are_allowed() -> None:
    """The setting was written without a notification, after the broker that becomes controller had read everything."""

    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, {}, assignments=((0, (3, 4)),))
        cluster[4].kill()
        await asyncio.sleep(NOTICED_SECONDS)
        await session_of(cluster[1]).set(
            paths.topic_config("t"), znodes.encode_config({"unclean.leader.election.enable": "true"})
        )
        cluster[3].kill()
        cluster[1].kill()
        await asyncio.sleep(2 * SESSION_SECONDS)
        assert cluster.controllers == [2]
        await cluster[4].start()
        await asyncio.sleep(2 * SESSION_SECONDS)
        assert state_of(cluster, "t").leader == 4

    simulate(story, brokers=4)


def test_broker_that_cannot_read_a_topics_settings_makes_no_log_until_it_can() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        cluster[3].cut_from_ensemble(Direction.TO_CLIENT)
        await create(cluster, dict(OTHERS))
        await asyncio.sleep(1.0)
        assert all(log.config.retention_ms == -1 for log in cluster[3].running.log_manager)
        assert list(cluster[3].running.log_manager) == []
        cluster[3].cut_from_ensemble(Direction.NONE)
        await asyncio.sleep(2 * SESSION_SECONDS)
        assert len(list(cluster[3].running.log_manager)) == 3
        assert len(state_of(cluster, "t").isr) == 3
        await assert_known_everywhere(cluster, OTHERS)

    simulate(story)


def test_broker_whose_member_of_the_ensemble_is_behind_makes_logs_with_the_topics_settings() -> None:
    """The order comes from the controller, and may be faster than what the broker's member hears from the others."""

    async def story(cluster: SimulatedCluster) -> None:
        fall_behind(cluster, (3,))
        await create(cluster, dict(OTHERS))
        assert len(list(cluster[3].running.log_manager)) == 3
        await assert_known_everywhere(cluster, OTHERS)

    simulate(story)


@pytest.mark.parametrize("settings", [{}, {"segment.ms": "1234567"}])
def test_broker_whose_member_is_behind_forgets_a_former_topics_settings(settings: dict[str, str]) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        (controller_id,) = cluster.controllers
        others = tuple(broker_id for broker_id in cluster.brokers if broker_id != controller_id)
        assignments = ((0, (controller_id,)),)
        await create(cluster, dict(OTHERS), assignments=assignments)
        fall_behind(cluster, others)
        await cluster[controller_id].running.controller_apis.delete_topics(["t"], timeout_seconds=5.0)
        await create(cluster, dict(settings), assignments=assignments)
        await assert_known_everywhere(cluster, settings)

    simulate(story)


def fall_behind(cluster: SimulatedCluster, broker_ids: tuple[int, ...]) -> None:
    for broker_id in broker_ids:
        store = cluster[broker_id].store
        assert store is not None
        cluster.ensemble.fall_behind(store)


def test_order_that_is_overtaken_while_settings_are_read_creates_nothing() -> None:
    """What was ordered meanwhile may be the deletion of the topic whose log would be created."""

    async def story(cluster: SimulatedCluster) -> None:
        broker, epoch = cluster[3], controller_epoch(cluster)
        replicas, process = broker.running.replica_control, broker.process
        assert process is not None
        state = LeaderAndIsrPartitionState(partition_index=0, leader=3, isr=[3], replicas=[3], controller_epoch=epoch)
        topic = LeaderAndIsrTopicState(topic_name="t", topic_id=bytes(range(16)), partition_states=[state])
        order = LeaderAndIsrRequest(controller_id=1, controller_epoch=epoch, topic_states=[topic])
        context = RequestContext(7, 1, None, ConnectionInfo(client_host="controller", listener_name="PLAINTEXT"))
        reading = handle_leader_and_isr.function(broker.running, context, order)
        assert isinstance(reading, Coroutine)
        responded = asyncio.ensure_future(process.run(reading))  # noqa: TID251
        await asyncio.sleep(0)
        assert not responded.done()
        replicas.stop_replica(StopReplicaRequest(controller_id=1, controller_epoch=epoch))
        assert (await responded).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert list(broker.running.log_manager) == []

    simulate(story)


@pytest.mark.parametrize("away", [(), (3,)])
def test_topic_that_is_created_again_has_nothing_of_the_former_ones_settings(away: tuple[int, ...]) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, dict(OTHERS), assignments=((0, (1, 2)),))
        for broker_id in away:
            cluster.isolate(broker_id)
        (controller_id,) = [broker_id for broker_id in cluster.controllers if broker_id not in away]
        controller_apis = cluster[controller_id].running.controller_apis
        await controller_apis.delete_topics(["t"], timeout_seconds=5.0)
        topic = NewTopic(name="t", assignments=EVERYWHERE, configs={"segment.ms": "1234567"})
        (result,) = await controller_apis.create_topics([topic])
        assert not isinstance(result, ApiError), result
        await asyncio.sleep(0.1)
        cluster.loop.network.heal()
        await asyncio.sleep(2 * SESSION_SECONDS)
        assert len(cluster.alive) == 3
        await assert_known_everywhere(cluster, {"segment.ms": "1234567"})

    simulate(story)


def test_topic_that_is_created_again_without_settings_has_none_on_brokers_without_a_replica() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        (controller_id,) = cluster.controllers
        replicas = tuple(sorted(cluster.brokers, key=lambda broker_id: broker_id != controller_id)[:2])
        await create(cluster, dict(OTHERS), assignments=((0, replicas),))
        await cluster[controller_id].running.controller_apis.delete_topics(["t"], timeout_seconds=5.0)
        await create(cluster, {}, assignments=((0, replicas),))
        await assert_known_everywhere(cluster, {})

    simulate(story)


class TestInternalTopics:
    """Committed offsets and producer epochs stay, whatever the brokers' retention is."""

    SETTINGS: Mapping[str, str] = {
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "log.retention.ms": "2000",
        "log.retention.check.interval.ms": "1000",
        "log.roll.ms": "1500",
    }

    def test_offsets_and_epochs_survive_when_the_retention_of_other_topics_has_passed(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            client = PatientClient(ClusterRoutes(cluster, random.Random(1)), random.Random(2))
            await create(cluster, {})
            committed = await commit_and_fence(client)
            await asyncio.sleep(20.0)
            for broker in list(cluster.brokers.values()):
                await broker.stop()
                await broker.start()
                await asyncio.sleep(1.0)
            await asyncio.sleep(20.0)
            (controller_id,) = cluster.controllers
            cluster[controller_id].kill()
            await asyncio.sleep(NOTICED_SECONDS)
            await assert_survived(client, committed)

        simulate(story, settings=self.SETTINGS)

    def test_topics_that_were_written_with_deletion_in_mind_are_compacted(self) -> None:
        """By an older release, which let a client change it; or by another tool."""

        async def story(cluster: SimulatedCluster) -> None:
            client = PatientClient(ClusterRoutes(cluster, random.Random(1)), random.Random(2))
            await create(cluster, {})
            committed = await commit_and_fence(client)
            for topic in INTERNAL_TOPICS:
                data = znodes.encode_config({"cleanup.policy": "delete", "retention.ms": "1"})
                await session_of(cluster[1]).set(paths.topic_config(topic), data)
            for broker in list(cluster.brokers.values()):
                await broker.stop()
                await broker.start()
                await asyncio.sleep(1.0)
                assert (await described_overrides(broker, "__consumer_offsets"))["cleanup.policy"] == "compact"
            await asyncio.sleep(20.0)
            await assert_survived(client, committed)

        simulate(story, settings=self.SETTINGS)

    @pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
    def test_more_partitions_of_an_internal_topic_are_refused_and_lose_nothing(self, topic: str) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            client = PatientClient(ClusterRoutes(cluster, random.Random(1)), random.Random(2))
            await create(cluster, {})
            committed = await commit_and_fence(client)
            (controller_id,) = cluster.controllers
            wire = await cluster[controller_id].client()
            wanted = CreatePartitionsTopic(name=topic, count=7, assignments=None)
            response = await wire.call(CreatePartitionsRequest(topics=[wanted]), 2)
            wire.close()
            assert response.results[0].error_code == ErrorCode.INVALID_PARTITIONS
            assert "cannot be changed: it decides which partition holds the" in response.results[0].error_message
            await assert_survived(client, committed)

        simulate(story, settings=self.SETTINGS)

    def test_partitions_that_another_tool_adds_are_not_used_by_running_coordinators(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            client = PatientClient(FoundCoordinators(cluster), random.Random(2))
            await create(cluster, {})
            committed = await commit_and_fence(client)
            for topic in INTERNAL_TOPICS:
                znode = cluster.ensemble.tree.get(paths.topic(topic))
                assert znode is not None
                assignment = znodes.decode_topic(znode.data)
                added = {index: ReplicaAssignment(replicas=(1, 2, 3)) for index in range(2, 7)}
                more = TopicAssignment(topic_id=assignment.topic_id, partitions={**assignment.partitions, **added})
                await session_of(cluster[1]).set(paths.topic(topic), znodes.encode_topic(more))
            (controller_id,) = cluster.controllers
            cluster[controller_id].kill()
            await asyncio.sleep(NOTICED_SECONDS)
            for broker in cluster.alive:
                assert all(
                    len(broker.running.metadata.image.topics[topic].partitions) == 7 for topic in INTERNAL_TOPICS
                )
            await assert_survived(client, committed)

        simulate(story, settings=self.SETTINGS)

    def test_client_cannot_have_an_internal_topic_cleaned_by_deletion(self) -> None:
        async def story(cluster: SimulatedCluster) -> None:
            client = PatientClient(ClusterRoutes(cluster, random.Random(1)), random.Random(2))
            await create(cluster, {})
            await commit_and_fence(client)
            change = AlterableConfig(name="cleanup.policy", config_operation=0, value="compact,delete")
            resource = AlterConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name="__transaction_state", configs=[change]
            )
            wire = await cluster[2].client()
            response = await wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            wire.close()
            assert response.responses[0].error_code == ErrorCode.INVALID_CONFIG
            assert "loses committed offsets or the fencing of producers" in response.responses[0].error_message

        simulate(story, settings=self.SETTINGS)


class FoundCoordinators:
    """Routes of a client that tries brokers in turn until one says that it is the coordinator."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._tries = 0

    def port(self, request: Message) -> int:
        alive = self._cluster.alive
        return alive[self._tries % len(alive)].port

    def heard(self, request: Message, response: Message) -> None:
        self._tries += 1

    def lost(self, request: Message) -> None:
        self._tries += 1


async def commit_and_fence(client: PatientClient) -> dict[str, tuple[int, int]]:
    """Commit offsets of groups, and begin transactional ids twice; returns each id's producer id and epoch."""
    for transactional in (False, True):
        found = await client.succeed(find_coordinator("g", transactional=transactional), 2, error_of)
        assert found.node_id > 0
    for index in range(GROUPS):
        offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=index)
        topics = [OffsetCommitRequestTopic(name="t", partitions=[offset])]
        request = OffsetCommitRequest(group_id=f"g{index}", topics=topics)
        await client.succeed(request, 8, lambda response: set(committed_partitions(response).values()))
        await client.succeed(init_producer_id(f"id{index}"), 2, error_of)
    producers = {}
    for index in range(GROUPS):
        response = await client.succeed(init_producer_id(f"id{index}"), 2, error_of)
        producers[f"id{index}"] = response.producer_id, response.producer_epoch
    return producers


async def assert_survived(client: PatientClient, producers: dict[str, tuple[int, int]]) -> None:
    for index, (name, (producer_id, epoch)) in enumerate(producers.items()):
        request = offset_fetch(f"g{index}", T0, require_stable=True)
        response = await client.succeed(request, 8, lambda response: {ErrorCode(response.groups[0].error_code)})
        assert response.groups[0].topics[0].partitions[0].committed_offset == index
        begun = await client.succeed(init_producer_id(name), 2, error_of)
        assert (begun.producer_id, begun.producer_epoch) == (producer_id, epoch + 1)
