"""What the controller's batches of requests contain, in which order they are sent, and how often they are built."""

from oncelog.coordinator.controller.cluster_image import LEADER_DURING_DELETE, NO_LEADER
from oncelog.coordinator.controller.control_requests import ControlRequest, ControlRequests
from oncelog.coordinator.metadata_store import paths
from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from oncelog.protocol.messages.stop_replica import StopReplicaRequest
from oncelog.protocol.messages.update_metadata import FULL, INCREMENTAL, UpdateMetadataRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.benchmarks.metadata_broadcast import cluster as large_cluster
from tests.unit.coordinator.controller.cluster import ClusterUnderTest, running_cluster
from tests.unit.coordinator.controller.test_controller import create, manual

NEWEST = UpdateMetadataRequest.versions.last


def batch(brokers: int, partitions: int = 300) -> list[UpdateMetadataRequest]:
    state = large_cluster(partitions, brokers)
    requests = ControlRequests(state, 1, 1, "PLAINTEXT")
    requests.add_full_metadata(state.brokers)
    built = [request for _, request in requests.build()]
    assert all(isinstance(request, UpdateMetadataRequest) for request in built)
    return [request for request in built if isinstance(request, UpdateMetadataRequest)]


def test_metadata_is_built_and_encoded_once_for_all_brokers() -> None:
    requests = batch(brokers=100)
    assert len(requests) == 100
    assert len({id(request.topic_states) for request in requests}) == 1
    assert len({id(request.live_brokers) for request in requests}) == 1
    frames = [encode_request(0, "broker-1", request, NEWEST) for request in requests]
    large = {id(part) for frame in frames for part in frame if len(part) > 2_000}
    assert len(large) == 2  # The topics, and the brokers.
    own = [sum(len(part) for part in frame if id(part) not in large) for frame in frames]
    assert max(own) < 100  # Bytes of each frame that are encoded for one broker.


def test_update_metadata_carries_epoch_of_each_receivers_registration() -> None:
    requests = batch(brokers=5)
    assert [request.broker_epoch for request in requests] == [0, 1, 2, 3, 4]


async def take_office(cluster: ClusterUnderTest) -> dict[int, list[ControlRequest]]:
    """Kill the controller; return what its successor sent first to each broker that is left."""
    seen = {broker_id: len(broker.requests) for broker_id, broker in cluster.brokers.items()}
    await cluster.kill(1)
    return {
        broker_id: broker.requests[seen[broker_id] :]  # type: ignore[misc]
        for broker_id, broker in cluster.brokers.items()
        if broker_id != 1
    }


def named(request: ControlRequest) -> dict[TopicPartition, int]:
    """The partitions of an UpdateMetadata, and their leaders."""
    assert isinstance(request, UpdateMetadataRequest)
    return {
        TopicPartition(topic.topic_name, state.partition_index): state.leader
        for topic in request.topic_states
        for state in topic.partition_states
    }


async def test_new_controller_names_every_partition_to_every_broker_before_it_gives_leaderships() -> None:
    """B15"""
    async with running_cluster(1, 2, 3) as cluster:
        await create(cluster, manual("t", (2, 1), (3, 2)), manual("u", (3, 1)))
        for requests in (await take_office(cluster)).values():
            first = requests[0]
            assert isinstance(first, UpdateMetadataRequest)
            assert first.type == FULL
            assert set(named(first)) == {TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)}
            assert any(isinstance(request, LeaderAndIsrRequest) for request in requests[1:])


async def test_broker_that_registers_is_named_every_partition_first() -> None:
    async with running_cluster(1, 2) as cluster:
        await create(cluster, manual("t", (2, 1), (1, 2)))
        await cluster.kill(2)
        await cluster.restart(2)
        first, second = cluster.brokers[2].requests[:2]
        assert isinstance(first, UpdateMetadataRequest)
        assert (first.type, len(named(first))) == (FULL, 2)
        assert isinstance(second, LeaderAndIsrRequest)


async def test_later_updates_name_what_changed() -> None:
    async with running_cluster(1, 2) as cluster:
        await create(cluster, manual("t", (2, 1)))
        await create(cluster, manual("u", (2, 1)))
        last = cluster.brokers[2].of_type(UpdateMetadataRequest)[-1]
        assert (last.type, set(named(last))) == (INCREMENTAL, {TopicPartition("u", 0)})


async def test_requests_of_a_controller_are_numbered_in_their_order() -> None:
    async with running_cluster(1, 2) as cluster:
        await create(cluster, manual("t", (2, 1)))
        await cluster.apis.delete_topics(["t"], timeout_seconds=1)
        for broker in cluster.brokers.values():
            sequences = [request.sequence for request in broker.requests]  # type: ignore[attr-defined]
            assert sequences == sorted(set(sequences))


async def test_stop_replica_names_the_topic_by_its_id() -> None:
    async with running_cluster(1, 2) as cluster:
        await create(cluster, manual("t", (2, 1)))
        topic = cluster.brokers[2].metadata.image.topic("t")
        assert topic is not None
        await cluster.apis.delete_topics(["t"], timeout_seconds=1)
        (stop,) = cluster.brokers[2].of_type(StopReplicaRequest)
        assert [state.topic_id for state in stop.topic_states] == [topic.topic_id]


async def test_update_is_not_called_full_while_a_topic_cannot_be_read() -> None:
    """A broker would take its partitions for deleted, and set its logs aside."""
    async with running_cluster(1, 2) as cluster:
        await create(cluster, manual("t", (2, 1)), manual("u", (2, 1)))
        await cluster.members[2].session.set(paths.topic("u"), b"not JSON")
        requests = (await take_office(cluster))[2]
        updates = [request for request in requests if isinstance(request, UpdateMetadataRequest)]
        assert {request.type for request in updates} == {INCREMENTAL}
        assert set(named(updates[0])) == {TopicPartition("t", 0)}


async def test_full_update_names_partitions_without_a_state() -> None:
    """Their replicas may have logs."""
    async with running_cluster(1, 2) as cluster:
        await create(cluster, manual("t", (2, 1), (1, 2)), manual("u", (2, 1)))
        session = cluster.members[2].session
        await session.delete(paths.partition_state(TopicPartition("t", 1)))
        await session.delete(paths.partition_state(TopicPartition("u", 0)))
        await session.create(paths.delete_topic("u"))
        first = (await take_office(cluster))[2][0]
        leaders = named(first)
        assert leaders[TopicPartition("t", 1)] == NO_LEADER
        assert leaders[TopicPartition("u", 0)] == LEADER_DURING_DELETE
