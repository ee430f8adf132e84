"""The records of ``__transaction_state``: the metadata of a transactional id, byte for byte as in Kafka's log.

The key is an int16 version and a ``TransactionLogKey``, the value an int16 version and a ``TransactionLogValue``; a
null value forgets the id. One record a batch, uncompressed, because each is written by its own request.

Values are written in version 1 from ``transaction.version`` 1 on, and in version 0 below it, which every Kafka since
0.11 reads; both are always read. Version 0 has no tagged fields: a coordinator that reloads it does not know the
previous producer id, the client's protocol or the cause. The one tagged field that a decision rests on is never left
out: a transition that has set the next producer id aside is written in version 1 at any level.

Records of versions that this broker does not know are left over from a newer one: they are skipped with a warning, as
in Kafka. Anything else that makes no sense is a ``CorruptRecord``, and its partition is not opened: a coordinator that
guesses could end a transaction in two ways.
"""

import logging
import struct
from typing import Final, NamedTuple

from oncelog.coordinator.transaction.state import NO_PARTITIONS, NO_PRODUCER_ID, ProducerIdAndEpoch, TransactionMetadata
from oncelog.coordinator.transaction.transaction_state import PERSISTED_STATES, TransactionState
from oncelog.protocol.compiler import decode
from oncelog.protocol.internal.transaction_log import TransactionLogKey, TransactionLogValue
from oncelog.protocol.primitives import DecodeError, encode_uvarint
from oncelog.protocol.records.record_batch import CorruptRecord, NewRecord, Record, build_batch
from oncelog.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

KEY_VERSION: Final = 0
FLEXIBLE_VALUE_VERSION: Final = 1
_READABLE_VALUE_VERSIONS: Final = TransactionLogValue.versions
_STATES_BY_STATUS: Final[dict[int, TransactionState]] = {state.value: state for state in PERSISTED_STATES}

_VERSION: Final = struct.Struct(">h")
_VERSION_SIZE: Final = _VERSION.size
_KEY_PREFIX: Final = struct.Struct(">hh")
"""The version, and the length of the string that is all of a ``TransactionLogKey``."""
_VALUE_START: Final = struct.Struct(">hqhib")
_VALUE_TIMES: Final = struct.Struct(">qq")
_TAGGED_INT64: Final = struct.Struct(">bbq")
_TAGGED_INT16: Final = struct.Struct(">bbh")
_CAUSE_TAG: Final = encode_uvarint(10_000)


class Entry(NamedTuple):
    """The content of one record: the metadata of an id, or None for a tombstone."""

    transactional_id: str
    metadata: TransactionMetadata | None


def value_version(transition: TransactionMetadata, transaction_version: int) -> int:
    """Return the version in which a transition is written, under a finalised level of ``transaction.version``."""
    is_flexible = transaction_version >= 1 or transition.next_producer_id != NO_PRODUCER_ID
    return FLEXIBLE_VALUE_VERSION if is_flexible else 0


def build_record_batch(
    transactional_id: str,
    metadata: TransactionMetadata,
    now_ms: int,
    *,
    value_version: int = FLEXIBLE_VALUE_VERSION,
) -> bytearray:
    """Return the batch of one transition."""
    return build_batch((NewRecord(now_ms, encode_key(transactional_id), encode_value(metadata, value_version)),))


def build_tombstones(transactional_ids: list[str], now_ms: int) -> bytearray:
    """Return the batch with the tombstones of ids."""
    return build_batch(
        [NewRecord(now_ms, encode_key(transactional_id), None) for transactional_id in transactional_ids]
    )


def encode_key(transactional_id: str) -> bytes:
    """Return the version and a ``TransactionLogKey``."""
    name = transactional_id.encode()
    return _KEY_PREFIX.pack(KEY_VERSION, len(name)) + name


def encode_value(metadata: TransactionMetadata, version: int = FLEXIBLE_VALUE_VERSION) -> bytes:
    """Return the version and a ``TransactionLogValue``. Written out: every transaction encodes three of them."""
    state = metadata.state
    assert state in PERSISTED_STATES, f"{state.label} is never written"
    start = _VALUE_START.pack(version, metadata.producer_id, metadata.producer_epoch, metadata.timeout_ms, state.status)
    topics = None if state is TransactionState.EMPTY else _group_by_topic(metadata.partitions)
    times = _VALUE_TIMES.pack(metadata.last_update_ms, metadata.start_ms)
    if version < FLEXIBLE_VALUE_VERSION:
        return start + _encode_partitions(topics) + times
    return start + _encode_compact_partitions(topics) + times + _encode_tagged_fields(metadata)


def _group_by_topic(partitions: frozenset[TopicPartition]) -> dict[str, list[int]]:
    """Return the partitions by topic, in sorted order, so that equal metadata gives equal bytes."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions) if len(partitions) > 1 else partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _encode_partitions(topics: dict[str, list[int]] | None) -> bytes:
    if topics is None:
        return b"\xff\xff\xff\xff"
    encoded = struct.pack(">i", len(topics))
    for topic, partitions in topics.items():
        name = topic.encode()
        encoded += struct.pack(f">h{len(name)}si{len(partitions)}i", len(name), name, len(partitions), *partitions)
    return encoded


def _encode_compact_partitions(topics: dict[str, list[int]] | None) -> bytes:
    if topics is None:
        return b"\0"
    encoded = encode_uvarint(len(topics) + 1)
    for topic, partitions in topics.items():
        encoded += _encode_compact_string(topic) + encode_uvarint(len(partitions) + 1)
        encoded += struct.pack(f">{len(partitions)}ix", *partitions)  # And no tagged fields.
    return encoded


def _encode_compact_string(text: str) -> bytes:
    data = text.encode()
    return encode_uvarint(len(data) + 1) + data


def _encode_tagged_fields(metadata: TransactionMetadata) -> bytes:
    """Encode the fields that differ from their defaults, in the order of their tags."""
    fields = []
    if metadata.previous_producer_id != NO_PRODUCER_ID:
        fields.append(_TAGGED_INT64.pack(0, 8, metadata.previous_producer_id))
    if metadata.next_producer_id != NO_PRODUCER_ID:
        fields.append(_TAGGED_INT64.pack(1, 8, metadata.next_producer_id))
    if metadata.client_transaction_version:
        fields.append(_TAGGED_INT16.pack(2, 2, metadata.client_transaction_version))
    if metadata.cause is not None:
        cause = _encode_compact_string(metadata.cause)
        fields.append(_CAUSE_TAG + encode_uvarint(len(cause)) + cause)
    return b"".join((encode_uvarint(len(fields)), *fields))


def read_record(record: Record) -> Entry | None:
    """Return the content of a record; None if its version is not known here."""
    if record.key is None:
        raise CorruptRecord(f"a record without a key at offset {record.offset}")
    return read_entry(record.key, record.value, record.offset)


def read_entry(key: bytes, value: bytes | None, offset: int) -> Entry | None:
    """Return the content of a record in its parts. Raises CorruptRecord."""
    try:
        if _version(key) != KEY_VERSION:
            logger.warning("Skipping a key of version %d at offset %d", _version(key), offset)
            return None
        transactional_id = decode(TransactionLogKey, KEY_VERSION, key[_VERSION_SIZE:]).transactional_id
        if value is None:
            return Entry(transactional_id, None)
        version = _version(value)
        if version not in _READABLE_VALUE_VERSIONS:
            logger.warning("Skipping a value of version %d at offset %d", version, offset)
            return None
        return Entry(transactional_id, _metadata(decode(TransactionLogValue, version, value[_VERSION_SIZE:])))
    except (struct.error, DecodeError, ValueError) as error:
        raise CorruptRecord(f"the record at offset {offset}: {error}") from error


def read_producer(value: bytes, offset: int) -> ProducerIdAndEpoch | None:
    """Return the producer of a value without decoding the rest; None if its version is not known here."""
    try:
        version = _version(value)
        if version not in _READABLE_VALUE_VERSIONS:
            logger.warning("Skipping a value of version %d at offset %d", version, offset)
            return None
        _, producer_id, epoch, _, _ = _VALUE_START.unpack_from(value)
    except struct.error as error:
        raise CorruptRecord(f"the record at offset {offset}: {error}") from error
    return ProducerIdAndEpoch(producer_id, epoch)


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
        cause=value.cause,
    )


def _partitions(value: TransactionLogValue, state: TransactionState) -> frozenset[TopicPartition]:
    if state is TransactionState.EMPTY or not value.transaction_partitions:
        return NO_PARTITIONS
    return frozenset(
        TopicPartition(topic.topic, partition)
        for topic in value.transaction_partitions
        for partition in topic.partition_ids
    )
