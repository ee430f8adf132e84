"""Reads the committed records of one sink from the state topic, also beside open transactions of other sinks.

A ``read_committed`` fetch ends where the partition's oldest open transaction begins, and that may be another sink's,
whose driver is stuck. So records after that point are read uncommitted, and their markers decide which of them count
(``apply_markers``). Brokers never compact beyond that point, so no marker is missing there.

A record of the sink itself may still lack its marker: Apache Kafka responds to EndTxn once the outcome is in the
coordinator's log, and writes the markers afterwards. Such a record raises ``RecordOpen``, and the caller reads again.

The driver's processes read the partition from its beginning, once; compaction keeps it short (``STATE_TOPIC_CONFIGS``).
Tasks only check whether their batch was decided since the driver's prelude, and begin at the position of that.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from oncelog.clients.admin.configs import Resource, ResourceType, describe_config
from oncelog.clients.admin.offsets import EARLIEST, LATEST, list_offsets
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import error_code
from oncelog.clients.fan_out import call_leaders
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from oncelog.protocol.records.aborted_ranges import AbortedRanges
from oncelog.protocol.records.control_records import parse_end_txn_marker
from oncelog.protocol.records.record_batch import iter_batches, iter_records
from oncelog.protocol.schema import Buffer
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.sink.commit.sink_errors import SinkUnavailable, UnsuitableStateTopic

_NEWEST_WITH_TOPIC_NAMES: Final = 12
_CONSUMER: Final = -1
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_WAIT_MS: Final = 100
"""The wait for followers to replicate the end of the leader's log."""
_MAX_BYTES: Final = 8 * 1024 * 1024
_MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"
STATE_TOPIC_CONFIGS: Final = {
    _POLICY: _COMPACT,
    "segment.bytes": "4194304",  # Brokers compact no segment that is still written.
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "600000",  # Compaction keeps markers for this time.
}


class Committed(NamedTuple):
    """The newest committed value of a key before ``position``; None if there is none."""

    position: int = 0
    value: bytes | None = None


class OffsetGone(SinkUnavailable):
    """The log does not have the fetch offset: records, or the topic, were deleted."""


class RecordOpen(SinkUnavailable):
    """A record of the sink is neither committed nor aborted yet: it has no marker."""


class StatePartition:
    """One partition of the state topic, by requests to its leader."""

    def __init__(self, cluster: Cluster, home: TopicPartition) -> None:
        self._cluster = cluster
        self._home = home

    async def offset(self, which: int) -> int:
        """Return the offset at which the partition begins (``EARLIEST``) or ends (``LATEST``)."""
        offsets = await list_offsets(self._cluster, {self._home: which})
        if self._home in offsets.failed:
            raise SinkUnavailable(f"the ends of {self._home} are not known: {offsets.failed[self._home].name}")
        return offsets.found[self._home].offset or 0

    async def committed_from(self, read: Committed, key: bytes) -> Committed:
        """Return ``read`` after one more ``read_committed`` fetch from its position."""
        return read_committed(await self._fetch(read.position, isolation_level=_READ_COMMITTED), read, key)

    async def all_between(self, position: int, end: int) -> list[tuple[int, bytes]]:
        """Return all records of a range, committed or not: (position, record batches)."""
        pieces: list[tuple[int, bytes]] = []
        while position < end:
            records = _records(await self._fetch(position, isolation_level=_READ_UNCOMMITTED))
            pieces.append((position, records))
            position = _position_after(records, position)
        return pieces

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

        fetched = await call_leaders(
            self._cluster, {self._home: position}, build, FetchResponse, _split, at_most=_NEWEST_WITH_TOPIC_NAMES
        )
        error = fetched.failed.get(self._home)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetGone(f"{self._home} does not have offset {position}: records are being deleted")
        if error is not None:
            raise SinkUnavailable(f"{self._home} cannot be read from offset {position}: {error.name}")
        return fetched.found[self._home]


class StateTopicReader:
    """Reads one key of one partition, each time from its last position; first from ``begin``, or the log's start."""

    def __init__(self, partition: StatePartition, key: bytes, begin: int | None = None) -> None:
        self._partition = partition
        self._key = key
        self._read = None if begin is None else Committed(begin)

    @property
    def position(self) -> int:
        """The offset up to which every committed record was read."""
        return 0 if self._read is None else self._read.position

    def skip_to(self, position: int) -> None:
        """Skip records before a position."""
        if self._read is not None and self._read.position < position:
            self._read = self._read._replace(position=position)

    async def newest(self) -> bytes | None:
        """Return the newest committed value of all records that are in the log at the time of the call.

        Raises ``RecordOpen``, or another ``SinkUnavailable``.
        """
        try:
            return await self._newest()
        except OffsetGone:
            await self._begin_again()
            return await self._newest()

    async def _newest(self) -> bytes | None:
        end = await self._partition.offset(LATEST)
        if self._read is None or self._read.position > end:
            await self._begin_again()
        read = self._read
        assert read is not None
        while read.position < end:
            before = read.position
            self._read = read = await self._partition.committed_from(read, self._key)
            if read.position == before:
                break
        beyond = await self._partition.all_between(read.position, end)
        return apply_markers(beyond, self._key, read.value)

    async def _begin_again(self) -> None:
        """Restart at the log's start, which is not 0 if records were deleted.

        The value is dropped, too: a newer record may have been deleted.
        """
        self._read = Committed(await self._partition.offset(EARLIEST))


async def newest_values(partition: StatePartition) -> dict[bytes, bytes]:
    """Return the last value of each key in a partition, committed or not."""
    pieces = await partition.all_between(await partition.offset(EARLIEST), await partition.offset(LATEST))
    values: dict[bytes, bytes] = {}
    for _, records in pieces:
        for start, header in iter_batches(records):
            if header.is_control:
                continue
            for record in iter_records(records, start, header, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES):
                if record.key is not None and record.value is not None:
                    values[bytes(record.key)] = bytes(record.value)
    return values


async def require_compaction(cluster: Cluster, topic: str) -> None:
    """Raise ``UnsuitableStateTopic`` if brokers delete the topic's records by age, and with them decisions.

    Raises ``BrokerRefused`` if the client may not describe the topic's settings.
    """
    (entry,) = await describe_config(cluster, Resource(type=ResourceType.TOPIC, name=topic), [_POLICY])
    policy = entry.value
    if policy != _COMPACT:
        raise UnsuitableStateTopic(
            f"the state topic {topic} has {_POLICY}={policy}: brokers would delete what the sink has decided. Set it "
            f"to {_COMPACT}: oncelog config alter topic {topic} --set {_POLICY}={_COMPACT}"
        )


def _split(response: FetchResponse) -> Iterator[tuple[TopicPartition, int, PartitionData]]:
    for topic in response.responses:
        for partition in topic.partitions:
            error = error_code(partition.error_code or response.error_code)
            yield TopicPartition(topic.topic, partition.partition_index), error, partition


def _records(data: PartitionData) -> bytes:
    assert not isinstance(data.records, list), "a list of buffers is for encoding only"
    return bytes(data.records or b"")


def read_committed(data: PartitionData, read: Committed, key: bytes) -> Committed:
    """Advance by the records of a ``read_committed`` fetch from ``read.position``. Pure."""
    records = _records(data)
    aborted = AbortedRanges(data.aborted_transactions or ())
    position, value = read
    for start, header in iter_batches(records):
        if aborted.shows(records, start, header):
            value = _newest_in(records, start, key, value)
        position = header.next_offset
    return Committed(position, value)


def apply_markers(pieces: list[tuple[int, bytes]], key: bytes, value: bytes | None) -> bytes | None:
    """Return the newest committed value: ``value``, or a later one of ``pieces`` (position, record batches). Pure.

    Raises ``RecordOpen`` if a record of this key has no marker.
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
        raise RecordOpen(f"the record of sink {key.decode()} is in a transaction that has not ended")
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
