"""Fetches on the wire: sessions, reading ahead, other brokers, errors."""

import asyncio

import pytest

from oncelog.clients.consumer import Consumer
from oncelog.clients.consumer.consumer_errors import UnreadableRecords
from oncelog.clients.errors import BrokerRefused
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchRequest, FetchResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from oncelog.protocol.schema import ZERO_UUID, Message, Versions
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.consumer.fetched import ORDERS, batch
from tests.unit.clients.consumer.scripted_log import (
    SESSION,
    TOPIC_ID,
    FailingLeader,
    Leader,
    ScriptedMetadata,
    ends,
    offsets_of,
    reading,
    refused,
    respond,
)
from tests.unit.clients.scripted_broker import Reaction

OTHER = TopicPartition("orders", 1)


async def offsets(consumer: Consumer, count: int, *, seconds: float = 20) -> list[int]:
    found: list[int] = []
    end = asyncio.get_running_loop().time() + seconds
    while len(found) < count and asyncio.get_running_loop().time() < end:
        found += [record.offset for record in await consumer.poll(1.0, count - len(found))]
    return found


@in_virtual_time
async def test_session_requests_contain_only_changes_and_close_at_the_end() -> None:
    leader = Leader(batches=3)
    leader.batches[1] = 1
    async with reading(leader, reported=ScriptedMetadata([1, 1]), partitions=[ORDERS, OTHER]) as consumer:
        assert len(await offsets(consumer, 8)) == 8
        await consumer.poll(0.1)
    first, *following, last = leader.fetches
    assert (first.session_id, first.session_epoch, offsets_of(first)) == (0, 0, {0: 0, 1: 0})
    assert [fetch.session_epoch for fetch in following] == [1, 2, 3]
    assert {fetch.session_id for fetch in following} == {SESSION}
    assert [offsets_of(fetch) for fetch in following] == [{0: 2, 1: 2}, {0: 4}, {0: 6}]
    assert (last.session_id, last.session_epoch, last.topics) == (SESSION, -1, [])
    assert {topic.topic_id for fetch in leader.fetches for topic in fetch.topics} == {TOPIC_ID}
    assert (first.isolation_level, first.replica_id, first.min_bytes, first.max_wait_ms) == (1, -1, 1, 500)


@in_virtual_time
async def test_next_fetch_is_in_flight_while_the_application_works() -> None:
    leader = Leader(batches=50)
    async with reading(leader, reported=ScriptedMetadata([1]), max_buffered_bytes=500) as consumer:
        assert await offsets(consumer, 1) == [0]
        await asyncio.sleep(1)
        ahead = len(leader.fetches)
        assert (ahead, consumer._buffer.size) == (2, 2 * len(batch(0)))
        assert max(fetch.max_bytes for fetch in leader.fetches) == 250
        await asyncio.sleep(5)
        assert len(leader.fetches) == ahead
        assert await offsets(consumer, 99) == list(range(1, 100))


@in_virtual_time
async def test_poll_that_always_finds_records_lets_other_tasks_run() -> None:
    leader = Leader(batches=50, batches_at_once=50)
    async with reading(leader, reported=ScriptedMetadata([1])) as consumer:
        await offsets(consumer, 1)
        await asyncio.sleep(1)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.get_running_loop().create_task(count())
        for _ in range(20):
            assert len(await consumer.poll(5, 1)) == 1
        counting.cancel()
        assert turns >= 20


@in_virtual_time
async def test_paused_partitions_are_not_fetched() -> None:
    leader = Leader(batches=1)
    leader.batches[1] = 2
    async with reading(leader, reported=ScriptedMetadata([1, 1]), partitions=[ORDERS, OTHER]) as consumer:
        consumer.pause([ORDERS])
        assert await offsets(consumer, 4) == [0, 1, 2, 3]
        consumer.pause([OTHER])
        consumer.resume([ORDERS])
        assert {index for fetch in leader.fetches for index in offsets_of(fetch)} == {1}


@in_virtual_time
async def test_fetches_from_each_leader_have_a_session_of_their_own() -> None:
    silent, leader = Leader(1), Leader(2, batches=2)
    silent.script[FetchRequest] = Reaction.SILENCE
    leader.batches = {1: 2}
    async with reading(silent, leader, reported=ScriptedMetadata([1, 2]), partitions=[ORDERS, OTHER]) as consumer:
        assert await offsets(consumer, 4) == [0, 1, 2, 3]
        await consumer.poll(0.1)
        assert offsets_of(leader.fetches[0]) == {1: 0}
        assert len(silent.seen(FetchRequest)) == 1


@in_virtual_time
async def test_fetch_that_waits_delays_no_other_request() -> None:
    leader = Leader(batches=1)
    async with reading(leader, reported=ScriptedMetadata([1])) as consumer:
        await offsets(consumer, 2)
        await consumer.poll(0.1)
        async with asyncio.timeout(0.1):
            assert await consumer.end_offsets([ORDERS]) == {ORDERS: 2}


@in_virtual_time
async def test_brokers_without_topic_ids_get_fetches_by_name() -> None:
    leader = Leader(batches=2)
    leader.versions = {ApiKey.FETCH: Versions(4, 11), ApiKey.METADATA: Versions(0, 9)}
    async with reading(leader, reported=ScriptedMetadata([1])) as consumer:
        assert await offsets(consumer, 4) == [0, 1, 2, 3]
    assert {(topic.topic, topic.topic_id) for fetch in leader.fetches for topic in fetch.topics} == {
        ("orders", ZERO_UUID)
    }


# What goes wrong


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ],
)
def test_lost_session_is_replaced(error: ErrorCode) -> None:
    @in_virtual_time
    async def play() -> None:
        leader = Leader(batches=2)
        async with reading(leader, reported=ScriptedMetadata([1])) as consumer:
            assert await offsets(consumer, 1) == [0]
            leader.batches = {0: 9}
            await consumer.poll(0.1)
            leader.refusals = [FetchResponse(error_code=error)]
            leader.batches = {0: 10}
            leader.connections[-1].transport.close()
            assert len(await offsets(consumer, 17)) == 17
        epochs = [fetch.session_epoch for fetch in leader.fetches]
        assert epochs.count(0) >= 2

    play()


@in_virtual_time
async def test_lost_connection_is_opened_again() -> None:
    leader = Leader(batches=3)
    async with reading(leader, reported=ScriptedMetadata([1])) as consumer:
        leader.refusals = [Reaction.CLOSE, Reaction.CLOSE]
        assert await offsets(consumer, 6) == list(range(6))
        assert [fetch.session_epoch for fetch in leader.fetches[:4]] == [0, 0, 0, 1]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_errors_that_pass_are_followed_by_metadata_and_another_attempt(error: ErrorCode) -> None:
    @in_virtual_time
    async def play() -> None:
        leader, reported = Leader(batches=1), ScriptedMetadata([1])
        async with reading(leader, reported=reported) as consumer:
            leader.refusals = [refused(error), refused(error)]
            requested, began = reported.requested, asyncio.get_running_loop().time()
            assert await offsets(consumer, 2) == [0, 1]
            assert reported.requested > requested
            assert asyncio.get_running_loop().time() - began > 0.05

    play()


@in_virtual_time
async def test_leader_named_in_an_error_is_fetched_from_at_once() -> None:
    """KIP-951: without asking for metadata. The position has no epoch yet, so it is trusted."""
    old, new = Leader(1), Leader(2, batches=1)
    reported = ScriptedMetadata([1])
    async with reading(old, new, reported=reported, metadata_max_age_ms=10_000_000) as consumer:
        moved = refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=5))
        endpoint = NodeEndpoint(node_id=2, host=new.address.host, port=new.address.port)

        def refuse(request: Message) -> FetchResponse:
            assert isinstance(request, FetchRequest)
            response = respond(request, [moved])
            response.node_endpoints = [endpoint]
            return response

        old.script[FetchRequest] = refuse
        assert await offsets(consumer, 2) == [0, 1]
        before = [type(request) for request in new.requests]
        assert before[0] is FetchRequest
        assert new.fetches[0].topics[0].partitions[0].current_leader_epoch == 5


@in_virtual_time
async def test_throttle_time_delays_the_next_fetch() -> None:
    leader = Leader(batches=2)
    async with reading(leader, reported=ScriptedMetadata([1])) as consumer:
        slow = PartitionData(partition_index=0, records=batch(0))

        def throttled(request: Message) -> FetchResponse:
            assert isinstance(request, FetchRequest)
            leader.script[FetchRequest] = leader._fetch
            leader._session = {0: 0}
            response = respond(request, [slow])
            response.throttle_time_ms = 3_000
            return response

        leader.script[FetchRequest] = throttled
        began = asyncio.get_running_loop().time()
        assert await offsets(consumer, 2) == [0, 1]
        assert asyncio.get_running_loop().time() - began < 1
        assert await offsets(consumer, 2) == [2, 3]
        assert asyncio.get_running_loop().time() - began > 3


@in_virtual_time
async def test_errors_that_stay_are_raised() -> None:
    leader = Leader(batches=1)
    async with reading(leader, reported=ScriptedMetadata([1])) as consumer:
        leader.refusals = [refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED), refused(ErrorCode.CORRUPT_MESSAGE)]
        for name in ("TOPIC_AUTHORIZATION_FAILED", "CORRUPT_MESSAGE"):
            with pytest.raises(BrokerRefused, match=f"orders-0 at position 0: {name}"):
                await consumer.poll(5)
        assert await offsets(consumer, 2) == [0, 1]


@in_virtual_time
async def test_batch_larger_than_its_response_raises() -> None:
    leader = Leader(batches=1)
    async with reading(leader, reported=ScriptedMetadata([1])) as consumer:
        leader.refusals = [PartitionData(partition_index=0, records=batch(0)[:-1])]
        with pytest.raises(UnreadableRecords, match="max_partition_fetch_bytes"):
            await consumer.poll(5)


# Replicas


@in_virtual_time
async def test_preferred_replica_is_fetched_from_until_out_of_range() -> None:
    leader, follower = Leader(1, batches=9), Leader(2, batches=2)
    async with reading(leader, follower, reported=ScriptedMetadata([1]), client_rack="here") as consumer:
        leader.refusals = [PartitionData(partition_index=0, preferred_read_replica=2)]
        assert await offsets(consumer, 4) == [0, 1, 2, 3]
        assert [offsets_of(fetch) for fetch in follower.fetches[:2]] == [{0: 0}, {0: 2}]
        assert {fetch.rack_id for fetch in leader.fetches + follower.fetches} == {"here"}
        follower.refusals = [refused(ErrorCode.OFFSET_OUT_OF_RANGE)]
        follower.connections[-1].transport.close()
        assert await offsets(consumer, 4) == [4, 5, 6, 7]


@in_virtual_time
async def test_preferred_replica_that_is_gone_is_replaced_by_the_leader() -> None:
    leader, follower = Leader(1, batches=2), Leader(2)
    async with reading(leader, follower, reported=ScriptedMetadata([1]), client_rack="here") as consumer:
        follower.stop()
        leader.refusals = [PartitionData(partition_index=0, preferred_read_replica=2)]
        assert await offsets(consumer, 4) == [0, 1, 2, 3]


# Epochs


@in_virtual_time
async def test_position_under_a_new_leader_is_validated_before_a_fetch() -> None:
    old, new, reported = Leader(1, batches=2), Leader(2, batches=4), ScriptedMetadata([1])
    async with reading(old, new, reported=reported) as consumer:
        assert await offsets(consumer, 4) == [0, 1, 2, 3]
        responses = [ends(-1, -1, ErrorCode.UNKNOWN_LEADER_EPOCH), ends(0, 8)]
        new.script[OffsetForLeaderEpochRequest] = lambda request: responses.pop(0)
        reported.leaders, reported.epoch = [2], 3
        old.script[FetchRequest] = lambda request: respond(request, [refused(ErrorCode.FENCED_LEADER_EPOCH)])  # type: ignore[arg-type]
        old.connections[-1].transport.close()
        assert await offsets(consumer, 4) == [4, 5, 6, 7]
        first, second = new.seen(OffsetForLeaderEpochRequest)
        assert isinstance(first, OffsetForLeaderEpochRequest)
        (requested,) = first.topics[0].partitions
        assert (requested.leader_epoch, requested.current_leader_epoch, first.replica_id) == (0, 3, -1)
        assert first == second
        kinds = [type(request) for request in new.requests if not isinstance(request, MetadataRequest)]
        assert kinds[:3] == [OffsetForLeaderEpochRequest, OffsetForLeaderEpochRequest, FetchRequest]


@in_virtual_time
async def test_position_at_a_broker_without_epoch_ends_is_trusted() -> None:
    leader, reported = Leader(1, batches=2), ScriptedMetadata([1])
    leader.versions = {ApiKey.OFFSET_FOR_LEADER_EPOCH: Versions(0, 1)}
    async with reading(leader, reported=reported) as consumer:
        assert await offsets(consumer, 4) == [0, 1, 2, 3]
        reported.epoch = 3
        leader.batches = {0: 3}
        leader.refusals = [refused(ErrorCode.FENCED_LEADER_EPOCH)]
        leader.connections[-1].transport.close()
        assert await offsets(consumer, 2) == [4, 5]


# One partition that fails


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_ID]
)
def test_partition_that_fails_does_not_slow_its_broker_down(error: ErrorCode) -> None:
    """The others are fetched at the pace of the network, and the failed one is fetched less and less often."""

    @in_virtual_time
    async def play() -> None:
        leader = FailingLeader(error, batches=1)
        leader.batches[1] = 200
        async with reading(leader, reported=ScriptedMetadata([1, 1]), partitions=[ORDERS, OTHER]) as consumer:
            began = asyncio.get_running_loop().time()
            found = await offsets(consumer, 400)
            assert found == list(range(400))
            assert asyncio.get_running_loop().time() - began < 10
            requested = leader.failed_fetches
            await offsets(consumer, 1, seconds=20)
            assert 15 <= leader.failed_fetches - requested <= 60
            leader.error = None
            assert await offsets(consumer, 2) == [0, 1]

    play()
