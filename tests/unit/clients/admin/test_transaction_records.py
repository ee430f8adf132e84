"""Records of the transaction log, as the broker's coordinator writes them and as Kafka does."""

import pytest

from oncelog.clients.admin.transaction_records import encoded_key, read_record
from oncelog.clients.errors import BadResponse
from oncelog.protocol.compiler import encode
from oncelog.protocol.internal.transaction_log import PartitionsSchema, TransactionLogValue
from oncelog.protocol.records.record_batch import Record
from oncelog.protocol.topic_partition import TopicPartition

VALUE = TransactionLogValue(
    producer_id=7,
    previous_producer_id=6,
    producer_epoch=3,
    transaction_timeout_ms=60_000,
    transaction_status=3,
    transaction_partitions=[PartitionsSchema(topic="orders", partition_ids=[1, 0])],
    transaction_last_update_timestamp_ms=20,
    transaction_start_timestamp_ms=10,
    client_transaction_version=2,
    cause="open for more than 60000 ms",
)


def record(value: bytes | None) -> Record:
    return Record(5, 1_000, encoded_key("billing"), value, [])


def test_record_key_equals_that_of_kafka() -> None:
    assert encoded_key("billing") == b"\0\0" + b"\0\x07billing"


@pytest.mark.parametrize("version", TransactionLogValue.versions)
def test_record_value_of_each_version_is_read(version: int) -> None:
    read = read_record(record(version.to_bytes(2, "big") + encode(VALUE, version)))
    assert (read.offset, read.timestamp_ms) == (5, 1_000)
    snapshot = read.snapshot
    assert snapshot is not None
    assert (snapshot.state, snapshot.producer_id, snapshot.producer_epoch) == ("PrepareAbort", 7, 3)
    assert (snapshot.timeout_ms, snapshot.start_ms, snapshot.last_update_ms) == (60_000, 10, 20)
    assert snapshot.partitions == (TopicPartition("orders", 0), TopicPartition("orders", 1))
    tagged = (snapshot.previous_producer_id, snapshot.client_transaction_version, snapshot.cause)
    assert tagged == ((6, 2, VALUE.cause) if version else (None, 0, None))
    assert snapshot.next_producer_id is None


def test_id_without_transaction_has_neither_start_nor_partitions() -> None:
    value = TransactionLogValue(
        producer_id=7, transaction_partitions=None, transaction_start_timestamp_ms=-1, transaction_status=0
    )
    snapshot = read_record(record(b"\0\0" + encode(value, 0))).snapshot
    assert snapshot is not None
    assert (snapshot.state, snapshot.start_ms, snapshot.partitions) == ("Empty", None, ())


def test_tombstone_reads_as_forgotten_id() -> None:
    assert read_record(record(None)).snapshot is None


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\x09" + bytes(40), b"\0\0\0"])
def test_unreadable_record_raises_with_its_offset(value: bytes) -> None:
    with pytest.raises(BadResponse, match="offset 5"):
        read_record(record(value))
