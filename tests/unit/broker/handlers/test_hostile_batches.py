"""Batches that lie, and small requests that ask for much work: what is appended, and how long the loop is kept."""

import asyncio
import random
from typing import Any

import pytest

from oncelog.broker.handlers.list_offsets import handle_list_offsets
from oncelog.broker.handlers.produce import handle_produce
from oncelog.broker.storage.log_config import LogConfig
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.records.compression import Compression, compress
from oncelog.protocol.records.record_batch import NewRecord, assemble_batch, build_batch, read_header
from oncelog.protocol.records.varint import encode_varint
from tests.unit.broker.batches import batch
from tests.unit.broker.replica_side import ReplicaSide
from tests.unit.broker.turns import longest_turn
from tests.unit.broker.virtual_time import in_virtual_time

MAX_LINES_OF_TURN = 100_000
"""A line costs some 50 ns, and a slice some milliseconds."""
MANY = 20_000
"""Records or headers: to walk them at once would be ten times the lines of a turn."""

CODECS = [codec for codec in Compression if codec]


def produce(*batches: tuple[str, int, bytes], acks: int = 1, transactional_id: str | None = None) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        transactional_id=transactional_id,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=bytearray(data))])
            for topic, index, data in batches
        ],
    )


def outcomes(response: Any) -> list[tuple[str, int, ErrorCode]]:
    return [
        (topic.name, partition.index, ErrorCode(partition.error_code))
        for topic in response.responses
        for partition in topic.partition_responses
    ]


def sent(broker: ReplicaSide, data: bytes, topic: str = "t") -> ErrorCode:
    ((_, _, error),) = outcomes(broker.respond(handle_produce, produce((topic, 0, data)), 9))
    return error


def end_of(broker: ReplicaSide, topic: str = "t", index: int = 0) -> int:
    log = broker.partition(topic, index).log
    assert log is not None
    return log.log_end_offset


def with_payload(payload: bytes, count: int, codec: Compression = Compression.NONE, timestamp: int = 1000) -> bytearray:
    """A batch under a right CRC whose header counts so many records, whatever the payload is."""
    header = read_header(batch(timestamp=timestamp))
    changed = header._replace(attributes=int(codec), records_count=count, last_offset_delta=count - 1)
    return assemble_batch(changed, compress(codec, payload))


def record(delta: int, *, headers: bytes = b"\0", key: bytes = b"k") -> bytes:
    body = b"\0\0" + encode_varint(delta) + encode_varint(len(key)) + key + b"\0" + headers
    return encode_varint(len(body)) + body


def header_bomb(count: int, codec: Compression = Compression.ZSTD) -> bytearray:
    """One record with many empty headers."""
    return with_payload(record(0, headers=encode_varint(count) + bytes(2 * count)), 1, codec)


def record_bomb(count: int, codec: Compression = Compression.ZSTD) -> bytearray:
    return with_payload(b"".join(record(delta, key=b"") for delta in range(count)), count, codec)


def forged(data: bytearray) -> bytearray:
    """The batch with a max timestamp that none of its records has."""
    return assemble_batch(read_header(data)._replace(max_timestamp=5000), data[61:])


@pytest.fixture
def broker() -> ReplicaSide:
    broker = ReplicaSide()
    broker.lead("t", 3)
    broker.lead("compacted", config=LogConfig(cleanup_policy=frozenset({"compact"})))
    broker.lead("timed", config=LogConfig(timestamp_type="LogAppendTime"))
    broker.lead("packed", config=LogConfig(compression_type="lz4"))
    return broker


# What is appended


@pytest.mark.parametrize("count", [100, 2**31 - 1])
@pytest.mark.parametrize("codec", CODECS)
def test_compressed_batch_that_counts_more_records_than_it_has_is_refused(
    broker: ReplicaSide, codec: Compression, count: int
) -> None:
    lie = with_payload(record(0), count, codec)
    assert len(lie) < 150
    assert sent(broker, lie) is ErrorCode.INVALID_RECORD
    assert end_of(broker) == 0


def _lies() -> list[Any]:
    noise = random.Random(1).randbytes(200)
    return [
        pytest.param(with_payload(noise, 3), id="noise"),
        pytest.param(with_payload(record(0)[:-1], 1), id="cut off"),
        pytest.param(with_payload(encode_varint(9) + record(0)[1:], 1), id="longer than its fields"),
        pytest.param(with_payload(record(0) + record(1), 1), id="more records than counted"),
        pytest.param(with_payload(record(0) + b"\0\0\0", 1), id="bytes after the records"),
        pytest.param(with_payload(record(0) + record(0), 2), id="offsets that do not count up"),
        pytest.param(with_payload(record(0, headers=b"\x05"), 1), id="a negative header count"),
        pytest.param(with_payload(record(0) + b"\0", 1, Compression.LZ4), id="bytes after compressed records"),
        pytest.param(assemble_batch(read_header(with_payload(b"", 1, Compression.LZ4)), noise), id="not compressed"),
    ]


@pytest.mark.parametrize("topic", ["compacted", "timed", "packed"])
@pytest.mark.parametrize("lie", _lies())
def test_topic_that_depends_on_the_records_refuses_records_that_lie(
    broker: ReplicaSide, topic: str, lie: bytes
) -> None:
    assert sent(broker, lie, topic) is ErrorCode.INVALID_RECORD
    assert end_of(broker, topic) == 0


def test_partition_named_twice_is_appended_once_with_the_last_batch(broker: ReplicaSide) -> None:
    request = produce(("t", 0, batch(b"a")), ("t", 1, batch(b"b")), ("t", 0, batch(b"c", b"d")))
    request.topic_data[1].partition_data.append(
        PartitionProduceData(index=1, records=bytearray(batch(b"e", b"f", b"g")))
    )
    response = broker.respond(handle_produce, request, 9)
    assert sorted(outcomes(response)) == [("t", 0, ErrorCode.NONE), ("t", 1, ErrorCode.NONE)]
    assert (end_of(broker), end_of(broker, index=1)) == (2, 3)


def test_partition_named_twice_in_a_transaction_is_appended_once(broker: ReplicaSide) -> None:
    data = batch(b"a", b"b", producer_id=5, epoch=0, sequence=0, transactional=True)
    response = broker.respond(handle_produce, produce(("t", 0, data), ("t", 0, data), transactional_id="x"), 9)
    assert outcomes(response) == [("t", 0, ErrorCode.NONE)]
    assert end_of(broker) == 2


def test_record_with_too_many_headers_is_refused_where_records_are_walked() -> None:
    broker = ReplicaSide(oncelog_record_max_headers=100)
    broker.lead("compacted", config=LogConfig(cleanup_policy=frozenset({"compact"})))
    assert sent(broker, header_bomb(100), "compacted") is ErrorCode.NONE
    assert sent(broker, header_bomb(101), "compacted") is ErrorCode.INVALID_RECORD


def test_batch_with_too_many_headers_for_its_bytes_is_refused_where_records_are_walked() -> None:
    broker = ReplicaSide(oncelog_record_max_headers=100)
    broker.lead("compacted", config=LogConfig(cleanup_policy=frozenset({"compact"})))
    headers = encode_varint(100) + bytes(200)
    for count, expected in ((1, ErrorCode.NONE), (10_000, ErrorCode.INVALID_RECORD)):
        payload = b"".join(record(delta, headers=headers) for delta in range(count))
        data = with_payload(payload, count, Compression.ZSTD)
        assert sent(broker, data, "compacted") is expected


def test_transactional_request_of_many_partitions_is_appended_whole() -> None:
    broker = ReplicaSide()
    broker.lead("t", 200)
    broker.lead("compacted", 3, config=LogConfig(cleanup_policy=frozenset({"compact"})))

    def data(count: int) -> bytearray:
        return build_batch(
            [NewRecord(1000, b"k", b"v")] * count,
            producer_id=5,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )

    named = [("t", index, data(2)) for index in range(200)] + [("compacted", index, data(3000)) for index in range(3)]
    response = broker.respond(handle_produce, produce(*named, transactional_id="x"), 9)
    assert outcomes(response) == [(topic, index, ErrorCode.NONE) for topic, index, _ in named]
    assert {end_of(broker, "t", index) for index in range(200)} == {2}
    assert {end_of(broker, "compacted", index) for index in range(3)} == {3000}


# How long the loop is kept


@pytest.mark.parametrize("topic", ["compacted", "timed", "packed"])
@pytest.mark.parametrize("codec", Compression)
@in_virtual_time
async def test_produce_of_a_batch_of_many_records_keeps_no_turn_of_the_loop(topic: str, codec: Compression) -> None:
    broker = ReplicaSide()
    config = {"compacted": {"cleanup_policy": frozenset({"compact"})}, "timed": {"timestamp_type": "LogAppendTime"}}
    broker.lead(topic, config=LogConfig(**config.get(topic, {"compression_type": "gzip"})))
    request = produce((topic, 0, record_bomb(MANY, codec)))
    response, lines = await longest_turn(lambda: broker.call(handle_produce, request, 9))
    assert outcomes(response) == [(topic, 0, ErrorCode.NONE)]
    assert lines < MAX_LINES_OF_TURN
    assert end_of(broker, topic) == MANY


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.SNAPPY, Compression.ZSTD])
@in_virtual_time
async def test_produce_of_many_headers_keeps_no_turn_of_the_loop(codec: Compression) -> None:
    broker = ReplicaSide(oncelog_record_max_headers=2**31 - 1)
    broker.lead("compacted", config=LogConfig(cleanup_policy=frozenset({"compact"})))
    headers = encode_varint(1000) + bytes(2000)
    payload = b"".join(record(delta, headers=headers) for delta in range(40))
    request = produce(("compacted", 0, with_payload(payload, 40, codec)))
    response, lines = await longest_turn(lambda: broker.call(handle_produce, request, 9))
    assert outcomes(response) == [("compacted", 0, ErrorCode.NONE)]
    assert lines < MAX_LINES_OF_TURN


@in_virtual_time
async def test_produce_to_many_partitions_keeps_no_turn_of_the_loop() -> None:
    broker = ReplicaSide()
    broker.lead("t", 1500)
    request = produce(*[("t", index, batch(b"v")) for index in range(3000)])
    response, lines = await longest_turn(lambda: broker.call(handle_produce, request, 9))
    errors = [error for _, _, error in outcomes(response)]
    assert errors == [ErrorCode.NONE] * 1500 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1500
    assert lines < MAX_LINES_OF_TURN


def requested(timestamp: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])],
    )


@pytest.mark.parametrize("timestamp", [2000, -3])
@pytest.mark.parametrize("codec", Compression)
@in_virtual_time
async def test_search_by_time_in_a_batch_that_lies_about_its_time_keeps_no_turn_of_the_loop(
    codec: Compression, timestamp: int
) -> None:
    broker = ReplicaSide()
    broker.lead("t")
    broker.append(forged(record_bomb(MANY, codec)))
    response, lines = await longest_turn(lambda: broker.call(handle_list_offsets, requested(timestamp), 7))
    assert response.topics[0].partitions[0].offset == -1
    assert lines < MAX_LINES_OF_TURN


@in_virtual_time
async def test_search_by_time_steps_over_headers() -> None:
    broker = ReplicaSide()
    broker.lead("t")
    broker.append(header_bomb(300_000))
    broker.append(batch(timestamp=2000))
    response, lines = await longest_turn(lambda: broker.call(handle_list_offsets, requested(1500), 7))
    assert response.topics[0].partitions[0].offset == 1
    assert lines < 5_000


@in_virtual_time
async def test_search_by_time_over_many_batches_keeps_no_turn_of_the_loop() -> None:
    broker = ReplicaSide()
    broker.lead("t")
    for _ in range(3000):
        broker.append(forged(batch(b"v")))
    response, lines = await longest_turn(lambda: broker.call(handle_list_offsets, requested(2000), 7))
    assert response.topics[0].partitions[0].offset == -1
    assert lines < MAX_LINES_OF_TURN


@in_virtual_time
async def test_search_by_time_begins_again_when_the_log_loses_records_meanwhile() -> None:
    broker = ReplicaSide()
    broker.lead("t")
    broker.append(forged(record_bomb(MANY)))
    broker.append(batch(timestamp=2000))
    searching = asyncio.get_running_loop().create_task(broker.call(handle_list_offsets, requested(1500), 7))
    await asyncio.sleep(0)
    log = broker.partition().log
    assert log is not None
    log.truncate_fully_and_start_at(7)
    response = await searching
    assert response.topics[0].partitions[0].offset == -1
    assert not log.failed


@in_virtual_time
async def test_produce_whose_leadership_is_lost_during_the_walk_is_refused() -> None:
    broker = ReplicaSide()
    broker.lead("t", config=LogConfig(timestamp_type="LogAppendTime"))
    walking = asyncio.get_running_loop().create_task(
        broker.call(handle_produce, produce(("t", 0, record_bomb(MANY))), 9)
    )
    await asyncio.sleep(0)
    broker.lead("t", epoch=1, leader=2, replicas=(1, 2))
    assert outcomes(await walking) == [("t", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert end_of(broker) == 0


@in_virtual_time
async def test_work_of_a_lost_connection_ends() -> None:
    broker = ReplicaSide()
    broker.lead("t", config=LogConfig(timestamp_type="LogAppendTime"))
    walking = asyncio.get_running_loop().create_task(
        broker.call(handle_produce, produce(("t", 0, record_bomb(MANY))), 9)
    )
    await asyncio.sleep(0)
    broker.connection.is_open = False
    with pytest.raises(Exception, match="client has gone"):
        await walking
    assert end_of(broker) == 0
