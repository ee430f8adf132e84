"""Reading a partition over the wire, with the aborted-range filter that every read_committed client has."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import AbortedTransaction, PartitionData
from oncelog.protocol.records.control_records import parse_end_txn_marker
from oncelog.protocol.records.record_batch import BatchHeader, iter_batches, iter_records
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation import requests

_MAX_BYTES = 1 << 20

Call = Callable[[Message, int], Awaitable[Any]]


class PositionedValue(NamedTuple):
    """A record: where it is, and what it says."""

    offset: int
    value: bytes


class SeenBatch(NamedTuple):
    """A batch as it lies in the log; ``commits`` is None for data."""

    header: BatchHeader
    commits: bool | None


@dataclass
class PartitionContent:
    """What a consumer that reads a whole partition sees."""

    records: list[PositionedValue] = field(default_factory=list)
    batches: list[SeenBatch] = field(default_factory=list)
    """Everything that was fetched, aborted or not."""
    high_watermark: int = -1
    last_stable_offset: int = -1

    @property
    def values(self) -> list[bytes]:
        return [record.value for record in self.records]


class AbortedRanges:
    """Follows the fetch response's aborted list: which producers' data is to be dropped at the current offset."""

    def __init__(self, aborted: list[AbortedTransaction]) -> None:
        self._pending = sorted(aborted, key=lambda entry: entry.first_offset)
        self._aborting: set[int] = set()

    def drops(self, header: BatchHeader, commits: bool | None) -> bool:
        """Whether a batch, each one in its turn, is aborted data."""
        while self._pending and self._pending[0].first_offset <= header.last_offset:
            self._aborting.add(self._pending.pop(0).producer_id)
        if commits is False:
            self._aborting.discard(header.producer_id)
        return commits is None and header.is_transactional and header.producer_id in self._aborting


async def read_partition(call: Call, partition: TopicPartition, *, read_committed: bool) -> PartitionContent:
    """Fetch from the beginning to the end of what is visible at this isolation level."""
    content = PartitionContent()
    offset = 0
    while True:
        after = await _read_once(call, partition, offset, read_committed, content)
        if after == offset:
            return content
        offset = after


async def read_from(call: Call, partition: TopicPartition, offset: int) -> list[PositionedValue]:
    """One read_committed fetch from ``offset`` on."""
    content = PartitionContent()
    await _read_once(call, partition, offset, True, content)
    return content.records


async def _read_once(
    call: Call, partition: TopicPartition, offset: int, read_committed: bool, content: PartitionContent
) -> int:
    """Add what one fetch brings, and return the offset after it."""
    request = requests.fetch(partition, offset, read_committed=read_committed, max_bytes=_MAX_BYTES)
    data = (await call(request, requests.FETCH_VERSION)).responses[0].partitions[0]
    assert data.error_code in (ErrorCode.NONE, *requests.RETRIABLE), ErrorCode(data.error_code)
    return take(data, offset, content, read_committed=read_committed)


def take(data: PartitionData, offset: int, content: PartitionContent, *, read_committed: bool) -> int:
    """Add what a fetch at ``offset`` has brought, and return the offset after it."""
    content.high_watermark, content.last_stable_offset = data.high_watermark, data.last_stable_offset
    ranges = AbortedRanges(data.aborted_transactions or [])
    records = data.records or b""
    assert isinstance(records, bytes | memoryview)
    start = offset
    for position, header in iter_batches(records):
        offset = header.next_offset
        marker = parse_end_txn_marker(records, position, header) if header.is_control else None
        batch = SeenBatch(header, None if marker is None else marker.commit)
        content.batches.append(batch)
        dropped = ranges.drops(header, batch.commits)
        if header.is_control or (read_committed and dropped):
            continue
        for record in iter_records(records, position, header, max_decompressed_bytes=_MAX_BYTES):
            assert record.value is not None
            if record.offset >= start:
                content.records.append(PositionedValue(record.offset, record.value))
    return offset
