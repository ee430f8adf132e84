"""A broker with one partition of a topic, as a script: a log that can be cut, emptied and replaced."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from oncelog.clients.cluster import Cluster
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from oncelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from oncelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from oncelog.protocol.records.record_batch import NewRecord, build_batch
from oncelog.protocol.schema import Message
from oncelog.spark_connector.offset_ranges import OffsetRange
from tests.stored_batch import stored
from tests.unit.clients.scripted_broker import ScriptedBroker, ScriptedResponse

ID, OTHER_ID = b"i" * 16, b"o" * 16
TOPIC = "orders"


class ScriptedPartition(ScriptedBroker):
    """Records ``v<offset>``, two in a batch, from ``begin`` to ``end``; a fetch returns one batch."""

    def __init__(self, end: int = 0) -> None:
        super().__init__(
            {
                FetchRequest: self._fetch,
                ListOffsetsRequest: self._list_offsets,
                MetadataRequest: self._metadata,
                OffsetForLeaderEpochRequest: self._end_of_epoch,
            }
        )
        self.epoch_begins = [0]
        """Where each leader epoch begins in the log, by its number; the last one is the leader's."""
        self.begin = 0
        self.end = end
        self.stable_end: int | None = None
        """What is committed, if that is less."""
        self.topic_id: bytes | None = ID
        """None: there is no topic."""
        self.partitions = 1
        self.is_emptied = False
        """Whether compaction has taken every record."""
        self.fetched: list[int] = []
        self.instead: list[ScriptedResponse | PartitionData] = []
        """The responses to the next fetches."""

    def _metadata(self, request: Message) -> ScriptedResponse:
        assert isinstance(request, MetadataRequest)
        broker = MetadataResponseBroker(node_id=1, host=self.address.host, port=self.address.port)
        topic = MetadataResponseTopic(name=TOPIC, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.topic_id is not None:
            numbers = range(self.partitions)
            epoch = len(self.epoch_begins) - 1
            of_topic = [
                MetadataResponsePartition(partition_index=number, leader_id=1, leader_epoch=epoch) for number in numbers
            ]
            topic = MetadataResponseTopic(name=TOPIC, topic_id=self.topic_id, partitions=of_topic)
        return MetadataResponse(brokers=[broker], controller_id=1, topics=[topic])

    def _list_offsets(self, request: Message) -> ScriptedResponse:
        assert isinstance(request, ListOffsetsRequest)
        stable = self.stable_end if request.isolation_level and self.stable_end is not None else self.end
        found = [
            ListOffsetsPartitionResponse(
                partition_index=requested.partition_index, offset=self.begin if requested.timestamp == -2 else stable
            )
            for requested in request.topics[0].partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=found)])

    def elect(self, end: int) -> None:
        """Go on with a leader whose log ends there: what was written behind it is lost."""
        self.epoch_begins.append(end)

    def _epoch_at(self, offset: int) -> int:
        return max(epoch for epoch, begin in enumerate(self.epoch_begins) if begin <= offset)

    def _end_of_epoch(self, request: Message) -> ScriptedResponse:
        assert isinstance(request, OffsetForLeaderEpochRequest)
        (topic,) = request.topics
        (requested,) = topic.partitions
        later = self.epoch_begins[requested.leader_epoch + 1 :]
        end = EpochEndOffset(leader_epoch=requested.leader_epoch, end_offset=min(later, default=self.end))
        if requested.current_leader_epoch != len(self.epoch_begins) - 1:
            end.error_code = ErrorCode.FENCED_LEADER_EPOCH
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=TOPIC, partitions=[end])])

    def _fetch(self, request: Message) -> ScriptedResponse:
        assert isinstance(request, FetchRequest)
        (topic,) = request.topics
        offset = topic.partitions[0].fetch_offset
        self.fetched.append(offset)
        if self.instead:
            instead = self.instead.pop(0)
            return respond(instead) if isinstance(instead, PartitionData) else instead
        if topic.topic_id != self.topic_id:
            return respond(PartitionData(error_code=ErrorCode.UNKNOWN_TOPIC_ID))
        if topic.partitions[0].current_leader_epoch not in (-1, len(self.epoch_begins) - 1):
            return respond(PartitionData(error_code=ErrorCode.FENCED_LEADER_EPOCH))
        if not self.begin <= offset <= self.end:
            return respond(PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
        base = offset // 2 * 2
        records = b"" if self.is_emptied or base >= self.end else batch(base, self._epoch_at(base))
        return respond(PartitionData(records=records, high_watermark=self.end, last_stable_offset=self.end))


def respond(data: PartitionData) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, topic_id=ID, partitions=[data])])


def batch(base: int, epoch: int = 0) -> bytes:
    records = [NewRecord(0, None, b"v%d" % (base + n)) for n in range(2)]
    return bytes(stored(build_batch(records), base_offset=base, partition_leader_epoch=epoch))


def offsets(start: int, end: int) -> OffsetRange:
    return OffsetRange(TOPIC, 0, start, end, ID)


@asynccontextmanager
async def connected_to(partition: ScriptedPartition) -> AsyncIterator[Cluster]:
    address = await partition.start()
    async with Cluster([address], rng=Random(1), operation_seconds=5) as cluster:
        yield cluster
    partition.stop()
