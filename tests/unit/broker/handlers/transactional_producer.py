"""A transactional producer, reduced to its requests, and a broker for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from oncelog.broker.handlers.add_partitions_to_txn import handle_add_partitions_to_txn
from oncelog.broker.handlers.end_txn import handle_end_txn
from oncelog.broker.handlers.find_coordinator import handle_find_coordinator
from oncelog.broker.handlers.init_producer_id import handle_init_producer_id
from oncelog.broker.handlers.metadata import handle_metadata
from oncelog.broker.handlers.produce import handle_produce
from oncelog.broker.parts import Broker
from oncelog.broker.replication.coordinator_log import CoordinatorLog
from oncelog.broker.replication.partition import Partition
from oncelog.broker.storage.partition_log import PartitionLog
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.batches import batch
from tests.unit.broker.handlers.administration import ask, running_broker, settle

TXN = "my-txn"
NOW = 1_700_000_000_000


class Producer:
    """What it sends. ``add`` belongs to version 1 of the transaction protocol, ``end_by_version_2`` to the other."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.id, self.epoch = -1, -1

    async def init(self) -> None:
        request = InitProducerIdRequest(transactional_id=TXN, transaction_timeout_ms=60_000)
        response = InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        while response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            response = await ask(self.broker, handle_init_producer_id, request, InitProducerIdResponse, 4)
            await settle()
        assert response.error_code == ErrorCode.NONE
        self.id, self.epoch = response.producer_id, response.producer_epoch

    async def add(self, *partitions: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TXN,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(partitions))],
        )
        response = await ask(self.broker, handle_add_partitions_to_txn, request, AddPartitionsToTxnResponse, 3)
        (topic,) = response.results_by_topic_v3_and_below
        assert {result.partition_error_code for result in topic.results_by_partition} == {0}

    async def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(transactional_id=TXN, producer_id=self.id, producer_epoch=self.epoch, committed=commit)
        assert (await ask(self.broker, handle_end_txn, request, EndTxnResponse, 3)).error_code == ErrorCode.NONE

    async def end_by_version_2(self, *, commit: bool = True) -> None:
        """The next transaction has the epoch that the response tells."""
        coordinator = self.broker.transaction_coordinator
        response = coordinator.end_txn(TXN, ProducerIdAndEpoch(self.id, self.epoch), commit=commit, client_version=2)
        result = response if isinstance(response, tuple) else await response
        assert result.error is ErrorCode.NONE
        self.id, self.epoch = result.producer

    def batch(self, sequence: int, *, epoch: int | None = None) -> memoryview:
        data = batch(
            b"v",
            timestamp=NOW,
            producer_id=self.id,
            epoch=self.epoch if epoch is None else epoch,
            sequence=sequence,
            transactional=True,
        )
        return memoryview(data)

    def request(self, *batches: tuple[int, memoryview], topic: str = "t") -> ProduceRequest:
        """Of (partition, batch)."""
        partition_data = [PartitionProduceData(index=index, records=data) for index, data in batches]
        return ProduceRequest(
            transactional_id=TXN, acks=-1, timeout_ms=200,
            topic_data=[TopicProduceData(name=topic, partition_data=partition_data)],
        )  # fmt: skip

    async def errors(self, request: ProduceRequest, version: int) -> list[ErrorCode]:
        outcome = await ask(self.broker, handle_produce, request, ProduceResponse, version)
        return [ErrorCode(one.error_code) for one in outcome.responses[0].partition_responses]

    async def produce(self, partition: int, sequence: int, *, version: int = 11, epoch: int | None = None) -> ErrorCode:
        request = self.request((partition, self.batch(sequence, epoch=epoch)))
        (error,) = await self.errors(request, version)
        return error


@asynccontextmanager
async def transactional_broker(**settings: str) -> AsyncIterator[tuple[Broker, Producer]]:
    """A broker with topic ``t`` of two partitions, and a producer that has its id."""
    async with running_broker(None, num_partitions="2", **settings) as broker:
        await ask(broker, handle_metadata, MetadataRequest(topics=[MetadataRequestTopic(name="t")]), MetadataResponse)
        find = FindCoordinatorRequest(key=TXN, key_type=1)
        await ask(broker, handle_find_coordinator, find, FindCoordinatorResponse, 2)
        producer = Producer(broker)
        await producer.init()
        yield broker, producer


def coordinator_partition(broker: Broker) -> Partition:
    """Of the transaction log, the one that has the transactional id."""
    partition = broker.replica_manager.partition(("__transaction_state", partition_for(TXN, 50)))
    assert partition is not None
    return partition


@asynccontextmanager
async def without_coordinator(broker: Broker) -> AsyncIterator[None]:
    """The coordinator's partition is away, and comes back at the end, to be loaded again."""
    partition = coordinator_partition(broker)
    assert partition.leading is not None
    index = partition.topic_partition.partition
    broker.transaction_coordinator.on_resigned(index)
    yield
    broker.transaction_coordinator.on_elected(index, CoordinatorLog(partition.leading))


@asynccontextmanager
async def without_leader(broker: Broker, index: int) -> AsyncIterator[None]:
    """A partition of ``t`` has no leader for a while, so that no transaction that it belongs to can complete."""
    partition = broker.replica_manager.partition(("t", index))
    assert partition is not None
    log = partition.log
    assert log is not None
    state = LeaderAndIsrPartitionState(
        topic_name="t",
        partition_index=index,
        leader=broker.broker_id,
        leader_epoch=partition.leader_epoch + 1,
        isr=[broker.broker_id],
        replicas=[broker.broker_id],
        partition_epoch=partition.partition_epoch,
    )
    partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    yield
    broker.replica_manager.lead(partition, state, log)


def log_of(broker: Broker, index: int = 0) -> PartitionLog:
    partition = broker.replica_manager.partition(("t", index))
    assert partition is not None
    assert partition.log is not None
    return partition.log


def partitions_in_transaction(broker: Broker) -> set[TopicPartition]:
    """As the coordinator has them."""
    metadata = broker.transaction_coordinator.describe(TXN)
    assert not isinstance(metadata, ErrorCode)
    return set(metadata.partitions)
