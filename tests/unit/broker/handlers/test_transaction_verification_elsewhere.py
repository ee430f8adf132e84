"""The transaction's coordinator is another broker: real requests over a real connection, real handlers at both ends.

Two brokers, each alone in its cluster, and one channel between them. The first coordinates; the second leads the
partitions and believes that the first coordinates every transaction.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from oncelog.broker.dispatch.api_handler import ApiHandler, Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.handlers import all_handlers
from oncelog.broker.handlers.add_offsets_to_txn import handle_add_offsets_to_txn
from oncelog.broker.handlers.add_partitions_to_txn import error_response, handle_add_partitions_to_txn
from oncelog.broker.handlers.find_coordinator import handle_find_coordinator
from oncelog.broker.handlers.metadata import handle_metadata
from oncelog.broker.handlers.txn_offset_commit import handle_txn_offset_commit
from oncelog.broker.handlers.write_txn_markers import handle_write_txn_markers
from oncelog.broker.parts import Broker
from oncelog.broker.peers.cluster_channel import ClusterChannel
from oncelog.broker.peers.local_channel import LocalChannel
from oncelog.broker.transactions.coordinators import TransactionCoordinators
from oncelog.broker.transactions.verification import TransactionVerifier, VerificationSettings
from oncelog.clients.connection import Address
from oncelog.coordinator.ports import BrokerChannel, LeaderAndEpoch, OnResponse
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
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
    WriteTxnMarkersResponse,
)
from oncelog.protocol.schema import ZERO_UUID, Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.handlers.administration import ask, running_broker, settle
from tests.unit.broker.handlers.transactional_producer import (
    TXN,
    Producer,
    log_of,
    partitions_in_transaction,
    transactional_broker,
    without_coordinator,
    without_leader,
)
from tests.unit.broker.network.frame_client import serve

COORDINATOR, LEADER = 2, 1
GROUP = "g"
VERIFIES, ADDS = 11, 12
T0 = TopicPartition("t", 0)


class ElsewhereCoordinated:
    """``TopicMetadata`` in which one broker leads all that matters here."""

    def topic_exists(self, topic: str) -> bool:
        return True

    def partition_count(self, topic: str) -> int | None:
        return 50

    def topic_id(self, topic: str) -> bytes:
        return ZERO_UUID

    def leader(self, partition: TopicPartition) -> LeaderAndEpoch | None:
        return LeaderAndEpoch(COORDINATOR, 0)


class Wire:
    """A ``BrokerChannel`` that counts requests, and keeps answers back while it is told to."""

    def __init__(self, channel: ClusterChannel) -> None:
        self._channel = channel
        self._is_held = False
        self._kept: list[Callable[[], None]] = []
        self.requests = 0
        self.responded = asyncio.Event()

    def send(self, broker_id: int, request: Message, on_response: OnResponse) -> None:
        self.requests += 1

        def deliver(response: Message | None) -> None:
            self.responded.set()
            if self._is_held:
                self._kept.append(lambda: on_response(response))
            else:
                on_response(response)

        self._channel.send(broker_id, request, deliver)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        self._is_held = True
        yield
        self._is_held = False
        for deliver in self._kept:
            deliver()


@dataclass
class Elsewhere:
    """``producer`` writes to ``leader`` and does everything else with ``coordinator``."""

    coordinator: Broker
    leader: Broker
    producer: Producer
    remote: Producer
    wire: Wire

    async def produce(self, partition: int, sequence: int, version: int, *, epoch: int | None = None) -> ErrorCode:
        self.remote.id, self.remote.epoch = self.producer.id, self.producer.epoch
        return await self.remote.produce(partition, sequence, version=version, epoch=epoch)

    async def commit_offsets(self, version: int) -> ErrorCode:
        request = TxnOffsetCommitRequest(
            transactional_id=TXN,
            group_id=GROUP,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
                )
            ],
        )
        response = await ask(self.leader, handle_txn_offset_commit, request, TxnOffsetCommitResponse, version)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    async def add_offsets(self) -> None:
        """As version 1 does before it commits any."""
        request = AddOffsetsToTxnRequest(
            transactional_id=TXN,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            group_id=GROUP,
        )
        response = await ask(self.coordinator, handle_add_offsets_to_txn, request, AddOffsetsToTxnResponse)
        assert response.error_code == ErrorCode.NONE

    async def write_marker(self, partition: TopicPartition, *, epoch: int, version: int) -> None:
        marker = WritableTxnMarker(
            producer_id=self.producer.id,
            producer_epoch=epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
            transaction_version=version,
        )
        request = WriteTxnMarkersRequest(markers=[marker])
        response = await ask(self.leader, handle_write_txn_markers, request, WriteTxnMarkersResponse)
        assert response.markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE


def verifier(leader: Broker, channel: BrokerChannel, **settings: int) -> TransactionVerifier:
    coordinators = TransactionCoordinators(
        leader.transaction_coordinator,
        broker_id=LEADER,
        metadata=ElsewhereCoordinated(),
        channel=channel,
        request_timeout_ms=30_000,
    )
    return TransactionVerifier(leader.replica_manager, coordinators, VerificationSettings(**settings))


@asynccontextmanager
async def elsewhere(handlers: list[ApiHandler] | None = None, **settings: int) -> AsyncIterator[Elsewhere]:  # type: ignore[type-arg]
    """``handlers`` are what the coordinator serves to brokers, if not everything."""
    async with AsyncExitStack() as stack:
        here, producer = await stack.enter_async_context(transactional_broker(broker_id=str(COORDINATOR)))
        leader = await stack.enter_async_context(running_broker(num_partitions="2", broker_id=str(LEADER)))
        topics = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        await ask(leader, handle_metadata, topics, MetadataResponse)
        port = here.listeners.bound[0].port
        if handlers is not None:
            older = dataclasses.replace(here, handlers=tuple(handlers))
            port = (await stack.enter_async_context(serve(handlers, broker=older))).port
        channel = ClusterChannel(
            LEADER,
            local=LocalChannel(LEADER, leader.metadata, leader.supervisor.spawn),
            address_of=lambda broker_id: Address("127.0.0.1", port) if broker_id == COORDINATOR else None,
            spawn=leader.supervisor.spawn,
        )
        stack.callback(channel.close)
        wire = Wire(channel)
        leader.transaction_verifier = verifier(leader, wire, **settings)
        stack.callback(leader.transaction_verifier.stop)
        yield Elsewhere(here, leader, producer, Producer(leader), wire)


async def offsets_partition(broker: Broker) -> TopicPartition:
    """The group's, which the broker coordinates from now on."""
    find = FindCoordinatorRequest(key=GROUP, key_type=0)
    await ask(broker, handle_find_coordinator, find, FindCoordinatorResponse, 2)
    while broker.group_coordinator.availability(GROUP):
        await settle()
    index = broker.group_coordinator.partition_for(GROUP)
    assert index is not None
    return TopicPartition("__consumer_offsets", index)


async def test_partition_added_at_a_remote_coordinator_is_written_to() -> None:
    async with elsewhere() as world:
        await world.producer.add(0)
        assert await world.produce(0, 0, VERIFIES) is ErrorCode.NONE
        assert await world.produce(0, 1, VERIFIES) is ErrorCode.NONE
        assert world.wire.requests == 1, "the second batch finds its transaction open"


@pytest.mark.parametrize(
    ("version", "error"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
async def test_partition_not_added_at_a_remote_coordinator_is_refused(version: int, error: ErrorCode) -> None:
    """B02."""
    async with elsewhere() as world:
        await world.producer.add(0)
        assert await world.produce(1, 0, version) is error
        assert log_of(world.leader, 1).log_end_offset == 0
        metrics = world.leader.transaction_verifier.metrics
        assert (metrics.verification_count, metrics.verification_failures) == (1, 1)


async def test_produce_of_version_2_adds_the_partition_at_the_remote_coordinator() -> None:
    async with elsewhere() as world:
        assert await world.produce(0, 0, ADDS) is ErrorCode.NONE
        assert partitions_in_transaction(world.coordinator) == {T0}


async def test_remote_coordinator_of_an_older_version_adds_the_partition() -> None:
    """KAFKA-20322: brokers negotiate, too."""
    older = handles(ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-4", error_response=error_response)
    async with elsewhere(with_another(older(handle_add_partitions_to_txn.function))) as world:
        assert await world.produce(0, 0, ADDS) is ErrorCode.NONE
        assert partitions_in_transaction(world.coordinator) == {T0}


async def test_unreachable_coordinator_leaves_the_batch_unverified() -> None:
    """B02: it is not let in, and nothing is sent to a broker that would read it as a client's request."""
    requested: list[AddPartitionsToTxnRequest] = []

    @handles(ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-3", error_response=error_response)
    def oldest(broker: Broker, context: RequestContext, request: AddPartitionsToTxnRequest) -> Outcome:
        requested.append(request)
        return AddPartitionsToTxnResponse()

    async with elsewhere(with_another(oldest)) as world:
        await world.producer.add(0)
        assert await world.produce(0, 0, VERIFIES) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert log_of(world.leader).log_end_offset == 0
        assert requested == []


async def test_coordinator_out_of_reach_makes_producers_retry() -> None:
    async with elsewhere() as world:
        await world.producer.add(0)
        await offsets_partition(world.leader)
        world.leader.transaction_verifier = verifier(
            world.leader, LocalChannel(LEADER, world.leader.metadata, world.leader.supervisor.spawn)
        )
        assert await world.produce(0, 0, VERIFIES) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert await world.produce(0, 0, ADDS) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert await world.commit_offsets(4) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await world.commit_offsets(5) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_verification_retries_while_the_coordinator_loads() -> None:
    async with elsewhere() as world:
        await world.producer.add(0)
        async with without_coordinator(world.coordinator):
            waiting = asyncio.create_task(world.produce(0, 0, VERIFIES))  # noqa: TID251
            await world.wire.responded.wait()
            await settle()
            assert not waiting.done()
        assert await waiting is ErrorCode.NONE


async def test_zombie_is_fenced_without_a_round_trip() -> None:
    """B09."""
    async with elsewhere() as world:
        await world.producer.add(0)
        assert await world.produce(0, 0, VERIFIES) is ErrorCode.NONE
        old = world.producer.epoch
        await world.write_marker(T0, epoch=old + 1, version=0)
        requested = world.wire.requests
        assert await world.produce(0, 1, VERIFIES, epoch=old) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await world.produce(0, 1, ADDS, epoch=old) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert world.wire.requests == requested


@pytest.mark.parametrize("version", [VERIFIES, ADDS])
async def test_marker_between_verification_and_append_refuses_the_batch(version: int) -> None:
    """B04: the coordinator said yes, and then its transaction ended.

    B11: who writes like version 2 may end like version 1, in the same epoch.
    """
    async with elsewhere() as world:
        await world.producer.add(0)
        async with world.wire.held():
            waiting = asyncio.create_task(world.produce(0, 0, version))  # noqa: TID251
            await world.wire.responded.wait()
            await world.write_marker(T0, epoch=world.producer.epoch, version=0)
        assert await waiting is ErrorCode.INVALID_TXN_STATE
        log = log_of(world.leader)
        assert log.last_stable_offset == log.log_end_offset == 1, "nothing but the marker"


async def test_marker_that_fences_is_returned_as_producer_fenced() -> None:
    """B08: the producer whose transaction timed out meanwhile is a zombie, and its transaction is not broken."""
    async with elsewhere() as world:
        await world.producer.add(0)
        async with world.wire.held():
            waiting = asyncio.create_task(world.produce(0, 0, VERIFIES))  # noqa: TID251
            await world.wire.responded.wait()
            await world.write_marker(T0, epoch=world.producer.epoch + 1, version=0)
        assert await waiting is ErrorCode.INVALID_PRODUCER_EPOCH
        assert log_of(world.leader).log_end_offset == 1


async def test_marker_of_the_former_transaction_in_version_2_refuses_no_batch() -> None:
    """It may come again while the next transaction begins, with the next transaction's epoch."""
    async with elsewhere() as world:
        async with world.wire.held():
            waiting = asyncio.create_task(world.produce(0, 0, ADDS))  # noqa: TID251
            await world.wire.responded.wait()
            await world.write_marker(T0, epoch=world.producer.epoch, version=2)
        assert await waiting is ErrorCode.NONE


async def test_leadership_lost_during_verification_refuses_the_batch() -> None:
    async with elsewhere() as world:
        await world.producer.add(0)
        async with world.wire.held():
            waiting = asyncio.create_task(world.produce(0, 0, VERIFIES))  # noqa: TID251
            await world.wire.responded.wait()
            async with without_leader(world.leader, 0):
                pass
        assert await waiting is ErrorCode.INVALID_TXN_STATE
        assert log_of(world.leader).log_end_offset == 0
        assert await world.produce(0, 0, VERIFIES) is ErrorCode.NONE, "it is asked about anew"


async def test_batch_behind_one_whose_leadership_was_lost_during_verification_waits_for_it() -> None:
    """B113"""
    async with elsewhere() as world:
        await world.producer.add(0)
        async with AsyncExitStack() as stack:
            async with world.wire.held():
                waiting = asyncio.create_task(world.produce(0, 0, VERIFIES))  # noqa: TID251
                await world.wire.responded.wait()
                await stack.enter_async_context(without_leader(world.leader, 0))
            assert await waiting is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await world.produce(0, 1, VERIFIES) is ErrorCode.KAFKA_STORAGE_ERROR
        assert [await world.produce(0, each, VERIFIES) for each in (0, 1)] == [ErrorCode.NONE, ErrorCode.NONE]


async def test_batch_behind_one_that_was_not_verified_waits_for_it_in_the_next_leadership() -> None:
    """B113"""
    async with elsewhere() as world:
        await world.producer.add(0)
        working = world.leader.transaction_verifier
        world.leader.transaction_verifier = verifier(
            world.leader, LocalChannel(LEADER, world.leader.metadata, world.leader.supervisor.spawn)
        )
        assert await world.produce(0, 0, VERIFIES) is ErrorCode.NOT_ENOUGH_REPLICAS
        world.leader.transaction_verifier = working
        async with without_leader(world.leader, 0):
            pass
        assert await world.produce(0, 1, VERIFIES) is ErrorCode.KAFKA_STORAGE_ERROR
        assert [await world.produce(0, each, VERIFIES) for each in (0, 1)] == [ErrorCode.NONE, ErrorCode.NONE]


async def test_produce_waits_for_the_previous_transaction_of_a_remote_coordinator() -> None:
    """B05: by asking again."""
    async with elsewhere(retry_backoff_max_ms=30_000, retry_backoff_ms=5) as world:
        assert await world.producer.produce(1, 0, version=ADDS) is ErrorCode.NONE
        async with without_leader(world.coordinator, 1):
            await world.producer.end_by_version_2()
            waiting = asyncio.create_task(world.produce(0, 0, ADDS))  # noqa: TID251
            await world.wire.responded.wait()
            await settle()
            assert not waiting.done()
        assert await waiting is ErrorCode.NONE
        assert world.wire.requests > 1
        assert partitions_in_transaction(world.coordinator) == {T0}


async def test_produce_that_waits_too_long_gets_concurrent_transactions() -> None:
    """B05."""
    async with elsewhere(retry_backoff_max_ms=30, retry_backoff_ms=5) as world:
        assert await world.producer.produce(1, 0, version=ADDS) is ErrorCode.NONE
        async with without_leader(world.coordinator, 1):
            await world.producer.end_by_version_2()
            assert await world.produce(0, 0, ADDS) is ErrorCode.CONCURRENT_TRANSACTIONS
            assert log_of(world.leader).log_end_offset == 0


async def test_batch_behind_one_that_waits_is_appended_after_it() -> None:
    """B85: not even over another connection."""
    async with elsewhere() as world:
        await world.producer.add(0)
        async with world.wire.held():
            first = asyncio.create_task(world.produce(0, 0, VERIFIES))  # noqa: TID251
            await world.wire.responded.wait()
            second = asyncio.create_task(world.produce(0, 1, VERIFIES))  # noqa: TID251
            await settle()
        assert {await first, await second} == {ErrorCode.NONE}
        assert log_of(world.leader).log_end_offset == 2


@pytest.mark.parametrize("version", handle_txn_offset_commit.versions)
async def test_offsets_are_verified_or_added_there(version: int) -> None:
    async with elsewhere() as world:
        partition = await offsets_partition(world.leader)
        adds = version >= 5
        expected = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
        await offsets_partition(world.coordinator)  # It must know the topic.
        assert await world.commit_offsets(version) is (ErrorCode.NONE if adds else expected)
        log = world.leader.replica_manager.partition(partition).log  # type: ignore[union-attr]
        assert log is not None
        assert log.log_end_offset == (1 if adds else 0)
        assert partitions_in_transaction(world.coordinator) == ({partition} if adds else set())


async def test_marker_between_verification_and_offsets_refuses_them() -> None:
    """B04: offsets that were appended after it would wait for ever."""
    async with elsewhere() as world:
        partition = await offsets_partition(world.leader)
        await offsets_partition(world.coordinator)
        await world.add_offsets()
        async with world.wire.held():
            waiting = asyncio.create_task(world.commit_offsets(4))  # noqa: TID251
            await world.wire.responded.wait()
            await world.write_marker(partition, epoch=world.producer.epoch, version=0)
        assert await waiting is ErrorCode.INVALID_TXN_STATE
        log = world.leader.replica_manager.partition(partition).log  # type: ignore[union-attr]
        assert log is not None
        assert log.last_stable_offset == log.log_end_offset == 1


def with_another(handler: ApiHandler) -> list[ApiHandler]:  # type: ignore[type-arg]
    """All handlers, with one of them replaced."""
    return [handler if other.api_key == handler.api_key else other for other in all_handlers()]
