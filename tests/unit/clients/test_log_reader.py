"""Reading partitions from positions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal
from oncelog.clients.log_reader import LogReader
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.control_records import build_end_txn_marker
from oncelog.protocol.records.record_batch import NewRecord, build_batch
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.stored_batch import stored
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import ScriptedBroker, metadata, requested_only

ORDERS = TopicPartition("orders", 0)


class Log:
    """A partition of batches with two records each; a fetch returns the batch that has its offset."""

    def __init__(self, *batches: bytes | bytearray, aborted: list[AbortedTransaction] | None = None) -> None:
        self.batches = batches
        self.aborted = aborted
        self.isolation_levels: list[int] = []

    def __call__(self, request: Message) -> FetchResponse:
        assert isinstance(request, FetchRequest)
        self.isolation_levels.append(request.isolation_level)
        offset = request.topics[0].partitions[0].fetch_offset
        return respond(records=b"".join(self.batches[offset // 2 :]), aborted_transactions=self.aborted)


def respond(**data: object) -> FetchResponse:
    partition = PartitionData(partition_index=0, **data)  # type: ignore[arg-type]
    return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=[partition])])


def pair(base_offset: int, compression: Compression = Compression.NONE, producer_id: int = -1) -> bytearray:
    records = [NewRecord(0, None, str(base_offset + delta).encode()) for delta in range(2)]
    is_transactional = producer_id >= 0
    return stored(
        build_batch(
            records,
            compression=compression,
            producer_id=producer_id,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=0 if is_transactional else -1,
            is_transactional=is_transactional,
        ),
        base_offset=base_offset,
    )


@asynccontextmanager
async def reading(log: object, position: int, *, read_committed: bool = True) -> AsyncIterator[LogReader]:
    broker = ScriptedBroker({FetchRequest: log})  # type: ignore[dict-item]
    address = await broker.start()
    broker.script[MetadataRequest] = requested_only(metadata({1: address}, {"orders": [1]}))
    async with Cluster([address], rng=Random(1), operation_seconds=5) as cluster:
        yield LogReader(cluster, {ORDERS: position}, read_committed=read_committed)
    broker.stop()


async def values(reader: LogReader) -> list[int]:
    return [int(record.value or b"") for fetched in await reader.poll() for record in fetched.records]


@in_virtual_time
async def test_records_come_once_and_the_position_follows() -> None:
    async with reading(Log(pair(0), pair(2, Compression.ZSTD)), 0) as reader:
        assert await values(reader) == [0, 1, 2, 3]
        assert reader.positions == {ORDERS: 4}
        assert await values(reader) == []
        assert reader.positions == {ORDERS: 4}


@in_virtual_time
async def test_position_inside_a_batch_leaves_out_earlier_records() -> None:
    async with reading(Log(pair(0), pair(2)), 1) as reader:
        assert await values(reader) == [1, 2, 3]


@in_virtual_time
async def test_aborted_records_and_markers_are_passed_over() -> None:
    marker = stored(
        build_end_txn_marker(producer_id=7, producer_epoch=0, commit=False, coordinator_epoch=0, timestamp=0),
        base_offset=2,
    )
    aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    log = Log(pair(0, producer_id=7), marker, aborted=aborted)
    async with reading(log, 0) as reader:
        assert await values(reader) == []
        assert reader.positions == {ORDERS: 3}
    async with reading(log, 0, read_committed=False) as reader:
        assert await values(reader) == [0, 1]
    assert log.isolation_levels == [1, 0]


@in_virtual_time
async def test_incomplete_batch_is_fetched_again() -> None:
    whole = pair(0) + pair(2)
    async with reading(lambda request: respond(records=bytes(whole[:-1])), 0) as reader:
        assert await values(reader) == [0, 1]
        assert reader.positions == {ORDERS: 2}


@in_virtual_time
async def test_partition_that_cannot_be_read_is_left_out() -> None:
    async with reading(lambda request: respond(error_code=ErrorCode.OFFSET_OUT_OF_RANGE), 99) as reader:
        assert await values(reader) == []
        assert reader.failed == {ORDERS: Refusal(error=ErrorCode.OFFSET_OUT_OF_RANGE)}
        assert reader.positions == {ORDERS: 99}
