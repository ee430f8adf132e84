"""Leaders of partitions, as a script for ``ScriptedBroker``: logs in memory, fetch sessions as a broker keeps them."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from oncelog.clients.connection import Address
from oncelog.clients.consumer import Consumer, ConsumerConfig
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
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.clients.consumer.fetched import ORDERS, batch
from tests.unit.clients.scripted_broker import Reaction, ScriptedBroker, ScriptedResponse

TOPIC_ID = bytes(range(1, 17))
SESSION = 77


class Leader(ScriptedBroker):
    """A broker with logs of topic ``orders``, batches of two records. Without news, it lets fetches wait.

    A response holds at most ``max_bytes``, or one batch, and what it holds records of comes last in the next one.
    """

    def __init__(self, node_id: int = 1, batches: int = 0, batches_at_once: int = 1) -> None:
        super().__init__({FetchRequest: self._fetch, ListOffsetsRequest: self._list_offsets}, node_id)
        self.batches = {0: batches}
        self.batches_at_once = batches_at_once
        self.fetches: list[FetchRequest] = []
        self.refusals: list[ScriptedResponse | PartitionData] = []
        """What to answer to the next fetches instead."""
        self._session: dict[int, int] = {}

    def _fetch(self, request: Message) -> ScriptedResponse:
        assert isinstance(request, FetchRequest)
        self.fetches.append(request)
        if request.session_epoch == -1:
            return FetchResponse()
        if request.session_epoch == 0:
            self._session = {}
        for topic in request.topics:
            self._session |= {partition.partition: partition.fetch_offset for partition in topic.partitions}
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                del self._session[index]
        if self.refusals:
            refusal = self.refusals.pop(0)
            return respond(request, [refusal]) if isinstance(refusal, PartitionData) else refusal
        data = self._data_within(request.max_bytes)
        is_full = request.session_epoch == 0
        if not is_full:
            data = [each for each in data if each.records or each.error_code]
        return respond(request, data) if is_full or data else Reaction.SILENCE

    def _data_within(self, max_bytes: int) -> list[PartitionData]:
        found, size = [], 0
        for index, offset in list(self._session.items()):
            data = self._data(index, offset)
            assert data.records is None or isinstance(data.records, bytes)
            if data.records:
                if size and size + len(data.records) > max_bytes:
                    data.records = b""
                else:
                    size += len(data.records)
                    self._session[index] = self._session.pop(index)
            found.append(data)
        return found

    def _data(self, index: int, offset: int) -> PartitionData:
        first, end = offset // 2, self.batches.get(index, 0)
        numbers = range(first, min(end, first + self.batches_at_once))
        records = b"".join(batch(2 * number, epoch=0) for number in numbers)
        return PartitionData(partition_index=index, records=records, high_watermark=2 * end, last_stable_offset=2 * end)

    def _list_offsets(self, request: Message) -> ListOffsetsResponse:
        assert isinstance(request, ListOffsetsRequest)
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=requested.partition_index,
                            offset=0
                            if requested.timestamp == -2
                            else 2 * self.batches.get(requested.partition_index, 0),
                        )
                        for requested in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


def respond(request: FetchRequest, data: Sequence[PartitionData], session_id: int = SESSION) -> FetchResponse:
    """By id or by name, as was requested; a response without a topic asks for none."""
    topic = FetchableTopicResponse(topic="orders", topic_id=TOPIC_ID, partitions=list(data))
    return FetchResponse(session_id=session_id, responses=[topic] if data else [])


class ScriptedMetadata:
    """What all brokers tell of the cluster: the leaders of the partitions of ``orders``, each with its epoch."""

    def __init__(self, leaders: Iterable[int], *, epoch: int = 0, topic_id: bytes = TOPIC_ID) -> None:
        self.leaders = list(leaders)
        self.epoch = epoch
        self.topic_id = topic_id
        self.addresses: dict[int, Address] = {}
        self.requested = 0

    def __call__(self, request: Message) -> MetadataResponse:
        assert isinstance(request, MetadataRequest)
        self.requested += request.topics != []
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=self.epoch)
            for index, leader in enumerate(self.leaders)
        ]
        orders = MetadataResponseTopic(name="orders", topic_id=self.topic_id, partitions=partitions)
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=n, host=a.host, port=a.port) for n, a in self.addresses.items()],
            controller_id=1,
            topics=[] if request.topics == [] else [orders],
        )


@asynccontextmanager
async def reading(
    *brokers: ScriptedBroker,
    reported: ScriptedMetadata,
    partitions: Sequence[TopicPartition] = (ORDERS,),
    **settings: Any,
) -> AsyncIterator[Consumer]:
    """A consumer that reads the partitions from offset 0."""
    async with connected(*brokers, reported=reported, **settings) as consumer:
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        yield consumer


@asynccontextmanager
async def connected(
    *brokers: ScriptedBroker, reported: ScriptedMetadata, rng: Random | None = None, **settings: Any
) -> AsyncIterator[Consumer]:
    """A consumer of scripted brokers; the first is the bootstrap."""
    reported.addresses = {broker.node_id: await broker.start() for broker in brokers}
    for broker in brokers:
        broker.script[MetadataRequest] = reported
        broker.script.setdefault(OffsetForLeaderEpochRequest, Reaction.CLOSE)
    config = ConsumerConfig(bootstrap=str(brokers[0].address), **settings)
    async with Consumer(config, rng=rng or Random(1), wall_clock=lambda: 0) as consumer:
        yield consumer
    for broker in brokers:
        broker.stop()


def offsets_of(request: FetchRequest) -> dict[int, int]:
    return {partition.partition: partition.fetch_offset for topic in request.topics for partition in topic.partitions}


def ends(end_epoch: int, end_offset: int, error: ErrorCode = ErrorCode.NONE) -> OffsetForLeaderEpochResponse:
    """What a leader says of the end of an epoch of ``orders-0``."""
    end = EpochEndOffset(partition=0, error_code=error, leader_epoch=end_epoch, end_offset=end_offset)
    return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="orders", partitions=[end])])


def refused(error: ErrorCode, **fields: Any) -> PartitionData:
    return PartitionData(partition_index=0, error_code=error, **fields)


class FailingLeader(Leader):
    """One whose partition 0 answers an error for as long as there is one. Fetches without news wait as on a broker."""

    def __init__(self, error: ErrorCode | None, batches: int = 0) -> None:
        super().__init__(1, batches)
        self.error = error
        self.failed_fetches = 0

    def _fetch(self, request: Message) -> ScriptedResponse:
        assert isinstance(request, FetchRequest)
        responded = super()._fetch(request)
        if responded is not Reaction.SILENCE:
            return responded
        asyncio.get_running_loop().call_later(request.max_wait_ms / 1000, self.release, respond(request, []))
        return Reaction.HOLD

    def _data(self, index: int, offset: int) -> PartitionData:
        if index == 0 and self.error is not None:
            self.failed_fetches += 1
            return refused(self.error)
        return super()._data(index, offset)
