"""Scripted brokers that store what is produced to them: a real producer on one side, models of partitions beside it.

Everything can be made to go wrong by one entry of a broker's script.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from oncelog.clients.producer import Producer, ProducerConfig
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.find_coordinator import Coordinator as FoundCoordinator
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from oncelog.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from oncelog.protocol.schema import Message
from tests.unit.clients.producer.broker_model import PartitionModel, refusal
from tests.unit.clients.scripted_broker import ScriptedBroker

TOPIC = "orders"
TOPIC_ID = bytes(range(16))
PRODUCER_ID = 7
NOW_MS = 1_700_000_000_000


class Stage:
    """A cluster of scripted brokers with one topic. ``leaders`` says who leads each partition, and may change."""

    def __init__(self, partitions: int = 2, brokers: int = 1, transaction_version: int | None = None) -> None:
        self.partitions = [PartitionModel() for _ in range(partitions)]
        self.leaders = [1] * partitions
        self.leader_epoch = 0
        self.epoch = -1
        self.topic_exists = True
        self.brokers = [ScriptedBroker({}, node_id=node_id) for node_id in range(1, brokers + 1)]
        for broker in self.brokers:
            broker.transaction_version = transaction_version
            broker.script = {
                MetadataRequest: lambda request: self.metadata(),
                InitProducerIdRequest: lambda request: self.init_producer_id(),
                FindCoordinatorRequest: self.find_coordinator,
                ProduceRequest: lambda request, broker=broker: self.produce(broker, request),
                AddPartitionsToTxnRequest: self.add_partitions,
                AddOffsetsToTxnRequest: AddOffsetsToTxnResponse(),
                TxnOffsetCommitRequest: self.commit_offsets,
                EndTxnRequest: lambda request: self.end_txn(),
            }

    @property
    def broker(self) -> ScriptedBroker:
        return self.brokers[0]

    @property
    def address(self) -> str:
        return str(self.broker.address)

    def lead(self, node_id: int) -> None:
        """Another broker leads all partitions."""
        self.leaders = [node_id] * len(self.partitions)
        self.leader_epoch += 1

    def values(self) -> list[bytes]:
        """What is in all partitions, in order."""
        return [value for partition in self.partitions for value in partition.log]

    # Answers

    def metadata(self) -> MetadataResponse:
        listed = [
            MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=self.leader_epoch)
            for index, leader in enumerate(self.leaders)
        ]
        topic = MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=listed)
        if not self.topic_exists:
            topic = MetadataResponseTopic(name=TOPIC, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker.node_id, host=broker.address.host, port=broker.address.port)
                for broker in self.brokers
            ],
            controller_id=1,
            topics=[topic],
        )

    def init_producer_id(self) -> InitProducerIdResponse:
        self.epoch += 1
        return InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def find_coordinator(self, request: Message) -> FindCoordinatorResponse:
        assert isinstance(request, FindCoordinatorRequest)
        at = self.broker.address
        (key,) = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[FoundCoordinator(key=key, node_id=1, host=at.host, port=at.port, error_message=None)]
        )

    def add_partitions(self, request: Message) -> AddPartitionsToTxnResponse:
        assert isinstance(request, AddPartitionsToTxnRequest)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=index) for index in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def commit_offsets(self, request: Message, error: ErrorCode = ErrorCode.NONE) -> TxnOffsetCommitResponse:
        assert isinstance(request, TxnOffsetCommitRequest)
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def end_txn(self) -> EndTxnResponse:
        if self.broker.transaction_version == 2:
            self.epoch += 1
            return EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)
        return EndTxnResponse()

    def produce(self, broker: ScriptedBroker, request: Message) -> ProduceResponse:
        """Store it, or name the leader."""
        return self._each(request, lambda index, data: self._store(broker, index, data))

    def refuse(self, request: Message, error: ErrorCode) -> ProduceResponse:
        """Store nothing."""
        return self._each(request, lambda index, data: refusal(error))

    def _store(self, broker: ScriptedBroker, index: int, data: bytes) -> PartitionProduceResponse:
        if self.leaders[index] == broker.node_id:
            return self.partitions[index].produce(data)
        response = refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        response.current_leader = LeaderIdAndEpoch(leader_id=self.leaders[index], leader_epoch=self.leader_epoch)
        return response

    def _each(self, request: Message, response: Any) -> ProduceResponse:
        assert isinstance(request, ProduceRequest)
        topics = []
        for topic in request.topic_data:
            responses = []
            for partition in topic.partition_data:
                assert partition.records is not None
                responses.append(response(partition.index, bytes(partition.records)))
                responses[-1].index = partition.index
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=responses))
        endpoints = [
            NodeEndpoint(node_id=each.node_id, host=each.address.host, port=each.address.port) for each in self.brokers
        ]
        return ProduceResponse(responses=topics, node_endpoints=endpoints)

    # The producer

    @asynccontextmanager
    async def playing(self) -> AsyncIterator["Stage"]:
        """The brokers are up."""
        for broker in self.brokers:
            await broker.start()
        try:
            yield self
        finally:
            for broker in self.brokers:
                broker.stop()

    def producer(self, **settings: Any) -> Producer:
        config = ProducerConfig(bootstrap=self.address, **settings)
        return Producer(config, rng=Random(1), wall_clock=lambda: NOW_MS)

    @asynccontextmanager
    async def producing(self, **settings: Any) -> AsyncIterator[Producer]:
        """The brokers are up, and a producer is connected."""
        async with self.playing(), self.producer(**settings) as producer:
            yield producer

    @asynccontextmanager
    async def transacting(self, **settings: Any) -> AsyncIterator[Producer]:
        """The brokers are up, and a producer has begun a transaction."""
        async with self.producing(transactional_id="id", **settings) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            yield producer
