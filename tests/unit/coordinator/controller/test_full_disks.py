"""A broker whose disk is full: what the controller does about thousands of its partitions is divided over turns."""

from collections import Counter

import pytest

from oncelog.coordinator.controller.active_controller import ActiveController
from oncelog.coordinator.controller.topic_plan import NewTopic
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Done
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.turns import longest_turn
from tests.unit.coordinator.controller.cluster import ClusterUnderTest, running_cluster
from tests.unit.coordinator.controller.test_controller import create, manual, state_of

PARTITIONS = 4_000
MOST_LINES = 150_000
"""Of one turn: a portion of 400 partitions is written, another one told. At once it would be 240,000 to 1,300,000."""


async def wide_topic(cluster: ClusterUnderTest, replication_factor: int) -> ActiveController:
    """Create a topic of many partitions; return the active controller."""
    topic = NewTopic(name="wide", partition_count=PARTITIONS, replication_factor=replication_factor)
    await cluster.apis.create_topics([topic])
    await cluster.settle()
    return cluster.active


def led_by(active: ActiveController) -> Counter[int]:
    states = [active.context.state.state(TopicPartition("wide", index)) for index in range(PARTITIONS)]
    return Counter(versioned.state.leader for versioned in states if versioned is not None)


@pytest.mark.parametrize("brokers", [1, 2])
async def test_partitions_of_a_full_disk_are_elected_and_sent_in_portions(brokers: int) -> None:
    """With one broker nothing changes, so that no write to the store gives other tasks a turn."""
    async with running_cluster(*range(1, brokers + 1)) as cluster:
        active = await wide_topic(cluster, brokers)
        active.context.state.full.add(1)
        _, lines = await longest_turn(lambda: active.full_disks.apply_change(1))
        assert led_by(active) == {brokers: PARTITIONS}
        await cluster.settle()
        topic = cluster.brokers[brokers].metadata.image.topics["wide"]
        assert {partition.leader for partition in topic.partitions.values()} == {brokers}
        assert lines < MOST_LINES


async def test_broker_that_reports_its_disk_gets_its_leaderships_in_portions() -> None:
    async with running_cluster(1) as cluster:
        active = await wide_topic(cluster, 1)
        reported = len(cluster.brokers[1].requests)
        path = f"{paths.LOG_DIR_EVENTS}/log_dir_event_"
        done = await cluster.members[1].session.create(path, znodes.encode_log_dir_event(1), sequential=True)
        assert isinstance(done, Done)
        _, lines = await longest_turn(lambda: active.full_disks.read_reports(lambda: None))
        await cluster.settle()
        assert len(cluster.brokers[1].requests) - reported >= PARTITIONS / 50
        assert lines < MOST_LINES


def responding(*codes: ErrorCode) -> LeaderAndIsrResponse:
    errors = [LeaderAndIsrPartitionError(partition_index=i, error_code=code) for i, code in enumerate(codes)]
    return LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(partition_errors=errors)])


@pytest.mark.parametrize("other", [ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.INVALID_CONFIG])
async def test_full_disk_is_noted_whatever_other_replicas_respond(other: ErrorCode) -> None:
    """B84: and a portion without information about the disk changes nothing."""
    async with running_cluster(1, 2) as cluster:
        active, full = cluster.active, cluster.active.context.state.full
        assert not active.full_disks.note_response(2, responding(other))
        assert active.full_disks.note_response(2, responding(other, ErrorCode.KAFKA_STORAGE_ERROR, other))
        assert full == {2}
        assert not active.full_disks.note_response(2, responding(other))
        assert not active.full_disks.note_response(2, responding(ErrorCode.KAFKA_STORAGE_ERROR))
        assert full == {2}
        assert active.full_disks.note_response(2, responding(other, ErrorCode.STALE_CONTROLLER_EPOCH))
        assert full == set()


async def test_replicas_that_several_responses_report_before_the_election_all_get_other_leaders() -> None:
    """B84: a broker responds in portions, and the controller may be at work on something else meanwhile."""
    async with running_cluster(1, 2) as cluster:
        await create(cluster, manual("t", (2, 1), (2, 1), (2, 1)))
        topic_id, disks = cluster.brokers[1].metadata.image.topics["t"].topic_id, cluster.active.full_disks
        for index in (0, 1):
            error = LeaderAndIsrPartitionError(partition_index=index, error_code=ErrorCode.REPLICA_NOT_AVAILABLE)
            of_topic = LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=[error])
            assert disks.note_replicas(2, LeaderAndIsrResponse(topics=[of_topic]))
        await disks.apply_to_replicas()
        assert [(await state_of(cluster, "t", index)).leader for index in range(3)] == [1, 1, 2]
