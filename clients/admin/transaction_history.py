"""The history of a transactional id: what the records of ``__transaction_state`` say of it, oldest first.

Each record is the whole state of an id after one step. Its partition is read as any topic is, over the wire, by the
placement that Java and all brokers share. Compaction leaves only the newest record of each id in the older segments:
the history begins where they begin, and may have gaps.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final

from clients.admin.offsets import EARLIEST, LATEST, list_offsets
from clients.admin.transactions import STATES
from clients.cluster import Cluster
from clients.consumer.log_reader import LogReader
from clients.errors import BadResponse, BrokerRefused, Refusal, error_code
from protocol.compiler import decode, encode
from protocol.internal.placement import TRANSACTION_STATE, partition_for
from protocol.internal.transaction_log import TransactionLogKey, TransactionLogValue
from protocol.primitives import DecodeError
from protocol.records.record_batch import Record
from protocol.topic_partition import TopicPartition

_VERSION: Final = Struct(">h")
_KEY_VERSION: Final = 0
_NONE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSnapshot:
    """A transactional id after one step."""

    state: str
    producer_id: int
    producer_epoch: int
    previous_producer_id: int | None
    """Before this step; None where the record does not say (``transaction.version`` 0)."""
    next_producer_id: int | None
    """Set aside for when the transaction is complete: this one's epochs are used up."""
    timeout_ms: int
    start_ms: int | None
    last_update_ms: int
    partitions: tuple[TopicPartition, ...]
    client_transaction_version: int
    cause: str | None
    """Why, where its producer did not ask for it; brokers other than ours do not write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRecord:
    """A record of the id; without a snapshot it says that the id is forgotten."""

    offset: int
    timestamp_ms: int
    snapshot: TransactionSnapshot | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionHistory:
    """What is left of an id's records, and of all records of its partition: from offset ``begin`` to before ``end``."""

    transactional_id: str
    topic_partition: TopicPartition
    begin: int
    end: int
    records_left: int
    records: tuple[HistoryRecord, ...]


async def read_transaction_history(cluster: Cluster, transactional_id: str) -> TransactionHistory:
    """Read the id's partition from its beginning to its present end. Raises ``BrokerRefused``, ``BadResponse``."""
    topic = (await cluster.topics([TRANSACTION_STATE]))[TRANSACTION_STATE]
    if topic.error_code:
        raise BrokerRefused(f"topic {TRANSACTION_STATE}", Refusal(error=error_code(topic.error_code)))
    home = TopicPartition(TRANSACTION_STATE, partition_for(transactional_id, len(topic.partitions)))
    begin, end = await _offset(cluster, home, EARLIEST), await _offset(cluster, home, LATEST)
    reader = LogReader(cluster, {home: begin}, read_committed=False)
    key = encoded_key(transactional_id)
    records_left, records = 0, []
    while reader.positions[home] < end:
        for fetched in await reader.poll():
            records_left += len(fetched.records)
            records += [read_record(record) for record in fetched.records if record.key == key]
        for topic_partition, error in reader.failed.items():
            raise BrokerRefused(str(topic_partition), Refusal(error=error))
    return TransactionHistory(
        transactional_id=transactional_id,
        topic_partition=home,
        begin=begin,
        end=end,
        records_left=records_left,
        records=tuple(records),
    )


async def _offset(cluster: Cluster, topic_partition: TopicPartition, timestamp: int) -> int:
    answers = await list_offsets(cluster, {topic_partition: timestamp})
    if topic_partition in answers.failed:
        raise BrokerRefused(str(topic_partition), Refusal(error=answers.failed[topic_partition]))
    return answers.found[topic_partition].offset or 0


def encoded_key(transactional_id: str) -> bytes:
    """The key of the id's records."""
    return _VERSION.pack(_KEY_VERSION) + encode(TransactionLogKey(transactional_id=transactional_id), _KEY_VERSION)


def read_record(record: Record) -> HistoryRecord:
    """What a record says. Raises ``BadResponse`` for a value that is of no known version."""
    if record.value is None:
        return HistoryRecord(offset=record.offset, timestamp_ms=record.timestamp, snapshot=None)
    try:
        (version,) = _VERSION.unpack_from(record.value)
        value = decode(TransactionLogValue, version, record.value[_VERSION.size :])
    except (StructError, DecodeError, ValueError) as error:
        raise BadResponse(
            f"{TRANSACTION_STATE}: the record at offset {record.offset} cannot be read: {error}"
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
