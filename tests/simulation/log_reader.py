"""Reading a partition over the wire, with the aborted-range filter that every read_committed client has."""

from dataclasses import dataclass

from protocol.errors import ErrorCode
from protocol.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchTopic
from protocol.records.control_records import parse_end_txn_marker
from protocol.records.record_batch import iter_batches, iter_records
from protocol.topic_partition import TopicPartition
from tests.simulation.wire_client import WireClient

_VERSION = 11
_MAX_BYTES = 1 << 20


@dataclass
class PartitionContent:
    """What a consumer that reads a whole partition sees."""

    values: list[bytes]
    high_watermark: int
    last_stable_offset: int


class AbortedRanges:
    """Follows the fetch answer's aborted list: which producers' data is to be dropped at the current offset."""

    def __init__(self) -> None:
        self._pending: list[AbortedTransaction] = []
        self._aborting: set[int] = set()

    def extend(self, aborted: list[AbortedTransaction]) -> None:
        self._pending = sorted(aborted, key=lambda entry: entry.first_offset)

    def drops(self, producer_id: int, last_offset: int) -> bool:
        while self._pending and self._pending[0].first_offset <= last_offset:
            self._aborting.add(self._pending.pop(0).producer_id)
        return producer_id in self._aborting

    def ended(self, producer_id: int) -> None:
        self._aborting.discard(producer_id)


async def read_partition(client: WireClient, partition: TopicPartition, *, read_committed: bool) -> PartitionContent:
    """Fetch from the beginning to the end of what is visible at this isolation level."""
    content = PartitionContent([], -1, -1)
    offset = 0
    while True:
        wanted = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=_MAX_BYTES)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_MAX_BYTES,
            isolation_level=int(read_committed),
            topics=[FetchTopic(topic=partition.topic, partitions=[wanted])],
        )
        answer = await client.call(request, _VERSION)
        data = answer.responses[0].partitions[0]
        assert data.error_code == ErrorCode.NONE, ErrorCode(data.error_code)
        content.high_watermark, content.last_stable_offset = data.high_watermark, data.last_stable_offset
        if not data.records:
            return content
        ranges = AbortedRanges()
        ranges.extend(data.aborted_transactions or [])
        for position, header in iter_batches(data.records):
            offset = header.next_offset
            if header.is_control:
                marker = parse_end_txn_marker(data.records, position, header)
                if marker is not None and not marker.commit:
                    ranges.ended(header.producer_id)
                continue
            dropped = header.is_transactional and ranges.drops(header.producer_id, header.last_offset)
            if read_committed and dropped:
                continue
            for record in iter_records(data.records, position, header, max_decompressed_bytes=_MAX_BYTES):
                assert record.value is not None
                content.values.append(record.value)
