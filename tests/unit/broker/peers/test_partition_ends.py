"""The ends of partitions that other brokers lead."""

from collections.abc import Callable

from oncelog.broker.peers.partition_ends import PartitionEnds
from oncelog.coordinator.controller.cluster_image import ClusterImage, MetadataCache, PartitionImage, TopicImage
from oncelog.coordinator.ports import OnResponse
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from oncelog.protocol.schema import ZERO_UUID, Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time

PARTITIONS = 2_500


class Leaders:
    """A ``BrokerChannel`` to brokers that respond as ``end_at`` says, or not at all."""

    def __init__(self, end_at: Callable[[int, int], EpochEndOffset | None]) -> None:
        self._end_at = end_at
        self.sent: list[tuple[int, int]] = []
        """(broker, partitions) of each request."""

    def send(self, broker_id: int, request: Message, on_response: OnResponse) -> None:
        assert isinstance(request, OffsetForLeaderEpochRequest)
        results = []
        for topic in request.topics:
            found = [self._end_at(broker_id, each.partition) for each in topic.partitions]
            results.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=[each for each in found if each]))
            self.sent.append((broker_id, len(topic.partitions)))
        if any(result.partitions for result in results):
            on_response(OffsetForLeaderEpochResponse(topics=results))


def metadata(leader_of: Callable[[int], int]) -> MetadataCache:
    cache = MetadataCache()
    partitions = {
        index: PartitionImage(leader=leader_of(index), leader_epoch=3, replicas=(1, 2), isr=(1, 2))
        for index in range(PARTITIONS)
    }
    cache.image = ClusterImage(topics={"t": TopicImage("t", ZERO_UUID, partitions)})
    return cache


@in_virtual_time
async def test_leaders_receive_their_partitions_in_requests_of_bounded_size() -> None:
    leaders = Leaders(lambda broker, index: EpochEndOffset(partition=index, end_offset=100 * broker + index))
    ends = PartitionEnds(leaders, metadata(lambda index: 2 if index < 2_400 else 3))
    found = await ends.of([TopicPartition("t", index) for index in range(PARTITIONS)])
    assert len(found) == PARTITIONS
    assert found[TopicPartition("t", 1)] == 201
    assert found[TopicPartition("t", 2_499)] == 2_799
    assert sorted(leaders.sent) == [(2, 400), (2, 1_000), (2, 1_000), (3, 100)]


@in_virtual_time
async def test_end_that_no_leader_reports_in_time_is_absent() -> None:
    def end_at(broker: int, index: int) -> EpochEndOffset | None:
        if broker == 3:
            return None  # It is silent.
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER if index == 1 else ErrorCode.NONE
        return EpochEndOffset(partition=index, error_code=error, end_offset=7)

    ends = PartitionEnds(Leaders(end_at), metadata(lambda index: {0: 2, 1: 2, 2: 3}.get(index, -1)))
    unknown = TopicPartition("unknown", 0)
    assert await ends.of([*(TopicPartition("t", index) for index in range(4)), unknown]) == {TopicPartition("t", 0): 7}
    assert await ends.of([]) == {}
