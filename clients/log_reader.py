"""Reading partitions from given positions, over a cluster's connections: for tools that read a log up to its end.

(A consumer has tasks that fetch ahead, connections of its own, a group. This has positions.)

Each poll sends one fetch to every leader, for all of its partitions, which waits there until records come or its wait
is over. A position is the offset of the next record to fetch; it moves past what is never delivered too: markers,
aborted records, offsets that compaction emptied. So "position = end" means that everything up to the end has been seen.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal
from oncelog.clients.fan_out import call_leaders
from oncelog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from oncelog.protocol.records.aborted_ranges import AbortedRanges
from oncelog.protocol.records.record_batch import Record, iter_batches, iter_records
from oncelog.protocol.topic_partition import TopicPartition

_NEWEST_WITH_TOPIC_NAMES: Final = 12
_CONSUMER: Final = -1
_NO_SESSION_EPOCH: Final = -1
_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_PARTITION_BYTES: Final = 1024 * 1024
_MAX_DECOMPRESSED_BYTES: Final = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """What one poll brought of a partition: the records to deliver, and where to go on once they are."""

    topic_partition: TopicPartition
    records: list[Record]
    next_position: int


class LogReader:
    """The positions of a few partitions, and the fetches that move them on."""

    def __init__(
        self, cluster: Cluster, positions: Mapping[TopicPartition, int], *, read_committed: bool, wait_ms: int = 500
    ) -> None:
        self._cluster = cluster
        self._read_committed = read_committed
        self._wait_ms = wait_ms
        self.positions = dict(positions)
        self.failed: dict[TopicPartition, Refusal] = {}
        """Partitions that cannot be read, and why; they are not fetched any more."""

    async def poll(self) -> list[FetchedPartition]:
        """Fetch once from the present positions and move these past what came."""
        wanted = {tp: offset for tp, offset in self.positions.items() if tp not in self.failed}
        results = await call_leaders(
            self._cluster, wanted, self._request, FetchResponse, _split, at_most=_NEWEST_WITH_TOPIC_NAMES
        )
        self.failed |= results.refusals
        fetched = [self._read(tp, data, wanted[tp]) for tp, data in sorted(results.found.items())]
        self.positions |= {partition.topic_partition: partition.next_position for partition in fetched}
        return fetched

    def _request(self, positions: Mapping[TopicPartition, int]) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        for (name, partition), offset in positions.items():
            wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_MAX_PARTITION_BYTES)
            topics.setdefault(name, FetchTopic(topic=name)).partitions.append(wanted)
        return FetchRequest(
            replica_id=_CONSUMER,
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            isolation_level=1 if self._read_committed else 0,
            session_epoch=_NO_SESSION_EPOCH,
            topics=list(topics.values()),
        )

    def _read(self, topic_partition: TopicPartition, data: PartitionData, position: int) -> FetchedPartition:
        aborted = AbortedRanges(data.aborted_transactions or () if self._read_committed else ())
        assert not isinstance(data.records, list), "a list of buffers is for encoding only"
        records = []
        for batch in _batches(data.records or b"", aborted, position):
            position, batch_records = batch
            records += batch_records
        return FetchedPartition(topic_partition=topic_partition, records=records, next_position=position)


def _batches(
    data: bytes | bytearray | memoryview, aborted: AbortedRanges, position: int
) -> Iterator[tuple[int, list[Record]]]:
    """Yield, for each batch, the position after it and its records from ``position`` on."""
    for start, header in iter_batches(data):
        shows = aborted.shows(data, start, header)
        records = iter_records(data, start, header, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES) if shows else ()
        yield header.next_offset, [record for record in records if record.offset >= position]


def _split(response: FetchResponse) -> Iterator[tuple[TopicPartition, int, PartitionData]]:
    for topic in response.responses:
        for partition in topic.partitions:
            error = partition.error_code or response.error_code
            yield TopicPartition(topic.topic, partition.partition_index), error, partition
