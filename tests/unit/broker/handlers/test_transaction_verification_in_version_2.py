"""Version 2 of the transaction protocol: partitions get into a transaction by being written to (KIP-890 part 2)."""

import asyncio

import pytest

from oncelog.broker.dispatch.request import ConnectionInfo, RequestContext
from oncelog.broker.handlers.find_coordinator import handle_find_coordinator
from oncelog.broker.handlers.produce import handle_produce
from oncelog.broker.handlers.txn_offset_commit import handle_txn_offset_commit
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import parse_response
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.produce import ProduceResponse
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.handlers.administration import Denies, ask, settle
from tests.unit.broker.handlers.transactional_producer import (
    TXN,
    Producer,
    coordinator_partition,
    log_of,
    partitions_in_transaction,
    transactional_broker,
    without_coordinator,
    without_leader,
)
from tests.unit.broker.network.frame_client import FrameClient

ADDS = 12
BY_ID = 13
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP = "g"
VERY_PATIENT = {"add_partitions_to_txn_retry_backoff_max_ms": "30000"}


async def test_writing_to_a_partition_adds_it() -> None:
    async with transactional_broker() as (broker, producer):
        assert await producer.produce(0, 0, version=ADDS) is ErrorCode.NONE
        assert partitions_in_transaction(broker) == {T0}
        assert await producer.produce(1, 0, version=ADDS) is ErrorCode.NONE
        assert partitions_in_transaction(broker) == {T0, T1}
        await producer.end_by_version_2()
        assert log_of(broker, 0).last_stable_offset == log_of(broker, 0).log_end_offset == 2
        assert partitions_in_transaction(broker) == set()


@pytest.mark.parametrize("partitions", [(0,), (0, 1)])
async def test_batches_of_topic_named_by_id_are_added(partitions: tuple[int, ...]) -> None:
    """KIP-516: version 13 has no names, and the coordinator is asked by name."""
    async with transactional_broker() as (broker, producer):
        topic = broker.metadata.image.topic("t")
        assert topic is not None
        request = producer.request(*((index, producer.batch(0)) for index in partitions), topic="")
        request.topic_data[0].topic_id = topic.topic_id
        assert await producer.errors(request, BY_ID) == [ErrorCode.NONE] * len(partitions)
        assert partitions_in_transaction(broker) == {TopicPartition("t", index) for index in partitions}


async def test_first_batches_of_a_request_are_verified_together() -> None:
    """The first produce of a transaction costs one record of the transaction log, those that follow cost none."""
    async with transactional_broker() as (broker, producer):
        log = coordinator_partition(broker).log
        assert log is not None
        end = log.log_end_offset
        both = producer.request((0, producer.batch(0)), (1, producer.batch(0)))
        assert await producer.errors(both, ADDS) == [ErrorCode.NONE] * 2
        assert log.log_end_offset == end + 1
        for sequence in (1, 2):
            assert await producer.produce(0, sequence, version=ADDS) is ErrorCode.NONE
        assert log.log_end_offset == end + 1
        metrics = broker.transaction_verifier.metrics
        assert (metrics.verification_count, metrics.verification_failures) == (1, 0)
        assert metrics.verification_time_ms_max == metrics.verification_time_ms_total


async def test_produce_with_the_coordinator_on_the_same_broker_returns_at_once() -> None:
    """No coroutine and no future: the partition is added and written to in one step."""
    async with transactional_broker() as (broker, producer):
        connection = ConnectionInfo(client_host="127.0.0.1", listener_name="PLAINTEXT")
        request = producer.request((0, producer.batch(0)))
        outcome = handle_produce(broker, RequestContext(ADDS, 1, None, connection), request)
        assert isinstance(outcome, ProduceResponse)


async def test_switched_off_verification_leaves_version_2_alone() -> None:
    async with transactional_broker(transaction_partition_verification_enable="false") as (broker, producer):
        assert await producer.produce(0, 0, version=ADDS) is ErrorCode.NONE
        assert partitions_in_transaction(broker) == {T0}


async def test_next_transaction_waits_until_the_one_before_is_complete() -> None:
    """B05: it is neither refused nor mixed into that one."""
    async with transactional_broker(**VERY_PATIENT) as (broker, producer):
        both = producer.request((0, producer.batch(0)), (1, producer.batch(0)))
        assert await producer.errors(both, ADDS) == [ErrorCode.NONE] * 2
        async with without_leader(broker, 1):
            await producer.end_by_version_2()
            waiting = asyncio.create_task(producer.produce(0, 0, version=ADDS))  # noqa: TID251
            await settle()
            assert not waiting.done()
            assert log_of(broker).log_end_offset == 2, "the first transaction's batch and its marker"
        assert await waiting is ErrorCode.NONE
        assert log_of(broker).log_end_offset == 3
        assert partitions_in_transaction(broker) == {T0}
        assert log_of(broker).producer_state.has_ongoing_transaction(producer.id, producer.epoch)


async def test_produce_that_waits_too_long_for_the_previous_transaction_gets_concurrent_transactions() -> None:
    """B05: in its own words, and what it sent is not in the log."""
    settings = {"add_partitions_to_txn_retry_backoff_max_ms": "30"}
    async with transactional_broker(**settings) as (broker, producer):
        both = producer.request((0, producer.batch(0)), (1, producer.batch(0)))
        assert await producer.errors(both, ADDS) == [ErrorCode.NONE] * 2
        async with without_leader(broker, 1):
            await producer.end_by_version_2()
            assert await producer.produce(0, 0, version=ADDS) is ErrorCode.CONCURRENT_TRANSACTIONS
            assert log_of(broker).log_end_offset == 2


async def test_five_produces_in_flight_of_which_the_first_waits_for_the_transaction_before() -> None:
    """B85: over a real connection, none is overtaken, lost or refused."""
    async with transactional_broker(**VERY_PATIENT) as (broker, producer):
        both = producer.request((0, producer.batch(0)), (1, producer.batch(0)))
        assert await producer.errors(both, ADDS) == [ErrorCode.NONE] * 2
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(FrameClient, "127.0.0.1", broker.listeners.bound[0].port)
        async with without_leader(broker, 1):
            await producer.end_by_version_2()
            client.send(*((n, producer.request((0, producer.batch(n))), ADDS) for n in range(5)))
            await settle()
            assert client.frames == []
        assert await client.correlation_ids(5) == [0, 1, 2, 3, 4]
        responses = [parse_response(ProduceResponse, ADDS, memoryview(frame))[1] for frame in client.frames]
        reported = [response.responses[0].partition_responses[0] for response in responses]
        assert [(one.error_code, one.base_offset) for one in reported] == [(0, offset) for offset in range(2, 7)]
        client.transport.close()
        await client.lost


async def test_request_of_a_broker_about_a_busy_id_completes_at_once() -> None:
    """B05: other ids share its response, and markers come over the same connection."""
    async with transactional_broker(oncelog_end_txn_response_ms="30000") as (broker, producer):
        both = producer.request((0, producer.batch(0)), (1, producer.batch(0)))
        assert await producer.errors(both, ADDS) == [ErrorCode.NONE] * 2
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(FrameClient, "127.0.0.1", broker.listeners.bound[0].port)
        async with without_leader(broker, 1):
            ended = asyncio.create_task(producer.end_by_version_2())  # noqa: TID251
            await settle()
            client.send(
                (0, verification_request(producer.id, producer.epoch + 1), 5), (1, marker_of_another_coordinator(), 2)
            )
            assert await client.correlation_ids(2) == [0, 1]
            assert log_of(broker).log_end_offset == 3, "the batch, its marker, and that of somebody else"
            assert not ended.done()
        await ended
        assert not partitions_in_transaction(broker)
        client.transport.close()
        await client.lost


def verification_request(producer_id: int, epoch: int) -> AddPartitionsToTxnRequest:
    """Of a broker on which a producer writes to the first partition."""
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=TXN,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def marker_of_another_coordinator() -> WriteTxnMarkersRequest:
    topics = [WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
    return WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=999_999, producer_epoch=1, topics=topics)])


async def test_stopped_broker_completes_all_waiting_produces() -> None:
    """The wait ends with the broker, without a response."""
    async with transactional_broker(**VERY_PATIENT) as (broker, producer):
        assert await producer.produce(1, 0, version=ADDS) is ErrorCode.NONE
        loop = asyncio.get_running_loop()
        port = broker.listeners.bound[0].port
        clients = [(await loop.create_connection(FrameClient, "127.0.0.1", port))[1] for _ in range(2)]
        partition = broker.replica_manager.partition(("t", 1))
        assert partition is not None
        partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await producer.end_by_version_2()
        for client in clients:
            client.send((0, producer.request((0, producer.batch(0))), ADDS))
        await settle()
    for client in clients:
        await client.lost
        assert client.frames == []


@pytest.mark.parametrize("ended_before", [False, True])
async def test_transaction_begins_with_sequence_zero(ended_before: bool) -> None:
    """Nothing of it can be missing: each has an epoch of its own, so its sequences begin anew."""
    async with transactional_broker() as (broker, producer):
        if ended_before:
            assert await producer.produce(0, 0, version=ADDS) is ErrorCode.NONE
            await producer.end_by_version_2()
        end = log_of(broker).log_end_offset
        assert await producer.produce(0, 1, version=ADDS) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert log_of(broker).log_end_offset == end
        assert await producer.produce(0, 0, version=ADDS) is ErrorCode.NONE
        assert await producer.produce(0, 1, version=ADDS) is ErrorCode.NONE


async def test_batch_of_an_ended_transaction_is_fenced() -> None:
    """B33, B09: the epoch of an ended transaction is old, wherever its markers went; nobody needs to be asked."""
    async with transactional_broker() as (broker, producer):
        assert await producer.produce(0, 0, version=ADDS) is ErrorCode.NONE
        ended = producer.epoch
        await producer.end_by_version_2()
        assert await producer.produce(1, 0, version=ADDS, epoch=ended) is ErrorCode.INVALID_PRODUCER_EPOCH
        async with without_coordinator(broker):
            assert await producer.produce(0, 1, version=ADDS, epoch=ended) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert log_of(broker, 0).last_stable_offset == log_of(broker, 0).log_end_offset
        assert log_of(broker, 1).log_end_offset == 0


async def test_unknown_producer_gets_an_error() -> None:
    async with transactional_broker() as (_, producer):
        producer.id += 1
        assert await producer.produce(0, 0, version=ADDS) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_produce_without_a_coordinator_returns_a_retriable_error() -> None:
    async with transactional_broker() as (broker, producer):
        async with without_coordinator(broker):
            assert await producer.produce(0, 0, version=ADDS) is ErrorCode.NOT_ENOUGH_REPLICAS
        await settle()
        assert await producer.produce(0, 0, version=ADDS) is ErrorCode.NONE


async def test_partition_that_may_not_be_written_to_is_not_added() -> None:
    """Asking changes something here, so it comes after every other reason to refuse."""
    async with transactional_broker() as (broker, producer):
        refused = producer.request((0, producer.batch(0)), topic="__consumer_offsets")
        assert await producer.errors(refused, ADDS) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        unknown = producer.request((0, producer.batch(0)), topic="nowhere")
        assert await producer.errors(unknown, ADDS) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        broker.authorizer = _DeniesTopics({Operation.WRITE})
        assert await producer.produce(0, 0, version=ADDS) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert partitions_in_transaction(broker) == set()


class _DeniesTopics(Denies):
    """On anything else, everything is allowed."""

    def authorize(self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return resource_type is not ResourceType.TOPIC or super().authorize(context, operation, resource_type, name)


# Offsets


def offsets(producer: Producer, *, epoch: int | None = None) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=TXN,
        group_id=GROUP,
        producer_id=producer.id,
        producer_epoch=producer.epoch if epoch is None else epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
            )
        ],
    )


async def commit(producer: Producer, request: TxnOffsetCommitRequest, version: int = 5) -> ErrorCode:
    response = await ask(producer.broker, handle_txn_offset_commit, request, TxnOffsetCommitResponse, version)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def with_group(producer: Producer) -> TopicPartition:
    """See to it that the group has a coordinator; its partition."""
    find = FindCoordinatorRequest(key=GROUP, key_type=0)
    await ask(producer.broker, handle_find_coordinator, find, FindCoordinatorResponse, 2)
    groups = producer.broker.group_coordinator
    while groups.availability(GROUP):
        await settle()
    index = groups.partition_for(GROUP)
    assert index is not None
    return TopicPartition("__consumer_offsets", index)


async def test_committing_offsets_adds_their_group() -> None:
    async with transactional_broker() as (broker, producer):
        partition = await with_group(producer)
        assert await commit(producer, offsets(producer)) is ErrorCode.NONE
        assert partitions_in_transaction(broker) == {partition}
        await producer.end_by_version_2()
        log = broker.replica_manager.partition(partition).log  # type: ignore[union-attr]
        assert log is not None
        assert log.last_stable_offset == log.log_end_offset == 2


async def test_offsets_of_an_ended_transaction_are_fenced() -> None:
    """B33: they would wait for a marker that nobody writes."""
    async with transactional_broker() as (broker, producer):
        partition = await with_group(producer)
        assert await commit(producer, offsets(producer)) is ErrorCode.NONE
        ended = producer.epoch
        await producer.end_by_version_2()
        for version in handle_txn_offset_commit.versions:
            late = offsets(producer, epoch=ended)
            assert await commit(producer, late, version) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert partition not in partitions_in_transaction(broker)


async def test_offsets_wait_for_the_transaction_before_too() -> None:
    """B05."""
    async with transactional_broker(**VERY_PATIENT) as (broker, producer):
        partition = await with_group(producer)
        assert await producer.produce(1, 0, version=ADDS) is ErrorCode.NONE
        async with without_leader(broker, 1):
            await producer.end_by_version_2()
            waiting = asyncio.create_task(commit(producer, offsets(producer)))  # noqa: TID251
            await settle()
            assert not waiting.done()
        assert await waiting is ErrorCode.NONE
        assert partitions_in_transaction(broker) == {partition}
