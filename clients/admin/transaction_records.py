"""The records of ``__transaction_state``, as far as clients use them. Pure.

Key and value begin with their version (int16); see ``oncelog.protocol.internal.transaction_log``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final

from oncelog.clients.admin.transactions import STATES
from oncelog.clients.errors import BadResponse
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.internal.topics import TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.internal.transaction_log import TransactionLogKey, TransactionLogValue
from oncelog.protocol.primitives import DecodeError
from oncelog.protocol.records.record_batch import Record
from oncelog.protocol.topic_partition import TopicPartition

_VERSION: Final = Struct(">h")
_KEY_VERSION: Final = 0
_NONE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSnapshot:
    """The state of a transactional id after one step."""

    state: str
    producer_id: int
    producer_epoch: int
    previous_producer_id: int | None
    """The producer id before this step; None in a record of ``transaction.version`` 0."""
    next_producer_id: int | None
    """The producer id after the end of the transaction, because the epochs of this one are used up."""
    timeout_ms: int
    start_ms: int | None
    last_update_ms: int
    partitions: tuple[TopicPartition, ...]
    client_transaction_version: int
    cause: str | None
    """The cause of a step that the producer did not request; only Oncelog's brokers write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRecord:
    """A record of the id; a tombstone has no snapshot."""

    offset: int
    timestamp_ms: int
    snapshot: TransactionSnapshot | None


def encoded_key(transactional_id: str) -> bytes:
    """Return the key of the id's records."""
    return _VERSION.pack(_KEY_VERSION) + encode(TransactionLogKey(transactional_id=transactional_id), _KEY_VERSION)


def read_record(record: Record) -> HistoryRecord:
    """Return the content of a value. Raises ``BadResponse`` for an unknown version."""
    if record.value is None:
        return HistoryRecord(offset=record.offset, timestamp_ms=record.timestamp, snapshot=None)
    try:
        (version,) = _VERSION.unpack_from(record.value)
        value = decode(TransactionLogValue, version, record.value[_VERSION.size :])
    except (StructError, DecodeError, ValueError) as error:
        raise BadResponse(
            f"{TRANSACTION_STATE_TOPIC_NAME}: the record at offset {record.offset} cannot be read: {error}"
        ) from None
    return HistoryRecord(offset=record.offset, timestamp_ms=record.timestamp, snapshot=_snapshot(value))


def _snapshot(value: TransactionLogValue) -> TransactionSnapshot:
    return TransactionSnapshot(
        state=STATES.get(value.transaction_status, str(value.transaction_status)),
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        previous_producer_id=_unless_none(value.previous_producer_id),
        next_producer_id=_unless_none(value.next_producer_id),
        timeout_ms=value.transaction_timeout_ms,
        start_ms=_unless_none(value.transaction_start_timestamp_ms),
        last_update_ms=value.transaction_last_update_timestamp_ms,
        partitions=tuple(sorted(_partitions(value))),
        client_transaction_version=value.client_transaction_version,
        cause=value.cause,
    )


def _partitions(value: TransactionLogValue) -> Iterable[TopicPartition]:
    return (
        TopicPartition(topic.topic, partition)
        for topic in value.transaction_partitions or ()
        for partition in topic.partition_ids
    )


def _unless_none(number: int) -> int | None:
    return None if number == _NONE else number
