"""The records of ``__transaction_state``: the metadata of a transactional id, byte for byte as in Kafka's log.

The key is an int16 version and a ``TransactionLogKey``, the value an int16 version and a ``TransactionLogValue``; a
null value forgets the id. One record a batch, uncompressed, because each is written by its own request. Values are
written in version 0, which every Kafka since 0.11 reads; version 1 differs by tagged fields and is read as well.

Records of versions that this broker does not know are left over from a newer one: they are skipped with a warning, as
in Kafka. Anything else that makes no sense is a ``CorruptRecord``, and its partition is not opened: a coordinator that
guesses could end a transaction in two ways.
"""

import logging
import struct
from typing import Final, NamedTuple

from coordinator.transaction.state import NO_PARTITIONS, PERSISTED_STATES, TransactionMetadata, TransactionState
from protocol.compiler import decode, encode
from protocol.internal.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from protocol.primitives import DecodeError
from protocol.records.record_batch import CorruptRecord, NewRecord, Record, build_batch
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 0
_READABLE_VALUE_VERSIONS: Final = TransactionLogValue.versions
_STATES_BY_STATUS: Final[dict[int, TransactionState]] = {state.value: state for state in PERSISTED_STATES}

_VERSION: Final = struct.Struct(">h")
_VERSION_SIZE: Final = _VERSION.size
_KEY_PREFIX: Final = _VERSION.pack(KEY_VERSION)
_VALUE_PREFIX: Final = _VERSION.pack(VALUE_VERSION)


class Entry(NamedTuple):
    """What one record says: the metadata of an id, or None for "forget it"."""

    transactional_id: str
    metadata: TransactionMetadata | None


def build_record_batch(transactional_id: str, metadata: TransactionMetadata, now_ms: int) -> bytearray:
    """The batch of one transition."""
    return build_batch((NewRecord(now_ms, encode_key(transactional_id), encode_value(metadata)),))


def build_tombstones(transactional_ids: list[str], now_ms: int) -> bytearray:
    """The batch that forgets ids."""
    return build_batch(
        [NewRecord(now_ms, encode_key(transactional_id), None) for transactional_id in transactional_ids]
    )


def encode_key(transactional_id: str) -> bytes:
    return _KEY_PREFIX + encode(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def encode_value(metadata: TransactionMetadata) -> bytes:
    assert metadata.state in PERSISTED_STATES, f"{metadata.state.label} is never written"
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.value,
        transaction_partitions=_group_by_topic(metadata),
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_transaction_version,
    )
    return _VALUE_PREFIX + encode(value, VALUE_VERSION)


def _group_by_topic(metadata: TransactionMetadata) -> list[PartitionsSchema] | None:
    """In sorted order, so that equal metadata gives equal bytes. Null while there cannot be any."""
    if metadata.state is TransactionState.EMPTY:
        return None
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    return [PartitionsSchema(topic=topic, partition_ids=partitions) for topic, partitions in topics.items()]


def read_record(record: Record) -> Entry | None:
    """What a record says; None if it is of a version that is not known here."""
    if record.key is None:
        raise CorruptRecord(f"a record without a key at offset {record.offset}")
    try:
        if _version(record.key) != KEY_VERSION:
            logger.warning("skipping a key of version %d at offset %d", _version(record.key), record.offset)
            return None
        transactional_id = decode(TransactionLogKey, KEY_VERSION, record.key[_VERSION_SIZE:]).transactional_id
        if record.value is None:
            return Entry(transactional_id, None)
        version = _version(record.value)
        if version not in _READABLE_VALUE_VERSIONS:
            logger.warning("skipping a value of version %d at offset %d", version, record.offset)
            return None
        value = decode(TransactionLogValue, version, record.value[_VERSION_SIZE:])
        return Entry(transactional_id, _metadata(value))
    except (struct.error, DecodeError, ValueError) as error:
        raise CorruptRecord(f"the record at offset {record.offset}: {error}") from error


def _version(data: bytes) -> int:
    version: int = _VERSION.unpack_from(data)[0]
    return version


def _metadata(value: TransactionLogValue) -> TransactionMetadata:
    state = _STATES_BY_STATUS.get(value.transaction_status)
    if state is None:
        raise ValueError(f"status {value.transaction_status} is never written")
    return TransactionMetadata(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=_partitions(value, state),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_transaction_version=value.client_transaction_version,
    )


def _partitions(value: TransactionLogValue, state: TransactionState) -> frozenset[TopicPartition]:
    if state is TransactionState.EMPTY or not value.transaction_partitions:
        return NO_PARTITIONS
    return frozenset(
        TopicPartition(topic.topic, partition)
        for topic in value.transaction_partitions
        for partition in topic.partition_ids
    )
