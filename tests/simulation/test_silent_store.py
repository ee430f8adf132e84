"""The metadata store does not respond, and its sessions have not ended yet: requests keep their clients' time-outs."""

import asyncio
from collections.abc import Awaitable

import pytest

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog.protocol.messages.elect_leaders import ElectLeadersRequest
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from oncelog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from oncelog.protocol.schema import Message
from tests.simulation.cluster_stories import create, simulate
from tests.simulation.sim_zookeeper import Direction
from tests.simulation.simulated_cluster import ClusterBroker, SimulatedCluster
from tests.simulation.test_cluster_administration import ask, partition_count, until

LONG_SESSIONS = {"zookeeper.session.timeout.ms": "40000", "request.timeout.ms": "9000"}
TIMEOUT_MS = 2_000
ARRIVED_SECONDS = 0.1
"""Far more than a segment takes."""
MOVE = AlterPartitionReassignmentsRequest(
    topics=[ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[2, 3])])],
    timeout_ms=TIMEOUT_MS,
)
DOWNGRADE = UpdateFeaturesRequest(
    feature_updates=[FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)],
    timeout_ms=TIMEOUT_MS,
)
ELECTION = ElectLeadersRequest(election_type=1, topic_partitions=None, timeout_ms=TIMEOUT_MS)
MOVES_UNDER_WAY = ListPartitionReassignmentsRequest(topics=None, timeout_ms=TIMEOUT_MS)


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=2)
    return CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)


def retention(topic: str) -> IncrementalAlterConfigsRequest:
    setting = AlterableConfig(name="retention.ms", config_operation=0, value="123456")
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[setting])
    return IncrementalAlterConfigsRequest(resources=[resource])


async def errors_of_all(broker: ClusterBroker) -> list[ErrorCode]:
    """Ask for everything at once that needs the store; the errors of the responses."""
    created, grown, deleted, altered = await asyncio.gather(
        ask(broker, creation("new"), 7),
        ask(
            broker,
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name="t", count=4, assignments=None)], timeout_ms=TIMEOUT_MS
            ),
            2,
        ),
        ask(broker, DeleteTopicsRequest(topic_names=["u"], timeout_ms=TIMEOUT_MS), 4),
        ask(broker, retention("t"), 1),
    )
    results = (created.topics[0], grown.results[0], deleted.responses[0], altered.responses[0])
    return [ErrorCode(result.error_code) for result in results]


async def error_of(broker: ClusterBroker, request: Message, version: int) -> list[ErrorCode]:
    """Ask for what has one error for the whole request."""
    return [ErrorCode((await ask(broker, request, version)).error_code)]


async def timed(cluster: SimulatedCluster, work: Awaitable[list[ErrorCode]]) -> tuple[list[ErrorCode], float]:
    began = cluster.loop.time()
    return await work, cluster.loop.time() - began


def test_requests_that_need_the_store_get_a_response_in_their_time() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 2))
        await create(cluster, "u", (2, 3))
        (controller_id,) = cluster.controllers
        cluster[controller_id].cut_from_ensemble()
        errors, seconds = await timed(cluster, errors_of_all(cluster[controller_id]))
        assert errors == [ErrorCode.REQUEST_TIMED_OUT] * 4
        assert TIMEOUT_MS / 1000 <= seconds < 3.5  # A third of request.timeout.ms for the setting.

    simulate(story, settings=LONG_SESSIONS)


@pytest.mark.parametrize(
    ("message", "version"),
    [(ELECTION, 2), (MOVE, 1), (DOWNGRADE, 2), (MOVES_UNDER_WAY, 0)],
    ids=["ElectLeaders", "AlterPartitionReassignments", "UpdateFeatures", "ListPartitionReassignments"],
)
def test_request_behind_one_that_waits_for_the_store_gets_a_response_in_its_time(
    message: Message, version: int
) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 2))
        (controller_id,) = cluster.controllers
        cluster[controller_id].cut_from_ensemble()
        async with asyncio.TaskGroup() as group:
            group.create_task(errors_of_all(cluster[controller_id]))
            await asyncio.sleep(ARRIVED_SECONDS)  # The four that wait have arrived, in whatever order.
            errors, seconds = await timed(cluster, error_of(cluster[controller_id], message, version))
        assert errors == [ErrorCode.REQUEST_TIMED_OUT]
        assert TIMEOUT_MS / 1000 <= seconds < TIMEOUT_MS / 1000 + 0.5

    simulate(story, settings=LONG_SESSIONS)


@pytest.mark.parametrize(
    ("message", "version"), [(MOVE, 1), (DOWNGRADE, 2)], ids=["AlterPartitionReassignments", "UpdateFeatures"]
)
def test_request_that_waits_for_the_store_itself_gets_a_response_in_its_time(message: Message, version: int) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", (1, 2))
        (controller_id,) = cluster.controllers
        cluster[controller_id].cut_from_ensemble()
        errors, seconds = await timed(cluster, error_of(cluster[controller_id], message, version))
        assert errors == [ErrorCode.REQUEST_TIMED_OUT]
        assert TIMEOUT_MS / 1000 <= seconds < TIMEOUT_MS / 1000 + 0.5

    simulate(story, settings=LONG_SESSIONS)


def test_requests_that_were_given_up_leave_nothing_behind_when_the_store_responds_again() -> None:
    """The first waits for the store when its time is over; the others wait behind it, and are dropped."""

    async def story(cluster: SimulatedCluster) -> None:
        (controller_id,) = cluster.controllers
        cluster[controller_id].cut_from_ensemble()
        names = [f"t{number}" for number in range(20)]
        responses = await asyncio.gather(*(ask(cluster[controller_id], creation(name), 7) for name in names))
        assert {response.topics[0].error_code for response in responses} == {ErrorCode.REQUEST_TIMED_OUT}
        cluster[controller_id].cut_from_ensemble(Direction.NONE)
        await until(lambda: len(cluster.controllers) == 1, 60.0)
        await asyncio.sleep(60.0)
        (controller_id,) = cluster.controllers
        assert (await ask(cluster[controller_id], creation("later"), 7)).topics[0].error_code == ErrorCode.NONE
        assert all(partition_count(broker, "later") == 2 for broker in cluster.alive)
        assert all(partition_count(broker, name) == 0 for broker in cluster.alive for name in names)

    simulate(story, settings=LONG_SESSIONS)
