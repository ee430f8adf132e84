"""Reading the state topic: what is committed of one sink, whatever other sinks of the same partition are doing.

A ``read_committed`` fetch ends where the partition's oldest open transaction begins, and that may be another sink's,
whose driver is stuck. The sink's own driver has taken over when it reads, so nothing of its own is open, and every
transaction that has ended has its marker in the log. So what lies beyond is read uncommitted, and judged by the markers
(``judge_by_markers``). Brokers never compact beyond that point, so none of them is missing there.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from clients.admin.offsets import LATEST, list_offsets
from clients.cluster import Cluster
from clients.consumer.aborted_ranges import AbortedRanges
from clients.errors import error_code
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.records.control_records import parse_end_txn_marker
from protocol.records.record_batch import iter_batches, iter_records
from protocol.schema import Buffer
from protocol.topic_partition import TopicPartition
from spark_connector.sink.sink_errors import SinkUnavailable

_NEWEST_WITH_TOPIC_NAMES: Final = 12
_CONSUMER: Final = -1
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_WAIT_MS: Final = 100
"""For what is in the leader's log and not yet in those of its followers."""
_MAX_BYTES: Final = 8 * 1024 * 1024
_MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024


class Committed(NamedTuple):
    """The newest committed value of a key up to before ``position``; None if there is none."""

    position: int = 0
    value: bytes | None = None


NOTHING_READ: Final = Committed()


class StateTopicReader:
    """Reads one key of one partition, each time from where it has come to."""

    def __init__(self, cluster: Cluster, home: TopicPartition, key: bytes) -> None:
        self._cluster = cluster
        self._home = home
        self._key = key
        self._read = NOTHING_READ

    async def newest(self) -> bytes | None:
        """The newest committed value, of all that was in the log when this was called. Raises ``SinkUnavailable``."""
        end = await self._end()
        stuck = False
        while self._read.position < end and not stuck:
            data = await self._fetch(self._read.position, isolation_level=_READ_COMMITTED)
            before = self._read.position
            self._read = read_committed(data, self._read, self._key)
            stuck = self._read.position == before
        position, value = self._read
        beyond: list[tuple[int, bytes]] = []
        while position < end:
            records = _records(await self._fetch(position, isolation_level=_READ_UNCOMMITTED))
            beyond.append((position, records))
            position = _position_after(records, position)
        return judge_by_markers(beyond, self._key, value)

    async def _end(self) -> int:
        answers = await list_offsets(self._cluster, {self._home: LATEST})
        if self._home in answers.failed:
            raise SinkUnavailable(f"the end of {self._home} is not known: {answers.failed[self._home].name}")
        return answers.found[self._home].offset or 0

    async def _fetch(self, position: int, *, isolation_level: int) -> PartitionData:
        def build(positions: Mapping[TopicPartition, int]) -> FetchRequest:
            wanted = FetchPartition(
                partition=self._home.partition, fetch_offset=positions[self._home], partition_max_bytes=_MAX_BYTES
            )
            return FetchRequest(
                replica_id=_CONSUMER,
                max_wait_ms=_WAIT_MS if isolation_level == _READ_UNCOMMITTED else 0,
                min_bytes=1,
                max_bytes=_MAX_BYTES,
                isolation_level=isolation_level,
                session_epoch=-1,
                topics=[FetchTopic(topic=self._home.topic, partitions=[wanted])],
            )

        answers = await self._cluster.call_leaders(
            {self._home: position}, build, FetchResponse, _split, at_most=_NEWEST_WITH_TOPIC_NAMES
        )
        error = answers.failed.get(self._home)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:  # Somebody has deleted records, or the topic.
            self._read = NOTHING_READ
        if error is not None:
            raise SinkUnavailable(f"{self._home} cannot be read from offset {position}: {error.name}")
        return answers.found[self._home]


def _split(response: FetchResponse) -> Iterator[tuple[TopicPartition, int, PartitionData]]:
    for topic in response.responses:
        for partition in topic.partitions:
            error = error_code(partition.error_code or response.error_code)
            yield TopicPartition(topic.topic, partition.partition_index), error, partition


def _records(data: PartitionData) -> bytes:
    assert not isinstance(data.records, list), "a list of buffers is for encoding only"
    return bytes(data.records or b"")


def read_committed(data: PartitionData, read: Committed, key: bytes) -> Committed:
    """Go on with what a ``read_committed`` fetch from ``read.position`` has brought. Pure."""
    records = _records(data)
    aborted = AbortedRanges(data.aborted_transactions or ())
    position, value = read
    for start, header in iter_batches(records):
        if aborted.shows(records, start, header):
            value = _newest_in(records, start, key, value)
        position = header.next_offset
    return Committed(position, value)


def judge_by_markers(pieces: list[tuple[int, bytes]], key: bytes, value: bytes | None) -> bytes | None:
    """The newest committed value, given what follows it uncommitted: (position, record batches). Pure.

    Raises ``SinkUnavailable`` if a record of this key has no marker: it was open when its driver had been fenced.
    """
    open_values: dict[int, bytes | None] = {}
    for _, records in pieces:
        for start, header in iter_batches(records):
            if header.is_control:
                marker = parse_end_txn_marker(records, start, header)
                ended = open_values.pop(header.producer_id, None)
                if marker is not None and marker.commit and ended is not None:
                    value = ended
                continue
            found = _newest_in(records, start, key, None)
            if found is not None:
                open_values[header.producer_id] = found
    if open_values:
        raise SinkUnavailable(f"the record of sink {key.decode()} is in a transaction that has not ended")
    return value


def _newest_in(records: Buffer, start: int, key: bytes, value: bytes | None) -> bytes | None:
    header = next(iter_batches(records, start))[1]
    for record in iter_records(records, start, header, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES):
        if record.key == key and record.value is not None:
            value = record.value
    return value


def _position_after(records: bytes, position: int) -> int:
    for _, header in iter_batches(records):
        position = max(position, header.next_offset)
    return position
