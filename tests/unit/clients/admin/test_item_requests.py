"""Whatever happens to the responses, each item's outcome is the truth: done is done, and refused is refused."""

import asyncio
from collections.abc import Mapping
from itertools import product
from uuid import UUID

import pytest

from oncelog.clients.admin.groups import MemberToRemove, delete_groups, remove_members
from oncelog.clients.admin.topics import NewTopic, add_partitions, create_topics, delete_topics, delete_topics_by_id
from oncelog.clients.errors import Refusal
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.admin.administered_cluster import AdministeredCluster, Fault
from tests.unit.clients.scripted_broker import ScriptedBroker
from tests.unit.clients.scripted_cluster import cluster_of

NAMES = ("a", "b", "c", "d")
UNANSWERABLE = (Fault.SILENCE, Fault.SILENCE)  # Both attempts that an operation has time for.
SCHEDULES = [each for each in [*product(Fault, repeat=1), *product(Fault, repeat=2)] if each != UNANSWERABLE]
schedules = pytest.mark.parametrize("faults", SCHEDULES, ids=lambda faults: "-".join(each.name for each in faults))


def errors(outcomes: Mapping[str, Refusal | None]) -> dict[str, ErrorCode | None]:
    return {name: None if outcome is None else outcome.error for name, outcome in outcomes.items()}


@in_virtual_time
async def test_message_of_a_transient_error_is_the_obstacle() -> None:
    """A person who waits for a full disk must hear which one, long before the time is up."""
    refused = CreatableTopicResult(name="a", error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message="/data is full")
    broker = ScriptedBroker({CreateTopicsRequest: CreateTopicsResponse(topics=[refused])})
    async with cluster_of(broker) as cluster:
        creation = asyncio.get_running_loop().create_task(create_topics(cluster, [NewTopic(name="a", partitions=1)]))
        await asyncio.sleep(5)
        assert [each.reason for each in cluster.obstacles()] == [
            "CreateTopics returns KAFKA_STORAGE_ERROR: /data is full"
        ]
        assert errors(await creation) == {"a": ErrorCode.KAFKA_STORAGE_ERROR}


@schedules
def test_topics_are_created_whatever_happens_to_the_responses(faults: tuple[Fault, ...]) -> None:
    @in_virtual_time
    async def play() -> None:
        truth = AdministeredCluster(faults, ErrorCode.NOT_CONTROLLER)
        truth.topics["b"] = 3
        async with cluster_of(truth.broker) as cluster:
            outcomes = await create_topics(cluster, [NewTopic(name=name, partitions=3) for name in NAMES])
        assert errors(outcomes) == dict.fromkeys(NAMES) | {"b": ErrorCode.TOPIC_ALREADY_EXISTS}
        assert truth.topics == dict.fromkeys(NAMES, 3)

    play()


@schedules
def test_topics_are_deleted_whatever_happens_to_the_responses(faults: tuple[Fault, ...]) -> None:
    @in_virtual_time
    async def play() -> None:
        truth = AdministeredCluster(faults, ErrorCode.NOT_CONTROLLER)
        truth.topics = {"a": 1, "c": 1, "d": 1}
        async with cluster_of(truth.broker) as cluster:
            outcomes = await delete_topics(cluster, NAMES)
        assert errors(outcomes) == dict.fromkeys(NAMES) | {"b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert truth.topics == {}

    play()


@schedules
def test_topics_are_deleted_by_id_whatever_happens_to_the_responses(faults: tuple[Fault, ...]) -> None:
    @in_virtual_time
    async def play() -> None:
        truth = AdministeredCluster(faults, ErrorCode.NOT_CONTROLLER)
        truth.topics = dict.fromkeys(NAMES, 1)
        truth.ids = {name: UUID(int=number) for number, name in enumerate(NAMES, 1)}
        async with cluster_of(truth.broker) as cluster:
            outcomes = await delete_topics_by_id(cluster, list(truth.ids.values()))
        assert outcomes == dict.fromkeys(truth.ids.values())
        assert truth.topics == {}

    play()


@schedules
def test_partitions_are_added_whatever_happens_to_the_responses(faults: tuple[Fault, ...]) -> None:
    @in_virtual_time
    async def play() -> None:
        truth = AdministeredCluster(faults, ErrorCode.NOT_CONTROLLER)
        truth.topics = {"a": 1, "b": 5, "c": 2, "d": 3}
        async with cluster_of(truth.broker) as cluster:
            outcomes = await add_partitions(cluster, dict.fromkeys(NAMES, 5))
        assert errors(outcomes) == dict.fromkeys(NAMES) | {"b": ErrorCode.INVALID_PARTITIONS}
        assert truth.topics == dict.fromkeys(NAMES, 5)

    play()


@schedules
def test_groups_are_deleted_whatever_happens_to_the_responses(faults: tuple[Fault, ...]) -> None:
    @in_virtual_time
    async def play() -> None:
        truth = AdministeredCluster(faults, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        truth.groups = set(NAMES)
        async with cluster_of(truth.broker) as cluster:
            assert errors(await delete_groups(cluster, NAMES)) == dict.fromkeys(NAMES)
        assert truth.groups == set()

    play()


@schedules
def test_members_are_removed_whatever_happens_to_the_responses(faults: tuple[Fault, ...]) -> None:
    @in_virtual_time
    async def play() -> None:
        truth = AdministeredCluster(faults, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        truth.members = set(NAMES)
        members = [MemberToRemove(member_id=name) for name in NAMES]
        async with cluster_of(truth.broker) as cluster:
            assert await remove_members(cluster, "billing", members) == dict.fromkeys(members)
        assert truth.members == set()

    play()


@in_virtual_time
async def test_topic_that_another_client_created_differently_is_refused() -> None:
    truth = AdministeredCluster([Fault.LOST_REQUEST, Fault.LOST_RESPONSE], ErrorCode.NOT_CONTROLLER)
    async with cluster_of(truth.broker) as cluster:
        outcomes = await create_topics(
            cluster, [NewTopic(name="a", partitions=3), NewTopic(name="b", partitions=2, replication_factor=3)]
        )
    assert errors(outcomes) == {"a": None, "b": ErrorCode.TOPIC_ALREADY_EXISTS}


@in_virtual_time
async def test_unknown_name_after_a_lost_response_is_refused() -> None:
    truth = AdministeredCluster([Fault.LOST_RESPONSE], ErrorCode.NOT_CONTROLLER)
    async with cluster_of(truth.broker) as cluster:
        outcomes = await delete_topics(cluster, ["nothing"])
    assert errors(outcomes) == {"nothing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
