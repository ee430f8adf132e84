"""Responses to fetches, for the tests of what becomes of them."""

from collections.abc import Sequence
from typing import Any

from oncelog.clients.consumer.completed_fetch import CompletedFetch
from oncelog.clients.consumer.consumer_config import ConsumerConfig
from oncelog.clients.consumer.fetch_session import Wanted
from oncelog.clients.consumer.fetched_response import FetchedResponse
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import AbortedTransaction, PartitionData
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.record_batch import NewRecord, build_batch
from oncelog.protocol.schema import ZERO_UUID, Buffer
from oncelog.protocol.topic_partition import TopicPartition
from tests.stored_batch import stored

ORDERS = TopicPartition("orders", 0)
CLICKS = TopicPartition("clicks", 0)
NOW = 1_750_000_000_000


def batch(base_offset: int, count: int = 2, *, epoch: int = 0, codec: Compression = Compression.NONE) -> bytes:
    """A batch whose values are its offsets."""
    records = [NewRecord(NOW, None, str(base_offset + delta).encode()) for delta in range(count)]
    return bytes(stored(build_batch(records, compression=codec), base_offset=base_offset, partition_leader_epoch=epoch))


def completed(
    fetch_offset: int,
    *batches: Buffer,
    partition: TopicPartition = ORDERS,
    current_leader_epoch: int = 3,
    error: ErrorCode = ErrorCode.NONE,
    aborted: Sequence[AbortedTransaction] = (),
    **settings: Any,
) -> CompletedFetch:
    """Return the fetch of one partition; one batch alone is used without a copy."""
    return CompletedFetch(
        ConsumerConfig(bootstrap="localhost:9092", **settings),
        partition,
        Wanted(ZERO_UUID, fetch_offset, current_leader_epoch, max_bytes=1 << 20),
        PartitionData(
            error_code=error,
            records=batches[0] if len(batches) == 1 else b"".join(batches),
            aborted_transactions=list(aborted),
        ),
        FetchedResponse(),
    )
