"""A record as a consumer gets it: where it was, when, and what it holds.

Millions of these are made, so a record is a tuple, and what is seldom looked at stays encoded until it is: headers are
decoded when they are read.
"""

from enum import IntEnum
from typing import NamedTuple

from oncelog.protocol.records.record_batch import CorruptRecord
from oncelog.protocol.records.varint import decode_varint
from oncelog.protocol.topic_partition import TopicPartition


class TimestampType(IntEnum):
    """Whose clock a record's timestamp is of (``org.apache.kafka.common.record.TimestampType``)."""

    CREATE_TIME = 0
    """The producer's, or whatever it put there."""
    LOG_APPEND_TIME = 1
    """The broker's, when it appended the batch."""


class ConsumerRecord(NamedTuple):
    """One record of a partition."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Milliseconds since the epoch; -1 if it has none."""
    key: bytes | None
    value: bytes | None
    """None is a tombstone: compaction removes the key."""
    encoded_headers: bytes
    """As they stand in the batch, with their count; empty if there are none."""
    timestamp_type: TimestampType
    leader_epoch: int
    """Of the leader that appended the record; -1 if the broker did not say."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that holds the record."""
        return TopicPartition(self.topic, self.partition)

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """Names and values in the producer's order; a name may occur twice. Raises ``CorruptRecord``.

        A name that is not UTF-8 holds its bytes as surrogate escapes (PEP 383).
        """
        try:
            return _decode_headers(self.encoded_headers) if self.encoded_headers else []
        except (IndexError, ValueError) as error:
            raise CorruptRecord(f"the headers of {self.topic_partition} at offset {self.offset}: {error}") from error

    def __repr__(self) -> str:
        try:
            headers = repr(self.headers)
        except CorruptRecord:
            headers = "<corrupt>"
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset},"
            f" timestamp_ms={self.timestamp_ms}, key={self.key!r}, value={self.value!r}, headers={headers})"
        )


def _decode_headers(encoded: bytes) -> list[tuple[str, bytes | None]]:
    """Decode headers. Raises ``IndexError`` or ``ValueError`` if they are broken."""
    count, at = decode_varint(encoded, 0)
    headers = []
    for _ in range(count):
        name, at = _decode_bytes(encoded, at)
        if name is None:
            raise ValueError("a header without a name")
        value, at = _decode_bytes(encoded, at)
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    if count < 0 or at != len(encoded):
        raise ValueError(f"{count} headers that end at byte {at} of {len(encoded)}")
    return headers


def _decode_bytes(encoded: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = decode_varint(encoded, at)
    if length < 0:
        return None, at
    return encoded[at : at + length], at + length
