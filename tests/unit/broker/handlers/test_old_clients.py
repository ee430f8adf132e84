"""Produce 0-2, Fetch 0-3 and ListOffsets 0-1 against real logs: what old clients get, and what they never see."""

import asyncio
from typing import Any

import pytest

from oncelog.broker.dispatch.old_consumer import OldConsumer, SkippedRange
from oncelog.broker.handlers.fetch import handle_fetch
from oncelog.broker.handlers.list_offsets import handle_list_offsets
from oncelog.broker.handlers.produce import handle_produce
from oncelog.broker.storage.log_config import LogConfig
from oncelog.broker.storage.partition_log import AppendOrigin
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from oncelog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.record_batch import iter_batches, iter_records
from tests.unit.broker.batches import batch, marker
from tests.unit.broker.replica_side import ME, OTHER, OnlyTopics, ReplicaSide, new_connection
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.protocol.records.old_sets import NOW, OldRecord, plain, read_by_kafka_python, wrapped

LAST_OLD_FETCH = 3
UNCOMMITTED = {"oncelog_downconversion_isolation_level": "read_uncommitted"}
PRODUCER = 7


def led(count: int = 1, *, config: LogConfig | None = None, **settings: Any) -> ReplicaSide:
    broker = ReplicaSide(**settings)
    broker.now_ms = NOW
    broker.lead("t", count, config=config)
    return broker


def fetch(*requested: tuple[int, int], max_wait_ms: int = 0, partition_max_bytes: int = 1 << 20) -> FetchRequest:
    """Each of ``requested`` is (partition, offset)."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for index, offset in requested
    ]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic="t", partitions=partitions)])


async def replies(broker: ReplicaSide, request: FetchRequest, version: int = 1) -> dict[int, PartitionData]:
    response = await broker.call(handle_fetch, request, version)
    if isinstance(response, asyncio.Future):
        response = await response
    assert isinstance(response, FetchResponse)
    return {reply.partition_index: reply for topic in response.responses for reply in topic.partitions}


async def read(broker: ReplicaSide, request: FetchRequest, version: int = 1) -> PartitionData:
    (reply,) = (await replies(broker, request, version)).values()
    return reply


def values(reply: PartitionData) -> list[bytes | None]:
    assert reply.error_code == ErrorCode.NONE
    assert isinstance(reply.records, bytes)
    return [value for _, _, _, value in read_by_kafka_python(reply.records)]


def transactional(*data: bytes, sequence: int = 0, epoch: int = 0, producer_id: int = PRODUCER) -> bytearray:
    return batch(*data, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True)


def end_transaction(broker: ReplicaSide, *, commit: bool, producer_id: int = PRODUCER, epoch: int = 0) -> None:
    broker.append(marker(producer_id, epoch, commit=commit), origin=AppendOrigin.COORDINATOR)


# Produce


def produce(entries: bytes, version: int, broker: ReplicaSide, acks: int = 1) -> PartitionProduceResponse:
    data = [PartitionProduceData(index=0, records=memoryview(bytearray(entries)))]
    request = ProduceRequest(acks=acks, topic_data=[TopicProduceData(name="t", partition_data=data)])
    response = broker.respond(handle_produce, request, version)
    (partition,) = response.responses[0].partition_responses
    assert isinstance(partition, PartitionProduceResponse)
    return partition


def stored(broker: ReplicaSide) -> list[tuple[int, int, bytes | None]]:
    log = broker.leading().log
    data = log.segments.active.file.read_at(1 << 20, 0)
    return [
        (record.offset, record.timestamp, record.value)
        for position, header in iter_batches(data)
        for record in iter_records(data, position, header, max_decompressed_bytes=1 << 20)
    ]


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_messages_of_an_old_producer_become_one_batch(version: int, codec: Compression) -> None:
    magic = int(version == 2)
    broker = led()
    broker.append(batch(b"before", timestamp=NOW))
    entries = plain(magic, [OldRecord(NOW, b"k", b"a"), OldRecord(NOW + 1, b"k", b"b")])
    response = produce(wrapped(magic, codec, entries) if codec else entries, version, broker)
    assert (response.error_code, response.base_offset) == (ErrorCode.NONE, 1)
    times = (NOW, NOW + 1) if magic else (-1, -1)
    assert stored(broker) == [(0, NOW, b"before"), (1, times[0], b"a"), (2, times[1], b"b")]
    assert broker.partition().traffic.produce_conversions == 2


def test_old_producer_gets_the_append_time_in_version_2() -> None:
    broker = led(config=LogConfig(timestamp_type="LogAppendTime"))
    response = produce(plain(0, [OldRecord(0, b"k", b"a")]), 1, broker)
    assert (response.error_code, response.log_append_time_ms) == (ErrorCode.NONE, NOW)
    assert stored(broker) == [(0, NOW, b"a")]


def test_message_whose_bytes_look_like_a_transactional_batch_is_none() -> None:
    """Byte 22 of a message is the first of its key, that of a batch has the transactional bit, 0x10."""
    broker = led()
    assert produce(plain(0, [OldRecord(0, b"\x10", bytes(100))]), 0, broker).error_code == ErrorCode.NONE


def test_batches_of_format_2_are_refused_from_an_old_producer() -> None:
    assert produce(batch(b"a"), 2, led()).error_code == ErrorCode.INVALID_RECORD


def test_messages_are_refused_from_a_new_producer() -> None:
    assert produce(plain(1, [OldRecord(NOW, b"k", b"a")]), 3, led()).error_code == ErrorCode.INVALID_RECORD


def test_null_key_on_a_compacted_topic_is_an_invalid_record_for_an_old_producer() -> None:
    broker = led(config=LogConfig(cleanup_policy=frozenset({"compact"})))
    response = produce(plain(0, [OldRecord(0, None, b"a")]), 1, broker)
    assert response.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("version", "error"), [(3, "NOT_LEADER_OR_FOLLOWER"), (4, "KAFKA_STORAGE_ERROR")])
def test_storage_error_is_one_that_an_old_producer_knows(version: int, error: str) -> None:
    broker = led()
    broker.leading().end(ErrorCode.KAFKA_STORAGE_ERROR)
    assert produce(batch(b"a", timestamp=NOW), version, broker).error_code == ErrorCode[error]


# Fetch


@pytest.mark.parametrize("version", range(LAST_OLD_FETCH + 1))
@in_virtual_time
async def test_fetch_of_an_old_consumer_returns_messages(version: int) -> None:
    broker = led()
    broker.append(batch(b"a", b"b", timestamp=NOW))
    reply = await read(broker, fetch((0, 1)), version)
    assert isinstance(reply.records, bytes)
    assert reply.records[16] == (1 if version >= 2 else 0)
    assert list(read_by_kafka_python(reply.records)) == [(1, NOW if version >= 2 else None, b"k", b"b")]
    assert reply.high_watermark == 2
    assert broker.partition().traffic.fetch_conversions == 1


@in_virtual_time
async def test_old_consumer_sees_neither_open_nor_aborted_records() -> None:
    broker = led()
    broker.append(transactional(b"aborted"))
    end_transaction(broker, commit=False)
    broker.append(transactional(b"committed", sequence=1))
    end_transaction(broker, commit=True)
    broker.append(transactional(b"open", sequence=2))
    reply = await read(broker, fetch((0, 0)))
    assert values(reply) == [b"committed"]
    assert reply.high_watermark == 4  # Up to which it may read.


@in_virtual_time
async def test_old_consumer_sees_all_records_if_the_setting_says_so() -> None:
    broker = led(**UNCOMMITTED)
    broker.append(transactional(b"aborted"))
    end_transaction(broker, commit=False)
    broker.append(transactional(b"open", sequence=1))
    reply = await read(broker, fetch((0, 0)))
    assert (values(reply), reply.high_watermark) == ([b"aborted", b"open"], 3)


@pytest.mark.parametrize("settings", [{}, UNCOMMITTED], ids=["committed", "uncommitted"])
@in_virtual_time
async def test_fetch_reads_on_behind_a_range_without_data(settings: dict[str, str]) -> None:
    """More markers than one read returns: in Kafka this consumer is stuck for ever."""
    broker = led(**settings)
    for epoch in range(50):
        end_transaction(broker, commit=True, epoch=epoch)
    broker.append(batch(b"data", timestamp=NOW))
    reply = await read(broker, fetch((0, 0), max_wait_ms=500, partition_max_bytes=200))
    assert values(reply) == [b"data"]


@in_virtual_time
async def test_fetch_waits_behind_a_range_without_data_until_there_is_some() -> None:
    broker = led()
    end_transaction(broker, commit=True)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert values(await read(broker, fetch((0, 0), max_wait_ms=500))) == []
    assert loop.time() - began == pytest.approx(0.5, abs=0.01)
    loop.call_later(0.1, broker.append, batch(b"data", timestamp=NOW))
    began = loop.time()
    assert values(await read(broker, fetch((0, 0), max_wait_ms=500))) == [b"data"]
    assert loop.time() - began == pytest.approx(0.1, abs=0.01)


@in_virtual_time
async def test_range_without_data_ends_although_another_partition_always_has_some() -> None:
    """Each response is full of the busy partition: what was skipped of the other is remembered between requests."""
    broker = led(2)
    for epoch in range(20):
        end_transaction(broker, commit=True, epoch=epoch)
    broker.append(batch(b"behind the markers", timestamp=NOW))
    for _ in range(30):
        broker.append(batch(b"busy", timestamp=NOW), index=1)
        found = await replies(broker, fetch((0, 0), (1, 0), partition_max_bytes=200))
        if values(found[0]):
            return
    pytest.fail("the partition makes no progress")


@in_virtual_time
async def test_partitions_of_an_old_fetch_take_turns() -> None:
    broker = led(3)
    for index in range(3):
        for _ in range(30):
            broker.append(batch(bytes(100_000), timestamp=NOW), index=index)
    seen = set()
    for _ in range(3):
        found = await replies(broker, fetch(*((index, 0) for index in range(3)), partition_max_bytes=4 << 20))
        seen |= {index for index, reply in found.items() if reply.records}
    assert seen == {0, 1, 2}


@in_virtual_time
async def test_large_request_gets_a_bounded_response() -> None:
    broker = led()
    for _ in range(30):
        broker.append(batch(bytes(100_000), timestamp=NOW))
    reply = await read(broker, fetch((0, 0), partition_max_bytes=2**31 - 1), 3)
    assert isinstance(reply.records, bytes)
    assert 500_000 < len(reply.records) < 1_300_000
    await asyncio.sleep(0)
    assert broker.response_memory.held == 0


@pytest.mark.parametrize("version", [1, 3])
@in_virtual_time
async def test_topic_without_down_conversion_is_an_unsupported_version(version: int) -> None:
    broker = led(config=LogConfig(message_downconversion_enable=False))
    broker.append(batch(b"a", timestamp=NOW))
    reply = await read(broker, fetch((0, 0)), version)
    assert (reply.error_code, reply.records) == (ErrorCode.UNSUPPORTED_VERSION, b"")


@in_virtual_time
async def test_zstd_is_an_unsupported_compression_type() -> None:
    broker = led()
    broker.append(batch(b"a", timestamp=NOW, compression=Compression.ZSTD))
    assert (await read(broker, fetch((0, 0)))).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@in_virtual_time
async def test_errors_of_partitions_are_returned_at_once() -> None:
    broker = led()
    broker.lead("t", epoch=3, leader=OTHER, replicas=(ME, OTHER), first=1)
    found = await replies(broker, fetch((0, 99), (1, 0), (7, 0), max_wait_ms=500))
    assert {index: ErrorCode(reply.error_code) for index, reply in found.items()} == {
        0: ErrorCode.OFFSET_OUT_OF_RANGE,
        1: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    broker.authorizer = OnlyTopics()
    assert (await read(broker, fetch((0, 0)))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@in_virtual_time
async def test_old_follower_is_refused() -> None:
    broker = led()
    broker.append(batch(b"a", timestamp=NOW))
    request = fetch((0, 0))
    request.replica_id = OTHER
    assert (await response_of(broker, request)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def response_of(broker: ReplicaSide, request: FetchRequest) -> PartitionData:
    response = broker.call(handle_fetch, request, 1)
    assert isinstance(response, FetchResponse)
    (topic,) = response.responses
    (reply,) = topic.partitions
    return reply


def test_skipped_range_is_forgotten_with_its_leader_and_another_offset() -> None:
    consumer = OldConsumer()
    consumer.skip(("t", 0), SkippedRange(leader_epoch=2, fetch_offset=10, next_offset=50))
    assert consumer.resumed_at(("t", 0), 2, 10) == 50
    assert consumer.resumed_at(("t", 0), 3, 10) == 10
    assert consumer.resumed_at(("t", 0), 2, 11) == 11
    assert consumer.resumed_at(("t", 1), 2, 10) == 10
    for index in range(1, 1500):
        consumer.skip(("t", index), SkippedRange(2, 10, 50))
    assert consumer.resumed_at(("t", 0), 2, 10) == 10
    assert consumer.resumed_at(("t", 1499), 2, 10) == 50


def test_connection_without_old_fetches_remembers_nothing() -> None:
    assert new_connection().old_consumer is None


# ListOffsets


def offsets(broker: ReplicaSide, timestamp: int, count: int = 10) -> list[int]:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=count)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])])
    (found,) = broker.respond(handle_list_offsets, request, 0).topics[0].partitions
    assert found.error_code == ErrorCode.NONE
    return list(found.old_style_offsets)


def test_list_offsets_of_version_0_returns_where_segments_begin() -> None:
    broker = led()
    for timestamp in (NOW - 30, NOW - 20, NOW - 10):
        broker.append(batch(b"a", timestamp=timestamp))
        broker.leading().log.roll()
    assert offsets(broker, -1) == [3, 2, 1, 0]
    assert offsets(broker, -1, 1) == [3]
    assert offsets(broker, -1, -5) == []
    assert offsets(broker, -2) == [0]
    assert offsets(broker, NOW - 20) == [1, 0]
    assert offsets(broker, NOW - 31) == []
    broker.leading().delete_records(2)
    assert offsets(broker, -2) == [2]


@pytest.mark.parametrize(("settings", "end"), [({}, 1), (UNCOMMITTED, 2)], ids=["committed", "uncommitted"])
def test_end_for_an_old_consumer_is_what_it_may_read_up_to(settings: dict[str, str], end: int) -> None:
    broker = led(**settings)
    broker.append(batch(b"a", timestamp=NOW))
    broker.append(transactional(b"open"))
    assert offsets(broker, -1, 1) == [end]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)])]
    )
    assert broker.respond(handle_list_offsets, request, 1).topics[0].partitions[0].offset == end
