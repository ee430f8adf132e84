"""Topics in pages, and deleted by their ids."""

import asyncio
from uuid import UUID

import pytest

from oncelog.clients.admin.topic_pages import describe_topic_pages
from oncelog.clients.admin.topics import TopicDescription, delete_topics_by_id
from oncelog.clients.errors import BadResponse, Refusal, VersionNotSupported
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from oncelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from oncelog.protocol.schema import Message, Versions
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import ScriptedBroker
from tests.unit.clients.scripted_cluster import OPERATION_SECONDS, cluster_of

TOPIC_ID = UUID(int=9)
PARTITIONS = {"bills": 3, "orders": 5}


def page(request: Message) -> DescribeTopicPartitionsResponse:
    """As a broker fills one: topics by name, so many partitions, and where the rest begins."""
    assert isinstance(request, DescribeTopicPartitionsRequest)
    cursor = request.cursor or Cursor()
    room = request.response_partition_limit
    response = DescribeTopicPartitionsResponse()
    wanted = sorted({topic.name for topic in request.topics} or PARTITIONS)
    assert request.cursor is None or not request.topics or cursor.topic_name in wanted
    for name in wanted:
        if name not in PARTITIONS:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            response.topics.append(DescribeTopicPartitionsResponseTopic(name=name, error_code=error))
            continue
        if name < cursor.topic_name:
            continue
        first = cursor.partition_index if name == cursor.topic_name else 0
        reported = range(first, min(first + room, PARTITIONS[name]))
        room -= len(reported)
        partitions = [
            DescribeTopicPartitionsResponsePartition(partition_index=index, leader_id=1) for index in reported
        ]
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(name=name, topic_id=TOPIC_ID.bytes, partitions=partitions)
        )
        if reported.stop < PARTITIONS[name]:
            response.next_cursor = Cursor(topic_name=name, partition_index=reported.stop)
            break
    return response


@pytest.mark.parametrize("page_size", range(1, 10))
@pytest.mark.parametrize("names", [(), ("orders", "bills"), ("nothing", "orders")])
def test_pages_of_any_size_make_the_same_topics(page_size: int, names: tuple[str, ...]) -> None:
    @in_virtual_time
    async def play() -> None:
        broker = ScriptedBroker({DescribeTopicPartitionsRequest: page})
        async with cluster_of(broker) as cluster:
            described = await describe_topic_pages(cluster, names, page_size=page_size)
            assert set(described) == set(names or PARTITIONS)
            for name, topic in described.items():
                if name == "nothing":
                    assert topic == Refusal(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    continue
                assert isinstance(topic, TopicDescription)
                assert [each.partition for each in topic.partitions] == list(range(PARTITIONS[name]))
                assert all(each.leader == 1 for each in topic.partitions)

    play()


@in_virtual_time
async def test_paging_ends_at_a_broker_that_repeats_its_cursor() -> None:
    same = DescribeTopicPartitionsResponse(next_cursor=Cursor(topic_name="orders", partition_index=1))
    async with cluster_of(ScriptedBroker({DescribeTopicPartitionsRequest: same})) as cluster:
        async with asyncio.timeout(OPERATION_SECONDS):
            with pytest.raises(BadResponse, match="orders"):
                await describe_topic_pages(cluster)


@in_virtual_time
async def test_topics_are_deleted_by_id() -> None:
    gone = DeletableTopicResult(name="orders", topic_id=TOPIC_ID.bytes)
    broker = ScriptedBroker({DeleteTopicsRequest: DeleteTopicsResponse(responses=[gone])})
    async with cluster_of(broker) as cluster:
        assert await delete_topics_by_id(cluster, [TOPIC_ID]) == {TOPIC_ID: None}
        (request,) = broker.seen(DeleteTopicsRequest)
        assert isinstance(request, DeleteTopicsRequest)
        assert [(topic.name, topic.topic_id) for topic in request.topics] == [(None, TOPIC_ID.bytes)]


@in_virtual_time
async def test_broker_without_topic_ids_gets_no_deletion() -> None:
    broker = ScriptedBroker({DeleteTopicsRequest: DeleteTopicsResponse()})
    broker.versions[DeleteTopicsRequest.api_key or 0] = Versions(1, 5)
    async with cluster_of(broker) as cluster:
        with pytest.raises(VersionNotSupported):
            await delete_topics_by_id(cluster, [TOPIC_ID])
        assert not broker.seen(DeleteTopicsRequest)
