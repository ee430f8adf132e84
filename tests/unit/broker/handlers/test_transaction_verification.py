"""The first batch of a transaction on a partition enters only if the coordinator knows that it belongs there.

Version 1 of the transaction protocol, with the coordinator in the same broker.
"""

import asyncio

import pytest

from oncelog.broker.handlers.produce import handle_produce
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import parse_response
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.unit.broker.batches import batch
from tests.unit.broker.handlers.administration import ask, settle
from tests.unit.broker.handlers.transactional_producer import log_of, transactional_broker, without_coordinator
from tests.unit.broker.network.frame_client import FrameClient


async def test_partition_that_was_added_is_written_to() -> None:
    async with transactional_broker() as (_, producer):
        await producer.add(0)
        assert await producer.produce(0, 0) is ErrorCode.NONE
        assert await producer.produce(0, 1) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "error"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
async def test_partition_that_was_not_added_is_refused(version: int, error: ErrorCode) -> None:
    async with transactional_broker() as (_, producer):
        await producer.add(0)
        assert await producer.produce(1, 0, version=version) is error
        assert await producer.produce(0, 0, version=version) is ErrorCode.NONE


async def test_batch_that_comes_after_its_transaction_ended_opens_none() -> None:
    async with transactional_broker() as (broker, producer):
        await producer.add(0)
        assert await producer.produce(0, 0) is ErrorCode.NONE
        await producer.end(commit=True)
        assert await producer.produce(0, 1) is ErrorCode.TRANSACTION_ABORTABLE
        log = log_of(broker)
        assert log.last_stable_offset == log.log_end_offset


async def test_zombie_is_fenced_before_it_is_verified() -> None:
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


async def test_produce_with_verification_switched_off_appends_everything() -> None:
    off = transactional_broker(transaction_partition_verification_enable="false")
    async with off as (broker, producer), without_coordinator(broker):
        assert await producer.produce(1, 0) is ErrorCode.NONE


async def test_coordinator_that_stays_away_makes_the_producer_try_again_and_keeps_its_order() -> None:
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


async def test_produce_handler_is_a_coroutine_while_the_coordinator_decides() -> None:
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
        await settle()
        client.send((99, ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3))
        assert await client.correlation_ids(1) == [99]
        client.frames.clear()
        async with without_coordinator(broker):
            client.send(*((n, producer.request((0, producer.batch(n))), 11) for n in range(5)))
            await settle()
            assert client.frames == []
        assert await client.correlation_ids(5) == [0, 1, 2, 3, 4]
        responses = [parse_response(ProduceResponse, 11, memoryview(frame))[1] for frame in client.frames]
        reported = [response.responses[0].partition_responses[0] for response in responses]
        assert [(one.error_code, one.base_offset) for one in reported] == [(0, offset) for offset in range(5)]
        client.transport.close()
        await client.lost


async def test_produce_without_transactional_id_is_not_verified() -> None:
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
