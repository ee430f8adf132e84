"""Answers to fetches, for the tests of what becomes of them."""

from collections.abc import Sequence

from oncelog.clients.consumer.completed_fetch import CompletedFetch
from oncelog.clients.consumer.fetched_response import FetchedResponse
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import AbortedTransaction
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.record_batch import NewRecord, build_batch
from oncelog.protocol.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 0)
CLICKS = TopicPartition("clicks", 0)
NOW = 1_750_000_000_000


def batch(base_offset: int, count: int = 2, *, epoch: int = 0, codec: Compression = Compression.NONE) -> bytes:
    """A batch whose values are its offsets."""
    records = [NewRecord(NOW, None, str(base_offset + delta).encode()) for delta in range(count)]
    return bytes(build_batch(records, base_offset=base_offset, partition_leader_epoch=epoch, compression=codec))


def completed(
    fetch_offset: int,
    *batches: bytes,
    partition: TopicPartition = ORDERS,
    current_leader_epoch: int = 3,
    error: ErrorCode = ErrorCode.NONE,
    aborted: Sequence[AbortedTransaction] = (),
    max_batch_bytes: int = 1 << 20,
) -> CompletedFetch:
    records = b"".join(batches)
    return CompletedFetch(
        partition,
        fetch_offset,
        records,
        aborted,
        FetchedResponse(),
        current_leader_epoch=current_leader_epoch,
        error=error,
        max_batch_bytes=max_batch_bytes,
    )
