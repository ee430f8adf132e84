"""Fetch against real logs: what is visible to whom, limits, sessions over the wire format, long polls that wake."""

import asyncio
from random import Random
from typing import Any

import pytest

from oncelog.broker.handlers.fetch import handle_fetch
from oncelog.broker.quotas.client_quotas import ClientQuotas
from oncelog.broker.replication.requested_states import EPOCH_DURING_DELETE
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import AppendOrigin
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    PartitionData,
)
from oncelog.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from oncelog.protocol.records.record_batch import iter_batches, iter_records
from tests.unit.broker.batches import batch, marker
from tests.unit.broker.replica_side import ME, OTHER, OnlyTopics, ReplicaSide, topic_id
from tests.unit.broker.virtual_time import end_of_turn, in_virtual_time

SESSIONLESS = -1
NEW_SESSION = 0
NAMES, IDS = 12, 17


def fetch(
    *requested: tuple[int, int],
    topic: str = "t",
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    read_committed: bool = False,
    session: tuple[int, int] = (0, SESSIONLESS),
    forgotten: tuple[int, ...] = (),
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    id_of_topic: bytes | None = None,
) -> FetchRequest:
    """Each of ``requested`` is (partition, offset)."""
    name_id = topic_id(topic) if id_of_topic is None else id_of_topic
    partitions = [
        FetchPartition(
            partition=index,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
        )
        for index, offset in requested
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=topic, topic_id=name_id, partitions=partitions)] if partitions else [],
        forgotten_topics_data=[ForgottenTopic(topic=topic, topic_id=name_id, partitions=list(forgotten))]
        if forgotten
        else [],
    )


def replies(response: FetchResponse) -> dict[int, PartitionData]:
    return {reply.partition_index: reply for topic in response.responses for reply in topic.partitions}


def values(reply: PartitionData) -> list[bytes | None]:
    """Of the whole batches; control batches left out."""
    data = reply.records
    assert data is not None
    assert not isinstance(data, list)
    return [
        record.value
        for position, header in iter_batches(data)
        if not header.is_control
        for record in iter_records(data, position, header, max_decompressed_bytes=1 << 20)
    ]


def read(broker: ReplicaSide, request: FetchRequest, version: int = NAMES) -> PartitionData:
    """The reply of the one partition of a fetch that need not wait."""
    (reply,) = replies(broker.respond(handle_fetch, request, version)).values()
    return reply


def led(count: int = 1, **config: Any) -> ReplicaSide:
    broker = ReplicaSide(**config)
    broker.lead("t", count)
    return broker


@pytest.mark.parametrize("version", range(4, 18))
@in_virtual_time
async def test_fetch_of_every_version_reads_records(version: int) -> None:
    broker = led()
    broker.append(batch(b"a", b"b"))
    response = broker.respond(handle_fetch, fetch((0, 0)), version)
    (topic,) = response.responses
    (reply,) = topic.partitions
    assert values(reply) == [b"a", b"b"]
    assert (reply.high_watermark, reply.last_stable_offset, reply.log_start_offset) == (2, 2, 0)
    assert (reply.preferred_read_replica, reply.aborted_transactions) == (-1, None)
    assert (topic.topic, response.session_id) == ("t", 0)
    assert version < 13 or topic.topic_id == topic_id("t")


@in_virtual_time
async def test_fetch_inside_a_batch_gets_the_batch() -> None:
    """B79: no record is skipped."""
    broker = led()
    broker.append(batch(b"a", b"b", b"c"))
    broker.append(batch(b"d"))
    assert values(read(broker, fetch((0, 1)))) == [b"a", b"b", b"c", b"d"]
    assert values(read(broker, fetch((0, 3)))) == [b"d"]


@pytest.mark.parametrize("offset", [-1, 4, 1000])
@in_virtual_time
async def test_offset_outside_of_the_log_is_out_of_range(offset: int) -> None:
    broker = led()
    broker.append(batch(b"a", b"b", b"c"))
    reply = read(broker, fetch((0, offset), max_wait_ms=1000))
    assert (reply.error_code, reply.high_watermark, reply.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, b"")


@in_virtual_time
async def test_offset_below_the_log_start_is_out_of_range() -> None:
    broker = led()
    broker.append(batch(b"a", b"b", b"c"))
    broker.leading().delete_records(2)
    assert read(broker, fetch((0, 1))).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    reply = read(broker, fetch((0, 2)))
    assert (reply.error_code, reply.log_start_offset) == (0, 2)


@in_virtual_time
async def test_fetch_of_unreplicated_records_gets_an_empty_response() -> None:
    """B81: between high watermark and log end there is nothing yet, and it is not out of range."""
    broker = ReplicaSide()
    broker.lead(replicas=(ME, OTHER))
    broker.append(batch(b"a", b"b"))
    for offset in (0, 1, 2):
        reply = read(broker, fetch((0, offset)))
        assert (reply.error_code, reply.records, reply.high_watermark) == (0, b"", 0)


def open_transaction(broker: ReplicaSide, producer_id: int, *values: bytes, sequence: int = 0) -> None:
    broker.append(batch(*values, producer_id=producer_id, epoch=0, sequence=sequence, transactional=True))


def end_transaction(broker: ReplicaSide, producer_id: int, *, commit: bool) -> None:
    broker.append(marker(producer_id, commit=commit), origin=AppendOrigin.COORDINATOR)


@in_virtual_time
async def test_read_committed_stops_at_the_first_open_transaction() -> None:
    broker = led()
    broker.append(batch(b"before"))
    open_transaction(broker, 1, b"open")
    broker.append(batch(b"after"))
    reply = read(broker, fetch((0, 0), read_committed=True))
    assert values(reply) == [b"before"]
    assert (reply.high_watermark, reply.last_stable_offset, reply.aborted_transactions) == (3, 1, [])
    assert values(read(broker, fetch((0, 0)))) == [b"before", b"open", b"after"]


@in_virtual_time
async def test_read_committed_names_the_aborted_transactions_of_what_it_returns() -> None:
    """B38, B48"""
    broker = led()
    open_transaction(broker, 1, b"aborted")
    end_transaction(broker, 1, commit=False)
    broker.append(batch(b"plain"))
    open_transaction(broker, 2, b"later")
    end_transaction(broker, 2, commit=False)
    reply = read(broker, fetch((0, 0), read_committed=True))
    assert [(a.producer_id, a.first_offset) for a in reply.aborted_transactions or []] == [(1, 0), (2, 3)]
    reply = read(broker, fetch((0, 2), read_committed=True))
    assert [(a.producer_id, a.first_offset) for a in reply.aborted_transactions or []] == [(2, 3)]


@in_virtual_time
async def test_fetch_response_is_bounded_by_fetch_max_bytes() -> None:
    broker = led(fetch_max_bytes=1024)
    for _ in range(10):
        broker.append(batch(bytes(500)))
    reply = read(broker, fetch((0, 0)))
    assert isinstance(reply.records, bytes | bytearray | memoryview)
    assert len(reply.records) <= 1024


@in_virtual_time
async def test_first_batch_is_sent_whatever_its_size() -> None:
    broker = led(3)
    for index in range(3):
        broker.append(batch(bytes(500)), index=index)
    response = broker.respond(
        handle_fetch, fetch((0, 0), (1, 0), (2, 0), max_bytes=100, partition_max_bytes=100), NAMES
    )
    assert [len(values(reply)) for reply in replies(response).values()] == [1, 0, 0]
    assert [reply.error_code for reply in replies(response).values()] == [0, 0, 0]


@pytest.mark.parametrize("epoch", [SESSIONLESS, NEW_SESSION])
@in_virtual_time
async def test_fetch_with_limit_zero_gets_one_batch(epoch: int) -> None:
    broker = led()
    session = (await new_session(broker, (0, 0)), 1) if epoch == NEW_SESSION else (0, SESSIONLESS)
    broker.append(batch(b"a"))
    broker.append(batch(b"b"))
    assert values(read(broker, fetch((0, 0), max_bytes=0, session=session))) == [b"a"]


@in_virtual_time
async def test_fetch_limits_each_partition_by_its_own_limit() -> None:
    broker = led(2)
    for index in (0, 1):
        for _ in range(5):
            broker.append(batch(bytes(500)), index=index)
    size = len(batch(bytes(500)))
    request = fetch((0, 0), (1, 0), partition_max_bytes=2 * size)
    response = broker.respond(handle_fetch, request, NAMES)
    assert [len(values(reply)) for reply in replies(response).values()] == [2, 2]


@pytest.mark.parametrize(
    ("believed", "expected"),
    [(3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH), (4, ErrorCode.NONE)],
)
@in_virtual_time
async def test_stale_leader_epoch_is_fenced(believed: int, expected: ErrorCode) -> None:
    """B51"""
    broker = ReplicaSide()
    broker.lead(epoch=4)
    assert read(broker, fetch((0, 0), leader_epoch=believed)).error_code == expected


@in_virtual_time
async def test_fetch_from_a_diverged_log_gets_the_diverging_epoch() -> None:
    broker = ReplicaSide()
    broker.lead(epoch=2)
    broker.append(batch(b"a", b"b"))
    broker.lead(epoch=5)
    broker.append(batch(b"c"))
    reply = read(broker, fetch((0, 3), last_fetched_epoch=3, max_wait_ms=1000))
    assert reply.diverging_epoch == EpochEndOffset(epoch=2, end_offset=2)
    assert read(broker, fetch((0, 2), last_fetched_epoch=2)).diverging_epoch is None


@in_virtual_time
async def test_topics_by_id_may_be_unknown_or_inconsistent() -> None:
    broker = led()
    unknown = bytes(15) + b"?"
    assert read(broker, fetch((0, 0), id_of_topic=unknown), IDS).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    broker.tell("t", unknown, [])
    broker.lead("u", reported=False)
    broker.tell("u", unknown, [_state(0)])
    assert read(broker, fetch((0, 0), topic="u", id_of_topic=unknown), IDS).error_code == (
        ErrorCode.INCONSISTENT_TOPIC_ID
    )


def _state(index: int) -> Any:
    from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState

    return LeaderAndIsrPartitionState(partition_index=index, leader=ME, replicas=[ME], isr=[ME])


@in_virtual_time
async def test_unknown_and_foreign_partitions_have_their_own_errors() -> None:
    broker = led()
    broker.append(batch(b"a"))
    broker.lead("t", first=1, leader=OTHER, epoch=3, replicas=(OTHER,))
    response = broker.respond(handle_fetch, fetch((0, 0), (1, 0), (2, 0)), NAMES)
    assert [reply.error_code for reply in replies(response).values()] == [
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@in_virtual_time
async def test_fetch_returns_the_current_leader_from_version_16() -> None:
    """B80"""
    broker = ReplicaSide()
    broker.lead("t", leader=OTHER, epoch=3, replicas=(OTHER,))
    for version, leader in [(15, None), (16, LeaderIdAndEpoch(leader_id=OTHER, leader_epoch=3))]:
        response = broker.respond(handle_fetch, fetch((0, 0)), version)
        (reply,) = replies(response).values()
        assert (reply.error_code, reply.current_leader) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, leader)
        assert [(node.node_id, node.host) for node in response.node_endpoints] == (
            [] if leader is None else [(OTHER, "broker-2")]
        )


@in_virtual_time
async def test_failed_log_has_an_error_that_the_clients_version_knows() -> None:
    broker = led()
    broker.append(batch())
    broker.disk.fail("read", ".log")
    assert read(broker, fetch((0, 0)), 5).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert read(broker, fetch((0, 0)), 6).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@in_virtual_time
async def test_topics_that_the_client_may_not_read_are_refused() -> None:
    broker = led()
    broker.authorizer = OnlyTopics()
    assert read(broker, fetch((0, 0), max_wait_ms=1000)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


# Waiting


async def still_waits(response: "asyncio.Future[FetchResponse]") -> bool:
    await end_of_turn()
    return not response.done()


@in_virtual_time
async def test_fetch_without_records_waits_its_time_and_returns_none() -> None:
    broker = led()
    loop = asyncio.get_running_loop()
    began = loop.time()
    response = await broker.call(handle_fetch, fetch((0, 0), max_wait_ms=700), NAMES)
    assert loop.time() - began == pytest.approx(0.7)
    assert replies(response)[0].records == b""


@pytest.mark.parametrize("epoch", [SESSIONLESS, NEW_SESSION])
@in_virtual_time
async def test_append_wakes_a_waiting_fetch(epoch: int) -> None:
    broker = led(2)
    outcome = broker.call(handle_fetch, fetch((0, 0), (1, 0), max_wait_ms=60_000, session=(0, epoch)), NAMES)
    assert await still_waits(outcome)
    broker.append(batch(b"a"), index=1)
    response = await outcome
    assert asyncio.get_running_loop().time() == 0
    assert {index: values(reply) for index, reply in replies(response).items()} == {0: [], 1: [b"a"]}
    assert replies(response)[1].high_watermark == 1


@in_virtual_time
async def test_appends_of_one_turn_complete_a_fetch_once() -> None:
    broker = led(3)
    response = broker.call(handle_fetch, fetch((0, 0), (1, 0), (2, 0), max_wait_ms=60_000), NAMES)
    await end_of_turn()
    for index in (0, 2, 0):
        broker.append(batch(b"x"), index=index)
    assert {index: len(values(reply)) for index, reply in replies(await response).items()} == {0: 2, 1: 0, 2: 1}


@in_virtual_time
async def test_fetch_waits_for_enough_bytes() -> None:
    broker = led(2)
    size = len(batch(bytes(100)))
    broker.append(batch(bytes(100)))
    request = fetch((0, 0), (1, 0), max_wait_ms=60_000, min_bytes=3 * size)
    response = broker.call(handle_fetch, request, NAMES)
    assert await still_waits(response)
    broker.append(batch(bytes(100)), index=1)
    assert await still_waits(response)
    broker.append(batch(bytes(100)), index=0)
    assert sum(len(values(reply)) for reply in replies(await response).values()) == 3


@in_virtual_time
async def test_fetch_behind_the_last_segment_does_not_wait_for_enough_bytes() -> None:
    broker = ReplicaSide()
    broker.lead(config=LogConfig(segment_bytes=1))
    for _ in range(3):
        broker.append(batch(b"x"))
    for offset in (0, 1):
        request = fetch((0, offset), max_wait_ms=60_000, min_bytes=10_000)
        response = broker.call(handle_fetch, request, NAMES)
        assert isinstance(response, FetchResponse)
        assert len(values(replies(response)[0])) == 1
    last = broker.call(handle_fetch, fetch((0, 2), max_wait_ms=60_000, min_bytes=10_000), NAMES)
    assert await still_waits(last)


@in_virtual_time
async def test_partition_counts_at_most_its_own_limit() -> None:
    broker = led(2)
    size = len(batch(bytes(100)))
    request = fetch((0, 0), (1, 0), max_wait_ms=5000, min_bytes=2 * size, partition_max_bytes=size)
    response = broker.call(handle_fetch, request, NAMES)
    for _ in range(5):
        broker.append(batch(bytes(100)))
    assert await still_waits(response)
    broker.append(batch(bytes(100)), index=1)
    assert {index: len(values(reply)) for index, reply in replies(await response).items()} == {0: 1, 1: 1}
    assert asyncio.get_running_loop().time() == 0


@in_virtual_time
async def test_waiting_read_committed_fetch_counts_bytes_below_the_last_stable_offset() -> None:
    """B39: a parked fetch applies its isolation level and carries the aborted list."""
    broker = led()
    response = broker.call(handle_fetch, fetch((0, 0), max_wait_ms=60_000, read_committed=True), NAMES)
    open_transaction(broker, 1, b"aborted")
    broker.append(batch(b"plain"))
    assert await still_waits(response)
    end_transaction(broker, 1, commit=False)
    reply = replies(await response)[0]
    assert values(reply) == [b"aborted", b"plain"]
    assert [(a.producer_id, a.first_offset) for a in reply.aborted_transactions or []] == [(1, 0)]
    assert (reply.last_stable_offset, reply.high_watermark) == (3, 3)


@in_virtual_time
async def test_transaction_that_ends_counts_all_its_bytes() -> None:
    broker = led()
    request = fetch((0, 0), max_wait_ms=60_000, read_committed=True, min_bytes=3 * len(batch(bytes(100))))
    response = broker.call(handle_fetch, request, NAMES)
    for sequence in range(3):
        open_transaction(broker, 1, bytes(100), sequence=sequence)
    assert await still_waits(response)
    end_transaction(broker, 1, commit=True)
    assert len(values(replies(await response)[0])) == 3


@in_virtual_time
async def test_last_stable_offset_of_two_open_transactions_moves_when_the_earlier_ends() -> None:
    broker = led()
    response = broker.call(handle_fetch, fetch((0, 0), max_wait_ms=60_000, read_committed=True), NAMES)
    open_transaction(broker, 1, b"first")
    open_transaction(broker, 2, b"second")
    end_transaction(broker, 2, commit=True)
    assert await still_waits(response)
    end_transaction(broker, 1, commit=True)
    assert values(replies(await response)[0]) == [b"first", b"second"]


@in_virtual_time
async def test_fetch_waits_for_replication() -> None:
    broker = ReplicaSide()
    broker.lead(replicas=(ME, OTHER))
    response = broker.call(handle_fetch, fetch((0, 0), max_wait_ms=60_000), NAMES)
    broker.append(batch(b"a"))
    assert await still_waits(response)
    broker.follower_fetched(1)
    assert values(replies(await response)[0]) == [b"a"]


@in_virtual_time
async def test_change_of_leader_completes_a_waiting_fetch() -> None:
    broker = ReplicaSide()
    broker.lead(replicas=(ME, OTHER), isr=(ME, OTHER))
    response = broker.call(handle_fetch, fetch((0, 0), max_wait_ms=60_000, leader_epoch=0), 16)
    broker.lead(epoch=1, leader=OTHER, replicas=(ME, OTHER))
    reply = replies(await response)[0]
    assert reply.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert reply.current_leader == LeaderIdAndEpoch(leader_id=OTHER, leader_epoch=1)


@in_virtual_time
async def test_new_epoch_fences_a_waiting_fetch() -> None:
    """B51"""
    broker = led()
    response = broker.call(handle_fetch, fetch((0, 0), max_wait_ms=60_000, leader_epoch=0), NAMES)
    broker.lead(epoch=1)
    assert replies(await response)[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


@in_virtual_time
async def test_deleted_partition_completes_a_waiting_fetch() -> None:
    broker = led()
    response = broker.call(handle_fetch, fetch((0, 0), max_wait_ms=60_000), NAMES)
    _delete(broker)
    assert replies(await response)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def _delete(broker: ReplicaSide) -> None:
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=EPOCH_DURING_DELETE, delete_partition=True)
    topics = [StopReplicaTopicState(topic_name="t", partition_states=[state])]
    broker.replica_control.stop_replica(StopReplicaRequest(controller_epoch=1, topic_states=topics))


@in_virtual_time
async def test_failed_log_completes_a_waiting_fetch() -> None:
    broker = led()
    response = broker.call(handle_fetch, fetch((0, 0), max_wait_ms=60_000), NAMES)
    log = broker.partition().log
    assert log is not None
    log.mark_failed(OSError("gone"))
    assert replies(await response)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


@in_virtual_time
async def test_unknown_topic_does_not_end_the_wait_for_others() -> None:
    broker = led()
    began = asyncio.get_running_loop().time()
    response = await broker.call(handle_fetch, fetch((0, 0), (9, 0), max_wait_ms=500), NAMES)
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.5)
    assert [reply.error_code for reply in replies(response).values()] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@in_virtual_time
async def test_fetch_of_nothing_known_does_not_wait() -> None:
    broker = led()
    assert read(broker, fetch((9, 0), max_wait_ms=500)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_virtual_time
async def test_fetch_of_a_lost_connection_leaves_nothing_behind() -> None:
    broker = led()
    for epoch in (SESSIONLESS, NEW_SESSION):
        response = broker.call(handle_fetch, fetch((0, 0), max_wait_ms=60_000, session=(0, epoch)), NAMES)
        assert len(broker.partition().watchers) == 1
        response.cancel()
        await end_of_turn()
        assert len(broker.partition().watchers) == 0
    assert len(broker.replica_manager.fetch_sessions) == 0


class BrokenQuotas(ClientQuotas):
    def record_fetch(self, context: object, size: int) -> int:
        raise RuntimeError("broken quotas")


@pytest.mark.parametrize("epoch", [SESSIONLESS, NEW_SESSION])
@in_virtual_time
async def test_request_that_fails_unexpectedly_leaves_nothing_behind(epoch: int) -> None:
    broker = led()
    broker.quotas = BrokenQuotas()
    broker.quotas.watches_fetches = True
    with pytest.raises(RuntimeError, match="broken quotas"):
        broker.call(handle_fetch, fetch((0, 0), session=(0, epoch)), NAMES)
    assert len(broker.partition().watchers) == 0
    response = broker.call(handle_fetch, fetch((0, 0), max_wait_ms=60_000, session=(0, epoch)), NAMES)
    broker.append(batch())
    with pytest.raises(RuntimeError, match="broken quotas"):
        await response
    assert len(broker.partition().watchers) == 0


@in_virtual_time
async def test_session_less_fetch_leaves_nothing_behind() -> None:
    broker = led()
    response = broker.call(handle_fetch, fetch((0, 0), max_wait_ms=60_000), NAMES)
    broker.append(batch())
    await response
    assert len(broker.partition().watchers) == 0


# Sessions


async def new_session(broker: ReplicaSide, *requested: tuple[int, int], version: int = NAMES) -> int:
    response = broker.call(handle_fetch, fetch(*requested, session=(0, NEW_SESSION)), version)
    assert response.session_id > 0
    session_id: int = response.session_id
    return session_id


@pytest.mark.parametrize("version", [7, NAMES, IDS])
@in_virtual_time
async def test_incremental_fetch_returns_new_records_only(version: int) -> None:
    broker = led(3)
    broker.append(batch(b"a"))
    response = broker.respond(handle_fetch, fetch((0, 0), (1, 0), (2, 0), session=(0, NEW_SESSION)), version)
    assert sorted(replies(response)) == [0, 1, 2]
    session_id = response.session_id

    def again(epoch: int, *requested: tuple[int, int]) -> dict[int, list[bytes | None]]:
        response = broker.respond(handle_fetch, fetch(*requested, session=(session_id, epoch)), version)
        assert (response.error_code, response.session_id) == (0, session_id)
        return {index: values(reply) for index, reply in replies(response).items()}

    assert again(1) == {0: [b"a"]}
    assert again(2, (0, 1)) == {}
    broker.append(batch(b"b"), index=2)
    broker.append(batch(b"c"), index=0)
    assert again(3) == {0: [b"c"], 2: [b"b"]}
    assert again(4, (0, 2), (2, 1)) == {}


@in_virtual_time
async def test_incremental_fetch_waits_and_wakes() -> None:
    broker = led(100)
    session_id = await new_session(broker, *((index, 0) for index in range(100)))
    response = broker.call(handle_fetch, fetch(max_wait_ms=60_000, session=(session_id, 1)), NAMES)
    assert await still_waits(response)
    broker.append(batch(b"a"), index=42)
    assert {index: values(reply) for index, reply in replies(await response).items()} == {42: [b"a"]}


@in_virtual_time
async def test_incremental_fetch_visits_dirty_partitions_only() -> None:
    """What the design promises: the cost of a response does not grow with the partitions of the session."""
    broker = led(100)
    session_id = await new_session(broker, *((index, 0) for index in range(100)))
    broker.append(batch(b"a"), index=42)
    reads = broker.disk.calls.get("read", 0)
    assert list(replies(broker.respond(handle_fetch, fetch(session=(session_id, 1)), NAMES))) == [42]
    assert broker.disk.calls["read"] - reads == 1
    fetch_session = broker.replica_manager.fetch_sessions
    assert fetch_session.partition_count == 100


@in_virtual_time
async def test_new_high_watermark_is_returned_without_records() -> None:
    broker = ReplicaSide()
    broker.lead(replicas=(ME, OTHER))
    broker.append(batch(b"a"))
    session_id = await new_session(broker, (0, 1))
    broker.follower_fetched(1)
    response = broker.respond(handle_fetch, fetch(session=(session_id, 1)), NAMES)
    assert (replies(response)[0].high_watermark, replies(response)[0].records) == (1, b"")
    assert replies(broker.respond(handle_fetch, fetch(session=(session_id, 2)), NAMES)) == {}


@in_virtual_time
async def test_new_log_start_is_returned() -> None:
    broker = led()
    broker.append(batch(b"a"))
    session_id = await new_session(broker, (0, 1))
    broker.leading().delete_records(1)
    assert replies(broker.respond(handle_fetch, fetch(session=(session_id, 1)), NAMES))[0].log_start_offset == 1


@in_virtual_time
async def test_partitions_left_out_of_a_full_response_come_next() -> None:
    broker = led(3)
    for index in range(3):
        broker.append(batch(bytes(500)), index=index)
    session_id = await new_session(broker, (0, 1), (1, 1), (2, 1))
    seen = []
    for epoch in range(1, 4):
        requested = [(0, 0), (1, 0), (2, 0)] if epoch == 1 else []
        request = fetch(*requested, session=(session_id, epoch), max_bytes=100)
        seen += list(replies(broker.respond(handle_fetch, request, NAMES)))
    assert sorted(seen) == [0, 1, 2]


@in_virtual_time
async def test_session_errors_have_their_own_responses() -> None:
    broker = led()
    session_id = await new_session(broker, (0, 0))
    for session, version, expected in [
        ((session_id + 1, 1), NAMES, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ((session_id, 2), NAMES, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ((session_id, 1), IDS, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ]:
        response = broker.respond(handle_fetch, fetch(session=session), version)
        assert (response.error_code, response.session_id, response.responses) == (expected, 0, [])


@in_virtual_time
async def test_overtaken_fetch_is_an_epoch_error() -> None:
    broker = led()
    session_id = await new_session(broker, (0, 0))
    first = broker.call(handle_fetch, fetch(max_wait_ms=60_000, session=(session_id, 1)), NAMES)
    second = broker.call(handle_fetch, fetch(max_wait_ms=60_000, session=(session_id, 2)), NAMES)
    assert (await first).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    broker.append(batch(b"a"))
    assert values(replies(await second)[0]) == [b"a"]


@in_virtual_time
async def test_full_fetch_ends_the_wait_of_the_session_that_it_closes() -> None:
    broker = led()
    session_id = await new_session(broker, (0, 0))
    waiting = broker.call(handle_fetch, fetch(max_wait_ms=60_000, session=(session_id, 1)), NAMES)
    broker.respond(handle_fetch, fetch((0, 0), session=(session_id, NEW_SESSION)), NAMES)
    assert replies(await waiting) == {}
    assert asyncio.get_running_loop().time() == 0


@in_virtual_time
async def test_fetch_without_room_for_its_session_gets_none() -> None:
    broker = led(max_incremental_fetch_session_cache_slots=1)
    await new_session(broker, (0, 0))
    response = broker.respond(handle_fetch, fetch((0, 0), session=(0, NEW_SESSION)), NAMES)
    assert response.session_id == 0
    assert len(broker.partition().watchers) == 1


@in_virtual_time
async def test_forgotten_partition_wakes_no_fetch() -> None:
    broker = led(2)
    session_id = await new_session(broker, (0, 0), (1, 0))
    request = fetch(max_wait_ms=1000, session=(session_id, 1), forgotten=(0,))
    response = broker.call(handle_fetch, request, NAMES)
    broker.append(batch(b"a"), index=0)
    assert replies(await response) == {}
    assert asyncio.get_running_loop().time() == pytest.approx(1)


@in_virtual_time
async def test_topic_that_appears_is_found_by_its_id() -> None:
    broker = led()
    response = broker.respond(handle_fetch, fetch((0, 0), topic="new", session=(0, NEW_SESSION)), IDS)
    assert replies(response)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    broker.lead("new")
    broker.append(batch(b"a"), "new")
    response = broker.respond(handle_fetch, fetch(session=(response.session_id, 1)), IDS)
    assert values(replies(response)[0]) == [b"a"]


@in_virtual_time
async def test_recreated_topic_is_inconsistent_with_its_old_id() -> None:
    broker = led()
    session_id = await new_session(broker, (0, 0), version=IDS)
    _delete(broker)
    response = broker.respond(handle_fetch, fetch(session=(session_id, 1)), IDS)
    assert replies(response)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.lead(id_of_topic=bytes(15) + b"n")
    response = broker.respond(handle_fetch, fetch(session=(session_id, 2)), IDS)
    assert replies(response)[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID


# Cold data


def cold(broker: ReplicaSide) -> asyncio.Event:
    """From now on data must be read off the loop, which waits for the event."""
    gate = asyncio.Event()

    async def opened() -> None:
        await gate.wait()

    broker.disk.cold = lambda: True
    broker.disk.delay = opened
    return gate


@in_virtual_time
async def test_cold_data_is_read_off_the_loop() -> None:
    broker = led(2)
    open_transaction(broker, 1, b"aborted")
    end_transaction(broker, 1, commit=False)
    broker.append(batch(b"b"), index=1)
    gate = cold(broker)
    outcome = broker.call(handle_fetch, fetch((0, 0), (1, 0), read_committed=True, session=(0, NEW_SESSION)), NAMES)
    assert await still_waits(outcome)
    gate.set()
    response = await outcome
    assert {index: values(reply) for index, reply in replies(response).items()} == {0: [b"aborted"], 1: [b"b"]}
    aborted = replies(response)[0].aborted_transactions
    assert [(a.producer_id, a.first_offset) for a in aborted or []] == [(1, 0)]
    assert response.session_id > 0


@in_virtual_time
async def test_cold_read_keeps_the_bounds_of_the_moment_it_began() -> None:
    """B38: appends during the read do not become visible in it."""
    broker = led()
    broker.append(batch(b"a"))
    gate = cold(broker)
    response = broker.call(handle_fetch, fetch((0, 0), read_committed=True), NAMES)
    await end_of_turn()
    open_transaction(broker, 1, b"aborted")
    end_transaction(broker, 1, commit=False)
    gate.set()
    reply = replies(await response)[0]
    assert values(reply) == [b"a"]
    assert (reply.high_watermark, reply.last_stable_offset, reply.aborted_transactions) == (1, 1, [])


@in_virtual_time
async def test_cold_read_ends_at_the_bound_of_its_isolation_level() -> None:
    """B38: what is read off the loop is bounded by the same last stable offset as everything else in the response."""
    broker = led()
    broker.append(batch(b"decided"))
    open_transaction(broker, 1, b"open")
    cold(broker).set()
    reply = replies(await broker.call(handle_fetch, fetch((0, 0), read_committed=True), NAMES))[0]
    assert values(reply) == [b"decided"]
    assert (reply.high_watermark, reply.last_stable_offset) == (2, 1)


@in_virtual_time
async def test_cold_read_of_what_was_deleted_meanwhile_is_out_of_range() -> None:
    """B48: never records without the index that goes with them."""
    broker = led()
    broker.append(batch(b"a"))
    broker.append(batch(b"b"))
    gate = cold(broker)
    response = broker.call(handle_fetch, fetch((0, 0)), NAMES)
    await end_of_turn()
    broker.leading().delete_records(1)
    gate.set()
    assert replies(await response)[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@in_virtual_time
async def test_cold_read_of_a_lost_partition_is_an_error() -> None:
    broker = ReplicaSide()
    broker.lead(replicas=(ME, OTHER), isr=(ME,))
    broker.append(batch(b"a"))
    gate = cold(broker)
    response = broker.call(handle_fetch, fetch((0, 0)), 10)
    await end_of_turn()
    broker.lead(epoch=1, leader=OTHER, replicas=(ME, OTHER))
    gate.set()
    assert replies(await response)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_woken_fetch_may_find_cold_data() -> None:
    broker = led()
    response = broker.call(handle_fetch, fetch((0, 0), max_wait_ms=60_000), NAMES)
    cold(broker).set()
    broker.append(batch(b"a"))
    assert values(replies(await response)[0]) == [b"a"]


@in_virtual_time
async def test_stop_while_cold_data_is_read_cancels_the_response() -> None:
    broker = led()
    broker.append(batch(b"a"))
    cold(broker)
    response = broker.call(handle_fetch, fetch((0, 0)), NAMES)
    await end_of_turn()
    await broker.supervisor.stop()
    assert response.cancelled()


# A random history


@pytest.mark.parametrize("seed", range(25))
@in_virtual_time
async def test_committed_records_and_no_others_are_read_while_others_are_written(seed: int) -> None:
    """B38, B39: a read_committed consumer that fetches through a session while producers write, commit and abort."""
    rng = Random(seed)
    broker = ReplicaSide()
    broker.lead(config=LogConfig(segment_bytes=rng.choice([500, 5000, 1 << 30])))
    if rng.random() < 0.5:
        broker.disk.cold = lambda: rng.random() < 0.3
    consumer = _Consumer(broker, rng)
    reading = broker.supervisor.spawn(consumer.run(), "consumer")
    expected = await _write_transactions(broker, rng)
    consumer.until = broker.append(batch(b"end")).base_offset
    await reading
    assert consumer.seen == [*expected, b"end"]


async def _write_transactions(broker: ReplicaSide, rng: Random) -> list[bytes]:
    """Three producers with transactions of one to four batches; returns what was committed, in log order."""
    sequences = [0, 0, 0]
    open_values: list[list[tuple[int, bytes]]] = [[], [], []]
    committed: list[tuple[int, bytes]] = []
    for step in range(120):
        producer = rng.randrange(3)
        if open_values[producer] and rng.random() < 0.4:
            commit = rng.random() < 0.5
            end_transaction(broker, producer, commit=commit)
            committed += open_values[producer] if commit else []
            open_values[producer] = []
        else:
            value = b"%d-%d" % (producer, step)
            data = batch(value, producer_id=producer, epoch=0, sequence=sequences[producer], transactional=True)
            sequences[producer] += 1
            open_values[producer].append((broker.append(data).base_offset, value))
        if rng.random() < 0.5:
            await asyncio.sleep(rng.random() / 100)
    for producer in range(3):
        end_transaction(broker, producer, commit=False)
    return [value for _, value in sorted(committed)]


class _Consumer:
    """Filters aborted batches by the list in each response, as clients do."""

    def __init__(self, broker: ReplicaSide, rng: Random) -> None:
        self._broker = broker
        self._rng = rng
        self._offset = 0
        self.seen: list[bytes | None] = []
        self.until: int | None = None

    async def run(self) -> None:
        session, epoch = 0, NEW_SESSION
        while self.until is None or self._offset <= self.until:
            request = fetch(
                (0, self._offset),
                max_wait_ms=50,
                min_bytes=self._rng.choice([1, 1, 300]),
                partition_max_bytes=self._rng.choice([1, 400, 100_000]),
                read_committed=True,
                session=(session, epoch),
            )
            response = self._broker.call(handle_fetch, request, NAMES)
            if isinstance(response, asyncio.Future):
                response = await response
            assert response.error_code == 0
            session, epoch = response.session_id, epoch + 1
            for reply in replies(response).values():
                self._take(reply)

    def _take(self, reply: PartitionData) -> None:
        assert reply.error_code == 0
        assert isinstance(reply.records, bytes | bytearray | memoryview)
        aborted = sorted((a.first_offset, a.producer_id) for a in reply.aborted_transactions or [])
        skipping: set[int] = set()
        for position, header in iter_batches(reply.records):
            while aborted and aborted[0][0] <= header.last_offset:
                skipping.add(aborted.pop(0)[1])
            if header.is_control:
                skipping.discard(header.producer_id)
            elif header.producer_id not in skipping and header.base_offset >= self._offset:
                records = iter_records(reply.records, position, header, max_decompressed_bytes=1 << 20)
                self.seen += [record.value for record in records]
            self._offset = header.next_offset
