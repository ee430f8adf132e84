"""The first batch of a transaction on a partition enters only if the coordinator knows that it belongs there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker.handlers.add_partitions_to_txn import handle_add_partitions_to_txn
from broker.handlers.end_txn import handle_end_txn
from broker.handlers.find_coordinator import handle_find_coordinator
from broker.handlers.init_producer_id import handle_init_producer_id
from broker.handlers.metadata import handle_metadata
from broker.handlers.produce import handle_produce
from broker.server import Broker
from coordinator.runtime import partition_for
from protocol.errors import ErrorCode
from protocol.framing import parse_response
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.topic_partition import TopicPartition
from tests.unit.broker.batches import batch
from tests.unit.broker.handlers.administration import ask, running_broker, settle
from tests.unit.broker.network.frame_client import FrameClient

TXN = "my-txn"


class Producer:
    """A transactional producer of version 1, reduced to its requests."""

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

    def request(self, partition: int, sequence: int, *, epoch: int | None = None, acks: int = -1) -> ProduceRequest:
        data = batch(
            b"v",
            timestamp=1_700_000_000_000,
            producer_id=self.id,
            epoch=self.epoch if epoch is None else epoch,
            sequence=sequence,
            transactional=True,
        )
        partition_data = [PartitionProduceData(index=partition, records=memoryview(data))]
        return ProduceRequest(
            transactional_id=TXN, acks=acks, timeout_ms=200,
            topic_data=[TopicProduceData(name="t", partition_data=partition_data)],
        )  # fmt: skip

    async def produce(self, partition: int, sequence: int, *, version: int = 11, epoch: int | None = None) -> ErrorCode:
        request = self.request(partition, sequence, epoch=epoch)
        outcome = await ask(self.broker, handle_produce, request, ProduceResponse, version)
        return ErrorCode(outcome.responses[0].partition_responses[0].error_code)


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


@asynccontextmanager
async def without_coordinator(broker: Broker) -> AsyncIterator[None]:
    """The coordinator's partition is away, and comes back at the end, to be loaded again."""
    index = partition_for(TXN, 50)
    partition = broker.replica_manager.partition(TopicPartition("__transaction_state", index))
    assert partition is not None
    assert partition.term is not None
    broker.transaction_coordinator.on_resigned(index)
    yield
    broker.transaction_coordinator.on_elected(index, partition.term)


async def test_a_partition_that_was_added_is_written_to() -> None:
    async with transactional_broker() as (_, producer):
        await producer.add(0)
        assert await producer.produce(0, 0) is ErrorCode.NONE
        assert await producer.produce(0, 1) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "error"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
async def test_a_partition_that_was_not_added_is_refused(version: int, error: ErrorCode) -> None:
    async with transactional_broker() as (_, producer):
        await producer.add(0)
        assert await producer.produce(1, 0, version=version) is error
        assert await producer.produce(0, 0, version=version) is ErrorCode.NONE


async def test_a_batch_that_comes_after_its_transaction_ended_opens_none() -> None:
    async with transactional_broker() as (broker, producer):
        await producer.add(0)
        assert await producer.produce(0, 0) is ErrorCode.NONE
        await producer.end(commit=True)
        assert await producer.produce(0, 1) is ErrorCode.TRANSACTION_ABORTABLE
        log = broker.replica_manager.partition(TopicPartition("t", 0)).log  # type: ignore[union-attr]
        assert log is not None
        assert log.last_stable_offset == log.log_end_offset


async def test_a_zombie_is_fenced_before_it_is_verified() -> None:
    """B08: its epoch is looked at first, so that it learns that it is fenced, not that its transaction is broken."""
    async with transactional_broker() as (_, producer):
        await producer.add(0)
        assert await producer.produce(0, 0) is ErrorCode.NONE
        await producer.end(commit=True)
        old = producer.epoch
        await producer.init()
        await producer.add(0)
        assert await producer.produce(1, 0, epoch=old) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await producer.produce(0, 0) is ErrorCode.NONE
        assert await producer.produce(0, 1, epoch=old) is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_switched_off_everything_is_appended() -> None:
    off = transactional_broker(transaction_partition_verification_enable="false")
    async with off as (broker, producer), without_coordinator(broker):
        assert await producer.produce(1, 0) is ErrorCode.NONE


async def test_a_coordinator_that_stays_away_makes_the_producer_try_again_and_keeps_its_order() -> None:
    """B85: what comes after a refused batch does not slip in before it."""
    async with transactional_broker() as (broker, producer):
        await producer.add(0)
        async with without_coordinator(broker):
            assert await producer.produce(0, 3) is ErrorCode.NOT_ENOUGH_REPLICAS
            assert await producer.produce(0, 0) is ErrorCode.NOT_ENOUGH_REPLICAS
        await settle()
        assert await producer.produce(0, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await producer.produce(0, 0) is ErrorCode.NONE
        assert await producer.produce(0, 1) is ErrorCode.NONE


async def test_while_the_coordinator_cannot_say_the_handler_is_a_coroutine() -> None:
    async with transactional_broker() as (broker, producer):
        await producer.add(0)
        async with without_coordinator(broker):
            waiting = asyncio.create_task(producer.produce(0, 0))  # noqa: TID251
            await settle()
            assert not waiting.done()
        assert await waiting is ErrorCode.NONE


async def test_five_produces_in_flight_of_which_the_first_waits_for_its_coordinator() -> None:
    """B85: over a real connection, none is overtaken, lost or refused."""
    async with transactional_broker() as (broker, producer):
        await producer.add(0)
        loop = asyncio.get_running_loop()
        port = broker.listeners.bound[0].port
        _, client = await loop.create_connection(FrameClient, "127.0.0.1", port)
        async with without_coordinator(broker):
            client.send(*((sequence, producer.request(0, sequence), 11) for sequence in range(5)))
            await settle()
            assert client.frames == []
        assert await client.correlation_ids(5) == [0, 1, 2, 3, 4]
        answers = [parse_response(ProduceResponse, 11, memoryview(frame))[1] for frame in client.frames]
        told = [answer.responses[0].partition_responses[0] for answer in answers]
        assert [(one.error_code, one.base_offset) for one in told] == [(0, offset) for offset in range(5)]
        client.transport.close()
        await client.lost


async def test_without_a_transactional_id_nobody_is_asked() -> None:
    async with transactional_broker() as (broker, _):
        request = ProduceRequest(
            acks=1,
            timeout_ms=1_000,
            topic_data=[
                TopicProduceData(
                    name="t",
                    partition_data=[
                        PartitionProduceData(index=0, records=memoryview(batch(timestamp=1_700_000_000_000)))
                    ],
                )
            ],
        )
        async with without_coordinator(broker):
            response = await ask(broker, handle_produce, request, ProduceResponse, 12)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
