"""CreateTopics, DeleteTopics and CreatePartitions on a whole broker."""

import asyncio
from itertools import pairwise

import pytest

from oncelog.broker.handlers.create_partitions import handle_create_partitions
from oncelog.broker.handlers.create_topics import handle_create_topics
from oncelog.broker.handlers.delete_topics import handle_delete_topics
from oncelog.broker.metadata.metadata_journal import MetadataJournal
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation
from oncelog.coordinator.metadata_store import paths
from oncelog.coordinator.metadata_store.local import LocalEnsemble
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from oncelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from oncelog.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.handlers.administration import Denies, after_power_loss, ask, new_disk, running_broker, settle


async def create(broker: Broker, *topics: CreatableTopic, validate_only: bool = False) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    response = await ask(broker, handle_create_topics, request, CreateTopicsResponse)
    for version in handle_create_topics.versions:
        decode(CreateTopicsResponse, version, encode(response, version))
    return response.topics


async def delete(broker: Broker, *topics: DeleteTopicState) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(topics=list(topics), timeout_ms=5_000)
    return (await ask(broker, handle_delete_topics, request, DeleteTopicsResponse)).responses


def topic(name: str, partitions: int = -1, factor: int = -1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


async def test_created_topic_says_what_it_became() -> None:
    async with running_broker(num_partitions="3", log_retention_ms="5000") as broker:
        (created,) = await create(broker, topic("t", cleanup_policy="compact"))
        assert (created.name, created.error_code, created.error_message) == ("t", ErrorCode.NONE, None)
        assert (created.num_partitions, created.replication_factor) == (3, 1)
        assert created.topic_id != ZERO_UUID
        assert created.configs is not None
        configs = {config.name: (config.value, config.config_source) for config in created.configs}
        assert configs["cleanup.policy"] == ("compact", 1)
        assert configs["retention.ms"] == ("5000", 4)
        assert configs["max.message.bytes"] == ("1048588", 5)
        image = broker.metadata.image.topic("t")
        assert image is not None
        assert image.topic_id == created.topic_id
        for index in range(3):
            partition = broker.replica_manager.led_partition(TopicPartition("t", index))
            assert not isinstance(partition, ErrorCode)
            assert partition.log is not None
            assert partition.log.config.cleanup_policy == {"compact"}


async def test_topics_of_one_request_succeed_or_fail_one_by_one() -> None:
    async with running_broker() as broker:
        results = await create(
            broker,
            topic("good", 1, 1),
            topic("bad name"),
            topic("twice"),
            topic("twice"),
            topic("large", 1, 3),
            topic("odd", retention_ms="soon"),
            CreatableTopic(
                name="chosen",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[broker.broker_id])],
            ),
        )
        assert {result.name: ErrorCode(result.error_code) for result in results} == {
            "good": ErrorCode.NONE,
            "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "twice": ErrorCode.INVALID_REQUEST,
            "large": ErrorCode.INVALID_REPLICATION_FACTOR,
            "odd": ErrorCode.INVALID_CONFIG,
            "chosen": ErrorCode.NONE,
        }
        assert all(result.error_message for result in results if result.error_code)
        assert sorted(broker.metadata.image.topics) == ["chosen", "good"]


async def test_create_topics_of_the_cluster_metadata_log_is_prohibited() -> None:
    async with running_broker() as broker:
        (refused,) = await create(broker, topic("__cluster_metadata"))
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        )
        assert not broker.metadata.topic_exists("__cluster_metadata")


async def test_checking_only_creates_nothing() -> None:
    async with running_broker() as broker:
        (checked,) = await create(broker, topic("t", 2), validate_only=True)
        assert (checked.error_code, checked.num_partitions, checked.topic_id) == (ErrorCode.NONE, 2, ZERO_UUID)
        assert not broker.metadata.topic_exists("t")


async def test_create_topics_without_permission_is_refused_or_hides_configurations() -> None:
    async with running_broker() as broker:
        broker.authorizer = Denies([Operation.CREATE])
        (refused,) = await create(broker, topic("t"))
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        broker.authorizer = Denies([Operation.DESCRIBE_CONFIGS])
        (created,) = await create(broker, topic("t"))
        assert created.error_code == ErrorCode.NONE
        assert created.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (created.num_partitions, created.replication_factor, created.configs) == (-1, -1, [])


async def test_deletion_by_name_and_by_id() -> None:
    async with running_broker() as broker:
        by_name, by_id, kept = await create(broker, topic("a"), topic("b"), topic("c"))
        results = await delete(
            broker,
            DeleteTopicState(name="a"),
            DeleteTopicState(topic_id=by_id.topic_id),
            DeleteTopicState(name="unknown"),
            DeleteTopicState(topic_id=b"?" * 16),
            DeleteTopicState(),
            DeleteTopicState(name="c", topic_id=kept.topic_id),
        )
        assert [(r.name, r.topic_id, ErrorCode(r.error_code)) for r in results] == [
            ("a", by_name.topic_id, ErrorCode.NONE),
            ("b", by_id.topic_id, ErrorCode.NONE),
            ("unknown", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (None, b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
            (None, ZERO_UUID, ErrorCode.INVALID_REQUEST),
            ("c", kept.topic_id, ErrorCode.INVALID_REQUEST),
        ]
        assert list(broker.metadata.image.topics) == ["c"]
        assert broker.replica_manager.partition(TopicPartition("a", 0)) is None


async def test_topic_named_by_name_and_by_id_at_once_is_deleted_once() -> None:
    async with running_broker() as broker:
        (created,) = await create(broker, topic("a"))
        results = await delete(broker, DeleteTopicState(name="a"), DeleteTopicState(topic_id=created.topic_id))
        assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


async def test_old_versions_delete_by_name() -> None:
    async with running_broker() as broker:
        await create(broker, topic("a"))
        request = DeleteTopicsRequest(topic_names=["a", "unknown"], timeout_ms=5_000)
        response = await ask(broker, handle_delete_topics, request, DeleteTopicsResponse, version=1)
        assert [(each.name, each.error_code) for each in response.responses] == [
            ("a", ErrorCode.NONE),
            ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]


@pytest.mark.parametrize(("version", "error"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
async def test_deletion_can_be_switched_off(version: int, error: ErrorCode) -> None:
    async with running_broker(delete_topic_enable="false") as broker:
        await create(broker, topic("a"))
        request = DeleteTopicsRequest(topic_names=["a"], timeout_ms=5_000)
        response = await ask(broker, handle_delete_topics, request, DeleteTopicsResponse, version=version)
        assert [each.error_code for each in response.responses] == [error]
        assert broker.metadata.topic_exists("a")


async def test_partitions_are_added_and_led() -> None:
    async with running_broker() as broker:
        await create(broker, topic("t", 1), topic("u", 1))
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name="t", count=3, assignments=None),
                CreatePartitionsTopic(
                    name="u", count=2, assignments=[CreatePartitionsAssignment(broker_ids=[broker.broker_id])]
                ),
                CreatePartitionsTopic(name="unknown", count=2, assignments=None),
                CreatePartitionsTopic(name="twice", count=2, assignments=None),
                CreatePartitionsTopic(name="twice", count=3, assignments=None),
            ]
        )
        response = await ask(broker, handle_create_partitions, request, CreatePartitionsResponse)
        assert {result.name: ErrorCode(result.error_code) for result in response.results} == {
            "t": ErrorCode.NONE,
            "u": ErrorCode.NONE,
            "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "twice": ErrorCode.INVALID_REQUEST,
        }
        assert broker.metadata.partition_count("t") == 3
        assert not isinstance(broker.replica_manager.led_partition(TopicPartition("t", 2)), ErrorCode)


async def test_topics_created_and_deleted_survive_a_power_loss() -> None:
    disk = new_disk()
    async with running_broker(disk) as broker:
        first, second = await create(broker, topic("t", 2, cleanup_policy="compact"), topic("gone"))
        await delete(broker, DeleteTopicState(name="gone"))
        survivor = after_power_loss(disk)
    async with running_broker(survivor) as broker:
        await settle()  # It takes its leaderships after it has started.
        image = broker.metadata.image.topic("t")
        assert image is not None
        assert image.topic_id == first.topic_id
        assert broker.metadata.image.topic_by_id(second.topic_id) is None
        partition = broker.replica_manager.led_partition(TopicPartition("t", 1))
        assert not isinstance(partition, ErrorCode)
        assert partition.leader_epoch == 1
        assert partition.log is not None
        assert partition.log.config.cleanup_policy == {"compact"}


async def test_deletion_cut_short_is_finished_by_the_next_start() -> None:
    """The intention was recorded, and the broker died before it told anybody."""
    disk = new_disk()
    async with running_broker(disk) as broker:
        await create(broker, topic("gone", 3), topic("kept"))
    store = LocalEnsemble(MetadataJournal(disk, "/data")).connect()
    assert store.session is not None
    await store.session.create(paths.delete_topic("gone"))
    await store.close()
    async with running_broker(disk) as broker:
        assert list(broker.metadata.image.topics) == ["kept"]
        assert [log.topic_partition for log in broker.log_manager] == [TopicPartition("kept", 0)]
        (created,) = await create(broker, topic("gone"))
        assert created.error_code == ErrorCode.NONE


async def test_leader_epochs_grow_with_every_start() -> None:
    disk = new_disk()
    async with running_broker(disk) as broker:
        await create(broker, topic("t"))
    for expected in (1, 2):
        async with running_broker(disk) as broker:
            partition = broker.replica_manager.led_partition(TopicPartition("t", 0))
            assert not isinstance(partition, ErrorCode)
            assert partition.leader_epoch == expected
            leader = broker.metadata.leader(TopicPartition("t", 0))
            assert leader is not None
            assert leader.epoch == expected


async def test_create_topics_with_many_partitions_makes_their_logs_in_portions() -> None:
    """Each turn of the loop makes at most 10 logs, and the response comes when all of them are there."""
    async with running_broker() as broker:
        counts = [len(broker.log_manager)]
        creation = asyncio.get_running_loop().create_task(create(broker, topic("t", 1_020)))
        while not creation.done():
            await asyncio.sleep(0)
            counts.append(len(broker.log_manager))
        assert creation.result()[0].error_code == ErrorCode.NONE
        assert counts[-1] == 1_020
        assert max(after - before for before, after in pairwise(counts)) <= 10
        assert len(broker.metadata.image.topics["t"].partitions) == 1_020


async def test_created_topics_of_equal_configurations_share_their_description() -> None:
    """A thousand topics are described once, not in a thousand times thirty-five entries."""
    async with running_broker() as broker:
        plain, other, same = await create(broker, topic("a"), topic("b", retention_ms="5"), topic("c"))
        assert plain.configs is same.configs is not other.configs
