"""A record batch of a producer: the records of one partition that share a header, from the first one to the end. Pure.

Records are encoded as they come, behind 61 bytes that are kept free for the header, so that closing an uncompressed
batch is one header and one CRC in place. The layout is that of ``oncelog.protocol.records.record_batch``; lengths and
deltas are nearly always short, so their varints come from a table.

A batch is given a producer id, an epoch and a base sequence when it is sent for the first time, and keeps them through
every retry: by them a broker distinguishes a retry from a new batch. Removing them (``forget_sequence``) is safe only
for a batch of which every attempt is known to have been refused, so not for one with ``maybe_written``.

A batch is done exactly once, whatever response comes later. A batch that a broker finds too large is split; it is done
when all its parts are.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from oncelog.clients.arguments import checked_bytes, checked_headers
from oncelog.clients.errors import ClientError
from oncelog.clients.producer.producer_id_and_epoch import NO_PRODUCER, ProducerIdAndEpoch
from oncelog.clients.producer.record_metadata import NO_OFFSET, RecordMetadata
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.compression import Compression, compress
from oncelog.protocol.records.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    NewRecord,
    encode_record,
    increment_sequence,
    iter_records,
    read_header,
    stamp_header,
)
from oncelog.protocol.records.varint import Buffer, encode_varint
from oncelog.protocol.topic_partition import TopicPartition

_SHORT: Final = 8192
_ONE_BYTE: Final = 64
_VARINTS: Final = tuple(encode_varint(value) for value in range(_SHORT))
"""Values below ``_ONE_BYTE`` take one byte, the others two."""
_HEADS: Final = tuple(varint + b"\0" for varint in _VARINTS)
"""The length of a record, and its attributes."""
_AFTER_NULL_KEY: Final = tuple(b"\1" + varint for varint in _VARINTS)
"""A null key, and the length of the value."""
_NULL: Final = (b"\1", b"")
Headers = Sequence[tuple[str, bytes | None]]


class ProducerBatch:
    """A batch of records. ``created_at``, ``retry_at`` and ``refused_since`` are seconds of the loop's clock."""

    __slots__ = (
        "_encoded",
        "_observers",
        "_parts",
        "_record_bytes",
        "_record_errors",
        "_records",
        "_remaining_parts",
        "attempts",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "created_at",
        "error",
        "is_done",
        "is_on_wire",
        "is_split",
        "is_transactional",
        "last_error",
        "limit",
        "log_append_time_ms",
        "max_timestamp",
        "maybe_written",
        "producer",
        "record_count",
        "refused_since",
        "retry_at",
        "sent_to_epoch",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, limit: int, base_timestamp: int, created_at: float) -> None:
        self.topic_partition = topic_partition
        self.limit = limit
        """Maximum size of header and records in bytes; the first record may exceed it."""
        self.base_timestamp = base_timestamp
        self.max_timestamp = base_timestamp
        self.created_at = created_at
        self.record_count = 0
        self.producer = NO_PRODUCER
        self.base_sequence = NO_SEQUENCE
        self.is_transactional = False
        self.attempts = 0
        """How often the batch was sent and has to be sent again."""
        self.last_error = ErrorCode.NONE
        """The error of the latest attempt."""
        self.refused_since: float | None = None
        """When brokers began to refuse the batch; None if the latest attempt had no response."""
        self.retry_at = created_at
        """The time of the next attempt, if the leader is still the same."""
        self.sent_to_epoch = -1
        """The leader epoch that the batch was last sent to: to a newer leader it is sent without backoff."""
        self.is_on_wire = False
        self.maybe_written = False
        """Whether some attempt may have been appended to the log."""
        self.is_split = False
        self.is_done = False
        self.error: ClientError | None = None
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP
        self._records = bytearray(HEADER_SIZE)
        self._record_bytes = 0
        """Size of the records before compression in bytes; 0 while they are not compressed."""
        self._encoded: bytearray | None = None
        self._record_errors: Mapping[int, ClientError] = {}
        self._parts: list[ProducerBatch] = []
        self._remaining_parts = 0
        self._observers: list[Callable[[], object]] = []

    @classmethod
    def of_records(
        cls, topic_partition: TopicPartition, records: Buffer, record_count: int, timestamp: int, created_at: float
    ) -> "ProducerBatch":
        """Return a full batch of records that are encoded already, all with the same timestamp (a delta of 0)."""
        batch = cls(topic_partition, HEADER_SIZE + len(records), timestamp, created_at)
        batch._records += records
        batch.record_count = record_count
        return batch

    # Filling

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        """Add a record and return its size in bytes; add nothing and return 0 if there is no room for it.

        Raises ``TypeError`` for a key, a value or a header that is not bytes.
        """
        index = self.record_count
        delta = timestamp - self.base_timestamp
        try:
            if type(value) is not bytes or key is not None or headers or delta < 0:
                encoded = _encode(index, delta, key, value, headers)
            else:  # The most frequent kind of record, without a call.
                size = len(value)
                head = _HEADS[size + (6 if size < _ONE_BYTE else 7) + (delta >= _ONE_BYTE) + (index >= _ONE_BYTE)]
                encoded = b"".join((head, _VARINTS[delta], _VARINTS[index], _AFTER_NULL_KEY[size], value, b"\0"))
        except IndexError:
            key, value = checked_bytes(key, "the key"), checked_bytes(value, "the value")
            record = NewRecord(timestamp, key, value, checked_headers(headers))
            encoded = encode_record(index, self.base_timestamp, record)
        records = self._records
        size = len(encoded)
        if index and len(records) + size > self.limit:
            return 0
        records += encoded
        self.record_count = index + 1
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return size

    @property
    def size(self) -> int:
        """Size of header and records in bytes; compressed once the batch was encoded."""
        return len(self._records)

    @property
    def record_bytes(self) -> int:
        """Size of the records before compression, in bytes."""
        return self._record_bytes or len(self._records) - HEADER_SIZE

    @property
    def is_full(self) -> bool:
        return len(self._records) >= self.limit

    # Sending

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def next_sequence(self) -> int:
        """The sequence after that of the last record."""
        return increment_sequence(self.base_sequence, self.record_count)

    def assign(self, producer: ProducerIdAndEpoch, base_sequence: int, *, is_transactional: bool) -> None:
        """Set the producer id, epoch and base sequence, which the batch keeps."""
        assert not self.has_sequence
        self.producer = producer
        self.base_sequence = base_sequence
        self.is_transactional = is_transactional

    def forget_sequence(self) -> None:
        """Return to the state of a batch that was never sent."""
        assert not self.is_on_wire
        assert not self.maybe_written
        self.producer = NO_PRODUCER
        self.base_sequence = NO_SEQUENCE

    def encode(self, codec: Compression) -> bytearray:
        """Return the bytes to send, with a current header. No record can be added any more."""
        if self._encoded is None:
            if codec is not Compression.NONE:
                self._compress(codec)
            self._encoded = self._records
        elif self.attempts:  # The transport of an attempt that was lost may still hold the old bytes.
            self._encoded = self._records = bytearray(self._encoded)
        stamp_header(self._encoded, self._header(codec))
        return self._encoded

    def _compress(self, codec: Compression) -> None:
        compressed = compress(codec, self._records[HEADER_SIZE:])
        self._record_bytes = len(self._records) - HEADER_SIZE
        self._records = bytearray(HEADER_SIZE)
        self._records += compressed

    def _header(self, codec: Compression) -> BatchHeader:
        return BatchHeader(
            base_offset=0,
            batch_length=len(self._records) - LOG_OVERHEAD,
            partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=codec | (TRANSACTIONAL_BIT if self.is_transactional else 0),
            last_offset_delta=self.record_count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            base_sequence=self.base_sequence,
            records_count=self.record_count,
        )

    def split(self, limit: int, max_decompressed_bytes: int) -> "list[ProducerBatch]":
        """Return the records in smaller batches, with the same sequences. This batch is done when all of them are."""
        assert self._encoded is not None
        header = read_header(self._encoded)
        for record in iter_records(self._encoded, 0, header, max_decompressed_bytes=max_decompressed_bytes):
            fields = (record.timestamp, record.key, record.value, record.headers)
            if not self._parts or not self._parts[-1].append(*fields):
                self._parts.append(self._part(limit, record.timestamp))
                self._parts[-1].append(*fields)
        self._remaining_parts = len(self._parts)
        sequence = self.base_sequence
        for part in self._parts:
            if self.has_sequence:
                part.assign(self.producer, sequence, is_transactional=self.is_transactional)
                sequence = part.next_sequence
            part.when_done(self._part_done)
        return list(self._parts)

    def _part(self, limit: int, base_timestamp: int) -> "ProducerBatch":
        part = ProducerBatch(self.topic_partition, limit, base_timestamp, self.created_at)
        part.is_split = True
        part.maybe_written = self.maybe_written
        return part

    def _part_done(self) -> None:
        self._remaining_parts -= 1
        if not self._remaining_parts:
            self._finish()

    # Done

    def complete(self, base_offset: int, log_append_time_ms: int) -> bool:
        """Record that the batch is in the log. Return False, and change nothing, if it was done before."""
        if self.is_done:
            return False
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._finish()
        return True

    def fail(self, error: ClientError, record_errors: Mapping[int, ClientError] | None = None) -> bool:
        """Give the batch up; ``record_errors`` are those of single records. Return False if it was done before."""
        if self.is_done:
            return False
        self.error = error
        self._record_errors = record_errors or {}
        self._finish()
        return True

    def _finish(self) -> None:
        self.is_done = True
        observers, self._observers = self._observers, []
        for observer in observers:
            observer()

    def when_done(self, observer: Callable[[], object]) -> None:
        """Call ``observer`` once the batch is done; now, if it is."""
        if self.is_done:
            observer()
        else:
            self._observers.append(observer)

    def error_of(self, index: int) -> ClientError | None:
        """Return the error of one record; None if it is in the log."""
        if self._parts:
            part, index = self._find(index)
            return part.error_of(index)
        return self._record_errors.get(index, self.error)

    def metadata(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """Return partition, offset and timestamp of one record."""
        if self._parts:
            part, index = self._find(index)
            return part.metadata(index, timestamp_ms)
        topic, partition = self.topic_partition
        offset = NO_OFFSET if self.base_offset == NO_OFFSET else self.base_offset + index
        appended = self.log_append_time_ms
        return RecordMetadata(topic, partition, offset, timestamp_ms if appended == NO_TIMESTAMP else appended)

    def _find(self, index: int) -> "tuple[ProducerBatch, int]":
        for part in self._parts:
            if index < part.record_count:
                return part, index
            index -= part.record_count
        raise IndexError(index)

    def __repr__(self) -> str:
        return f"<batch of {self.record_count} records for {self.topic_partition}, sequence {self.base_sequence}>"


def _encode(index: int, delta: int, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """Return a record without headers. Raises ``IndexError`` for other types than bytes, and for long lengths."""
    if headers or delta < 0:
        raise IndexError
    if type(key) is bytes:
        key_length, key_bytes = _VARINTS[len(key)], key
    elif key is None:
        key_length, key_bytes = _NULL
    else:
        raise IndexError
    if type(value) is bytes:
        value_length, value_bytes = _VARINTS[len(value)], value
    elif value is None:
        value_length, value_bytes = _NULL
    else:
        raise IndexError
    delta_bytes, offset_bytes = _VARINTS[delta], _VARINTS[index]
    size = len(delta_bytes) + len(offset_bytes) + len(key_length) + len(key_bytes) + len(value_length) + 2
    head = _HEADS[size + len(value_bytes)]
    return b"".join((head, delta_bytes, offset_bytes, key_length, key_bytes, value_length, value_bytes, b"\0"))
