"""DescribeTopicPartitions: topics in the order of their names, in pages that join without gap or overlap."""

import pytest

from oncelog.broker.handlers.describe_topic_partitions import handle_describe_topic_partitions
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_response
from oncelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    PartitionRecovery,
    RecoveryLogEnd,
    TopicRequest,
)
from oncelog.protocol.messages.update_metadata import UpdateMetadataLogEnd, UpdateMetadataRecovery
from tests.unit.broker.handlers.administration import Denies, ask, running_broker
from tests.unit.broker.handlers.cluster_tales import broker_with, partition, tell


async def describe(
    broker: Broker, *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
    )
    response = await ask(broker, handle_describe_topic_partitions, request, DescribeTopicPartitionsResponse)
    assert encode_response(1, response, 0)
    return response


def tell_topics(broker: Broker, **sizes: int) -> None:
    topics = {name: [partition(index, 1, [1], [1]) for index in range(size)] for name, size in sizes.items()}
    tell(broker, [broker_with(1)], topics)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 100])
@pytest.mark.parametrize("all_topics", [True, False])
async def test_pages_join_without_gap_or_overlap(limit: int, all_topics: bool) -> None:
    async with running_broker() as broker:
        tell_topics(broker, c=1, a=3, b=2)
        names = () if all_topics else ("b", "a", "c")
        seen: list[tuple[str | None, int]] = []
        cursor = None
        while True:
            page = await describe(broker, *names, limit=limit, cursor=cursor)
            rows = [(topic.name, reported.partition_index) for topic in page.topics for reported in topic.partitions]
            assert len(rows) <= limit
            seen += rows
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]


async def test_brokers_limit_is_the_upper_one() -> None:
    async with running_broker(max_request_partition_size_limit="2") as broker:
        tell_topics(broker, a=3)
        page = await describe(broker, limit=100)
        assert len(page.topics[0].partitions) == 2
        assert page.next_cursor == Cursor(topic_name="a", partition_index=2)


async def test_unknown_topics_are_returned_only_when_named() -> None:
    async with running_broker() as broker:
        tell_topics(broker, a=1)
        page = await describe(broker, "a", "nope", "no/pe")
        assert {topic.name: topic.error_code for topic in page.topics} == {
            "a": ErrorCode.NONE,
            "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "no/pe": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }


async def test_described_partition_has_leader_replicas_and_isr() -> None:
    async with running_broker() as broker:
        tell(
            broker,
            [broker_with(1), broker_with(2, "OTHER")],
            {
                "__consumer_offsets": [
                    partition(0, 1, [1, 3], [1], [3]),
                    partition(1, 2, [2], [2]),
                    partition(2, 3, [3], [3]),
                ]
            },
        )
        (topic,) = (await describe(broker)).topics
        assert topic.is_internal
        first = topic.partitions[0]
        assert (first.leader_id, first.leader_epoch, first.replica_nodes, first.isr_nodes) == (1, 5, [1, 3], [1])
        assert (first.offline_replicas, first.eligible_leader_replicas, first.last_known_elr) == ([3], [], [])
        assert [reported.error_code for reported in topic.partitions] == [
            ErrorCode.NONE,
            ErrorCode.LISTENER_NOT_FOUND,
            ErrorCode.LEADER_NOT_AVAILABLE,
        ]
        assert [reported.leader_id for reported in topic.partitions] == [1, -1, -1]


@pytest.mark.parametrize(
    "cursor", [Cursor(topic_name="b", partition_index=0), Cursor(topic_name="a", partition_index=-1)]
)
async def test_cursor_that_points_nowhere_is_refused(cursor: Cursor) -> None:
    async with running_broker() as broker:
        tell_topics(broker, a=1, b=1)
        page = await describe(broker, "a", cursor=cursor)
        assert [topic.error_code for topic in page.topics] == [ErrorCode.INVALID_REQUEST]


async def test_unauthorized_client_gets_errors_of_named_topics_only() -> None:
    async with running_broker() as broker:
        tell_topics(broker, a=1)
        broker.authorizer = Denies([Operation.DESCRIBE])
        assert (await describe(broker)).topics == []
        (denied,) = (await describe(broker, "a")).topics
        assert denied.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert denied.topic_id == bytes(16)


async def test_eligible_leader_replicas_and_the_last_leader_are_described() -> None:
    async with running_broker() as broker:
        waiting = partition(0, -1, [1, 2, 3], [2], [2, 3], eligible=[3], last_leader=2)
        tell(broker, [broker_with(1)], {"t": [waiting, partition(1, 1, [1, 2], [1, 2])]})
        first, second = (await describe(broker, "t")).topics[0].partitions
        assert (first.leader_id, first.isr_nodes, first.eligible_leader_replicas, first.last_known_elr) == (
            -1,
            [2],
            [3],
            [2],
        )
        assert (second.eligible_leader_replicas, second.last_known_elr) == ([], [])


async def test_partition_that_waits_is_described_with_the_log_ends_that_are_known() -> None:
    async with running_broker() as broker:
        recovery = UpdateMetadataRecovery(
            strategy="balanced",
            waits_for=[3],
            elects=2,
            decides_at_ms=-1,
            log_ends=[UpdateMetadataLogEnd(broker_id=2, leader_epoch=5, offset=17)],
        )
        waiting = partition(
            0, -1, [1, 2, 3], [2, 3], [3], eligible=[3], last_leader=1, last_known=[2, 1], recovery=recovery
        )
        tell(broker, [broker_with(1)], {"t": [waiting, partition(1, 1, [1, 2], [1, 2])]})
        first, second = (await describe(broker, "t")).topics[0].partitions
        assert (first.isr_nodes, first.eligible_leader_replicas, first.last_known_elr) == ([], [3], [1, 2])
        assert first.recovery == PartitionRecovery(
            strategy="balanced",
            waits_for=[3],
            elects=2,
            decides_at_ms=-1,
            log_ends=[RecoveryLogEnd(broker_id=2, leader_epoch=5, offset=17)],
        )
        assert second.recovery is None
