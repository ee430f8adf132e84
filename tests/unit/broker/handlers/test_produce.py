"""Produce against real logs: acks, errors of each kind, duplicates, what the response says."""

import asyncio
from collections.abc import Iterator

import pytest

from oncelog.broker.dispatch.request import CloseConnection
from oncelog.broker.handlers.produce import error_response, handle_produce
from oncelog.broker.storage.log_config import LogConfig
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.record_batch import NewRecord, build_batch, iter_batches, iter_records
from oncelog.protocol.schema import ZERO_UUID, Buffer
from tests.unit.broker.batches import batch, marker
from tests.unit.broker.replica_side import ME, OTHER, OnlyTopics, ReplicaSide, topic_id
from tests.unit.broker.virtual_time import end_of_turn, in_virtual_time


def produce(
    *batches: tuple[str, int, Buffer | None], acks: int = 1, transactional_id: str | None = None, timeout_ms: int = 1000
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        transactional_id=transactional_id,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=index, records=None if data is None else memoryview(data))],
            )
            for topic, index, data in batches
        ],
    )


def partitions(response: ProduceResponse) -> Iterator[PartitionProduceResponse]:
    return (partition for topic in response.responses for partition in topic.partition_responses)


def only(response: ProduceResponse) -> PartitionProduceResponse:
    (partition,) = partitions(response)
    return partition


def error(response: ProduceResponse) -> ErrorCode:
    return ErrorCode(only(response).error_code)


def stored(broker: ReplicaSide, topic: str = "t", index: int = 0) -> bytes:
    log = broker.partition(topic, index).log
    assert log is not None
    return log.segments.active.file.read_at(1 << 20, 0)


def values(data: Buffer) -> list[bytes | None]:
    return [
        record.value
        for position, header in iter_batches(data)
        for record in iter_records(data, position, header, max_decompressed_bytes=1 << 20)
    ]


@pytest.fixture
def broker() -> ReplicaSide:
    broker = ReplicaSide()
    broker.lead("t", 2)
    return broker


def by_id(request: ProduceRequest, **ids: bytes) -> ProduceRequest:
    """As version 13 has it; topics have the ids that the broker gave them by default."""
    for topic in request.topic_data:
        topic.topic_id = ids.get(topic.name, topic_id(topic.name))
        topic.name = ""
    return request


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(3, 14))
def test_produce_to_a_sole_leader_completes_at_once(broker: ReplicaSide, acks: int, version: int) -> None:
    broker.append(batch(b"before"))
    request = produce(("t", 0, batch(b"a", b"b")), acks=acks)
    response = broker.respond(handle_produce, by_id(request) if version >= 13 else request, version)
    partition = only(response)
    assert (partition.index, partition.error_code, partition.base_offset) == (0, 0, 1)
    assert (partition.log_append_time_ms, partition.log_start_offset) == (-1, 0)
    assert values(stored(broker)) == [b"before", b"a", b"b"]


def test_topics_by_their_ids(broker: ReplicaSide) -> None:
    """Version 13: an unknown id is an error, and the response repeats the ids."""
    request = by_id(produce(("t", 1, batch(b"a")), ("gone", 0, batch(b"b"))))
    response = broker.respond(handle_produce, request, 13)
    reported = [(topic.topic_id, topic.partition_responses[0].error_code) for topic in response.responses]
    assert reported == [(topic_id("t"), ErrorCode.NONE), (topic_id("gone"), ErrorCode.UNKNOWN_TOPIC_ID)]
    assert values(stored(broker, "t", 1)) == [b"a"]
    without_id = by_id(produce(("t", 1, batch(b"a"))), t=ZERO_UUID)
    assert error(broker.respond(handle_produce, without_id, 13)) is ErrorCode.UNKNOWN_TOPIC_ID


def test_id_is_not_that_of_another_topic_with_the_same_name(broker: ReplicaSide) -> None:
    """The cluster knows the new topic already, and this broker still has the log of the old one."""
    broker.leading().log.topic_id = b"another topic..."
    response = broker.respond(handle_produce, by_id(produce(("t", 0, batch(b"a")))), 13)
    assert error(response) is ErrorCode.UNKNOWN_TOPIC_ID
    assert stored(broker) == b""


def test_error_of_a_whole_request_is_returned_by_topic_id(broker: ReplicaSide) -> None:
    response = broker.respond(handle_produce, by_id(produce(("t", 0, batch()), acks=5)), 13)
    (topic,) = response.responses
    assert topic.topic_id == topic_id("t")
    assert error(response) is ErrorCode.INVALID_REQUIRED_ACKS


def test_produce_without_acks_gets_no_response(broker: ReplicaSide) -> None:
    assert broker.call(handle_produce, produce(("t", 0, batch(b"a")), acks=0), 9) is None
    assert values(stored(broker)) == [b"a"]


def test_produce_error_without_acks_closes_the_connection(broker: ReplicaSide) -> None:
    with pytest.raises(CloseConnection, match="t-7 failed: UNKNOWN_TOPIC_OR_PARTITION"):
        broker.call(handle_produce, produce(("t", 7, batch()), acks=0), 9)


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_produce_with_other_acks_is_invalid_and_appends_nothing(broker: ReplicaSide, acks: int) -> None:
    response = broker.respond(handle_produce, produce(("t", 0, batch()), acks=acks), 9)
    assert error(response) is ErrorCode.INVALID_REQUIRED_ACKS
    assert stored(broker) == b""


def test_produce_to_several_partitions_has_an_outcome_for_each(broker: ReplicaSide) -> None:
    request = produce(("t", 0, batch(b"a")), ("t", 9, batch()), ("t", 1, b"nonsense"), ("u", 0, batch()))
    response = broker.respond(handle_produce, request, 9)
    assert [partition.error_code for partition in partitions(response)] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [partition.base_offset for partition in partitions(response)] == [0, -1, -1, -1]
    assert [topic.name for topic in response.responses] == ["t", "u"]


def corrupted(data: bytearray) -> bytearray:
    data[-1] ^= 1
    return data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (corrupted(batch()), ErrorCode.CORRUPT_MESSAGE),
        (batch() + batch(), ErrorCode.INVALID_RECORD),
        (marker(1, commit=True), ErrorCode.INVALID_RECORD),
        (batch(bytes(2000)), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(timestamp=10**15), ErrorCode.INVALID_TIMESTAMP),
        (batch(producer_id=5, epoch=-1, sequence=0), ErrorCode.INVALID_RECORD),
        (batch(producer_id=5, epoch=0, sequence=3), ErrorCode.NONE),
    ],
    ids=["null", "empty", "crc", "two batches", "marker", "large", "future", "no epoch", "first sequence"],
)
def test_bad_batch_of_each_kind_has_kafkas_error(broker: ReplicaSide, data: Buffer | None, expected: ErrorCode) -> None:
    broker.lead("small", config=LogConfig(max_message_bytes=1000))
    response = broker.respond(handle_produce, produce(("small", 0, data), transactional_id="x"), 9)
    assert error(response) is expected


def test_zstd_needs_version_7(broker: ReplicaSide) -> None:
    data = batch(b"a", compression=Compression.ZSTD)
    assert error(broker.respond(handle_produce, produce(("t", 0, data)), 6)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert error(broker.respond(handle_produce, produce(("t", 0, data)), 7)) is ErrorCode.NONE


def test_broken_batch_is_found_when_records_are_walked() -> None:
    """With `oncelog.validate.records` = full, and always on a compacted topic."""
    keyless = batch(b"a", key=None)
    for broker in (ReplicaSide(), ReplicaSide(oncelog_validate_records="full")):
        broker.lead("t")
        broker.lead("compacted", config=LogConfig(cleanup_policy=frozenset({"compact"})))
        assert error(broker.respond(handle_produce, produce(("t", 0, bytearray(keyless))), 9)) is ErrorCode.NONE
        response = broker.respond(handle_produce, produce(("compacted", 0, bytearray(keyless))), 9)
        assert error(response) is ErrorCode.INVALID_RECORD
        assert only(response).error_message


def test_produce_of_null_keys_to_a_compacted_topic_names_the_records(broker: ReplicaSide) -> None:
    """KIP-467: the client fails these records, and tells those of the others that they may be sent again."""
    broker.lead("compacted", config=LogConfig(cleanup_policy=frozenset({"compact"})))
    keys = [b"a", None, b"b", None]
    data = build_batch([NewRecord(broker.now_ms, key, b"v") for key in keys], compression=Compression.LZ4)
    response = only(broker.respond(handle_produce, produce(("compacted", 0, data)), 9))
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert [found.batch_index for found in response.record_errors] == [1, 3]
    assert all("key" in (found.batch_index_error_message or "") for found in response.record_errors)
    assert "2 record errors" in (response.error_message or "")
    assert stored(broker, "compacted") == b""


def test_produce_of_timestamps_out_of_bounds_names_the_records() -> None:
    broker = ReplicaSide(oncelog_validate_records="full")
    broker.lead("recent", config=LogConfig(timestamp_before_max_ms=1000))
    now = broker.now_ms
    data = build_batch([NewRecord(timestamp, b"k", b"v") for timestamp in (now, now - 1001, now - 1000, -1)])
    response = only(broker.respond(handle_produce, produce(("recent", 0, data)), 9))
    assert response.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [found.batch_index for found in response.record_errors] == [1]


def test_record_errors_of_a_large_batch_are_bounded(broker: ReplicaSide) -> None:
    broker.lead("compacted", config=LogConfig(cleanup_policy=frozenset({"compact"})))
    data = build_batch([NewRecord(broker.now_ms, None, b"")] * 5000, compression=Compression.GZIP)
    response = only(broker.respond(handle_produce, produce(("compacted", 0, data)), 9))
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert [found.batch_index for found in response.record_errors] == list(range(1000))
    assert "5000 record errors" in (response.error_message or "")


def test_log_append_time_is_the_brokers(broker: ReplicaSide) -> None:
    broker.lead("timed", config=LogConfig(timestamp_type="LogAppendTime"))
    response = broker.respond(handle_produce, produce(("timed", 0, batch(b"a", b"b", timestamp=5))), 9)
    assert only(response).log_append_time_ms == broker.now_ms
    data = stored(broker, "timed")
    ((_, header),) = iter_batches(data)
    assert header.is_log_append_time
    assert [r.timestamp for r in iter_records(data, 0, header, max_decompressed_bytes=1000)] == [broker.now_ms] * 2


def test_topic_may_want_another_codec(broker: ReplicaSide) -> None:
    broker.lead("packed", config=LogConfig(compression_type="lz4"))
    assert error(broker.respond(handle_produce, produce(("packed", 0, batch(b"a", b"b"))), 9)) is ErrorCode.NONE
    data = stored(broker, "packed")
    ((_, header),) = iter_batches(data)
    assert header.compression is Compression.LZ4
    assert values(data) == [b"a", b"b"]


def test_retried_batch_gets_its_original_offset(broker: ReplicaSide) -> None:
    """B34: five batches in flight, each may be retried, none is appended twice."""
    sent = [batch(b"%d" % n, producer_id=3, epoch=0, sequence=n) for n in range(5)]
    for data in sent:
        broker.respond(handle_produce, produce(("t", 0, bytearray(data))), 9)
    for n, data in enumerate(sent):
        response = broker.respond(handle_produce, produce(("t", 0, bytearray(data))), 9)
        assert (only(response).error_code, only(response).base_offset) == (0, n)
    assert values(stored(broker)) == [b"0", b"1", b"2", b"3", b"4"]


def test_gap_in_the_sequence_is_refused(broker: ReplicaSide) -> None:
    broker.respond(handle_produce, produce(("t", 0, batch(producer_id=3, epoch=0, sequence=0))), 9)
    response = broker.respond(handle_produce, produce(("t", 0, batch(producer_id=3, epoch=0, sequence=2))), 9)
    assert error(response) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_older_producer_epoch_is_fenced(broker: ReplicaSide) -> None:
    broker.respond(handle_produce, produce(("t", 0, batch(producer_id=3, epoch=1, sequence=0))), 9)
    response = broker.respond(handle_produce, produce(("t", 0, batch(producer_id=3, epoch=0, sequence=1))), 9)
    assert error(response) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_produce_to_internal_topics_is_refused(broker: ReplicaSide) -> None:
    broker.lead("__transaction_state")
    for client_id in ("client", "__admin_client"):
        response = broker.call(handle_produce, produce(("__transaction_state", 0, batch())), 9, client_id=client_id)
        assert error(response) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert stored(broker, "__transaction_state") == b""


def test_topic_that_the_client_may_not_write_is_refused(broker: ReplicaSide) -> None:
    broker.lead("u")
    broker.authorizer = OnlyTopics("u")
    response = broker.respond(handle_produce, produce(("t", 0, batch()), ("u", 0, batch())), 9)
    assert [p.error_code for p in partitions(response)] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE]


def transactional(producer_id: int = 3, sequence: int = 0, epoch: int = 0) -> bytearray:
    return batch(producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True)


def test_transactional_batch_needs_a_transactional_id(broker: ReplicaSide) -> None:
    request = produce(("t", 0, batch()), ("t", 1, transactional()))
    response = broker.respond(handle_produce, request, 9)
    assert {p.error_code for p in partitions(response)} == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    assert stored(broker) == b""


def test_transactional_id_must_be_authorized(broker: ReplicaSide) -> None:
    broker.authorizer = OnlyTopics("t", "mine")
    for transactional_id, expected in [
        ("other", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("mine", ErrorCode.NONE),
    ]:
        request = produce(("t", 0, transactional()), transactional_id=transactional_id)
        assert error(broker.respond(handle_produce, request, 9)) is expected


@pytest.mark.parametrize("other", [transactional(4), transactional(3, epoch=1)])
def test_produce_of_two_transactional_producers_is_refused(broker: ReplicaSide, other: bytearray) -> None:
    """B02: its coordinator is asked about one id and epoch, so a batch of another one would enter unasked."""
    request = produce(("t", 0, transactional(3)), ("t", 1, other), transactional_id="x")
    response = broker.respond(handle_produce, request, 9)
    assert {p.error_code for p in partitions(response)} == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert stored(broker) == stored(broker, "t", 1) == b""


def test_too_few_in_sync_replicas_refuse_acks_all_only(broker: ReplicaSide) -> None:
    broker.lead("u", replicas=(ME, OTHER), isr=(ME,), config=LogConfig(min_insync_replicas=2))
    assert error(broker.respond(handle_produce, produce(("u", 0, batch()), acks=-1), 9)) is (
        ErrorCode.NOT_ENOUGH_REPLICAS
    )
    assert error(broker.respond(handle_produce, produce(("u", 0, batch()), acks=1), 9)) is ErrorCode.NONE


@in_virtual_time
async def test_acks_all_waits_for_the_followers() -> None:
    broker = ReplicaSide()
    broker.lead(replicas=(ME, OTHER))
    response = broker.call(handle_produce, produce(("t", 0, batch(b"a")), acks=-1), 9)
    assert isinstance(response, asyncio.Future)
    assert values(stored(broker)) == [b"a"]
    assert not response.done()
    broker.follower_fetched(1)
    assert (only(await response).error_code, only(await response).base_offset) == (0, 0)


@in_virtual_time
async def test_acks_all_waits_for_every_partition() -> None:
    broker = ReplicaSide()
    broker.lead("t", 2, replicas=(ME, OTHER))
    broker.lead("alone")
    request = produce(("t", 0, batch()), ("alone", 0, batch()), ("t", 1, batch()), acks=-1)
    response = broker.call(handle_produce, request, 9)
    for index in (0, 1):
        assert not response.done()
        broker.follower_fetched(1, "t", index)
    assert [p.error_code for p in partitions(await response)] == [0, 0, 0]


@in_virtual_time
async def test_acks_all_times_out() -> None:
    broker = ReplicaSide()
    broker.lead(replicas=(ME, OTHER))
    broker.lead("alone")
    request = produce(("t", 0, batch()), ("alone", 0, batch()), acks=-1, timeout_ms=1500)
    began = asyncio.get_running_loop().time()
    response = await broker.call(handle_produce, request, 9)
    assert [p.error_code for p in partitions(response)] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
    assert asyncio.get_running_loop().time() - began == pytest.approx(1.5)
    broker.follower_fetched(1)
    assert next(partitions(response)).error_code == ErrorCode.REQUEST_TIMED_OUT


@in_virtual_time
async def test_lost_leadership_is_returned_with_the_new_leader() -> None:
    """B80: whoever waits for acks=all learns where the leader is now."""
    broker = ReplicaSide()
    broker.lead(replicas=(ME, OTHER))
    outcome = broker.call(handle_produce, produce(("t", 0, batch()), acks=-1), 10)
    broker.lead(epoch=1, leader=OTHER, replicas=(ME, OTHER))
    response = await outcome
    assert error(response) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only(response).current_leader == LeaderIdAndEpoch(leader_id=OTHER, leader_epoch=1)
    assert response.node_endpoints == [
        NodeEndpoint(node_id=OTHER, host=f"broker-{OTHER}", port=9000 + OTHER, rack=f"rack-{OTHER}")
    ]


def test_produce_returns_the_current_leader_from_version_10(broker: ReplicaSide) -> None:
    """B80"""
    broker.lead("u", leader=OTHER, epoch=4, replicas=(OTHER,))
    for version, leader in [(9, None), (10, LeaderIdAndEpoch(leader_id=OTHER, leader_epoch=4))]:
        response = broker.respond(handle_produce, produce(("u", 0, batch())), version)
        assert error(response) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert only(response).current_leader == leader
        assert [node.node_id for node in response.node_endpoints] == ([] if leader is None else [OTHER])


@in_virtual_time
async def test_produce_of_a_lost_connection_stops_waiting() -> None:
    broker = ReplicaSide()
    broker.lead(replicas=(ME, OTHER))
    response = broker.call(handle_produce, produce(("t", 0, batch()), acks=-1), 9)
    response.cancel()
    await end_of_turn()
    broker.follower_fetched(1)
    assert response.cancelled()


@pytest.mark.parametrize("acks", [1, -1])
@in_virtual_time
async def test_produce_with_flush_each_waits_for_the_sync(acks: int) -> None:
    broker = ReplicaSide()
    gate = asyncio.Event()
    broker.lead(config=LogConfig(flush_interval_messages=1))

    async def opened() -> None:
        await gate.wait()

    broker.disk.delay = opened
    response = broker.call(handle_produce, produce(("t", 0, batch()), acks=acks), 9)
    await end_of_turn()
    assert not response.done()
    gate.set()
    assert only(await response).error_code == ErrorCode.NONE


@in_virtual_time
async def test_failed_sync_is_not_acknowledged() -> None:
    """B41"""
    broker = ReplicaSide()
    broker.lead(config=LogConfig(flush_interval_messages=1))
    broker.disk.fail("sync", ".log")
    response = await broker.call(handle_produce, produce(("t", 0, batch()), acks=1), 9)
    assert error(response) is ErrorCode.KAFKA_STORAGE_ERROR
    assert error(broker.respond(handle_produce, produce(("t", 0, batch())), 9)) is ErrorCode.KAFKA_STORAGE_ERROR


def test_failed_write_is_a_storage_error(broker: ReplicaSide) -> None:
    """B41"""
    broker.disk.fail("append", ".log")
    for _ in range(2):
        response = broker.respond(handle_produce, produce(("t", 0, batch()), acks=-1), 9)
        assert error(response) is ErrorCode.KAFKA_STORAGE_ERROR


def test_unexpected_exception_is_a_storage_error() -> None:
    """B35: a producer is never told UNKNOWN_SERVER_ERROR."""
    request = produce(("t", 0, batch()), ("u", 1, batch()))
    response = error_response(request, 9, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert [p.error_code for p in partitions(response)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert handle_produce.error_response is error_response


def test_unexpected_exception_closes_a_connection_without_acks() -> None:
    """B35"""
    with pytest.raises(CloseConnection):
        error_response(produce(("t", 0, batch()), acks=0), 9, ErrorCode.UNKNOWN_SERVER_ERROR)


def test_batch_that_is_not_ours_to_change_is_copied(broker: ReplicaSide) -> None:
    data = bytes(batch(b"a"))
    broker.append(batch(b"first"))
    assert error(broker.respond(handle_produce, produce(("t", 0, data)), 9)) is ErrorCode.NONE
    assert data == bytes(batch(b"a"))
    assert values(stored(broker)) == [b"first", b"a"]


def test_garbage_that_looks_transactional_is_garbage(broker: ReplicaSide) -> None:
    """B35: what is no batch has its own error, whatever its bits seem to say."""
    garbage = bytearray(b"\xff" * 80)
    response = broker.respond(handle_produce, produce(("t", 0, garbage), transactional_id="x"), 9)
    assert error(response) is ErrorCode.CORRUPT_MESSAGE
