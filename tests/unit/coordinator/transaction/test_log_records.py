"""The bytes of ``__transaction_state``, pinned, and read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.transaction.log_records import (
    build_record_batch,
    encode_key,
    encode_value,
    read_record,
    value_version,
)
from oncelog.coordinator.transaction.state import TransactionMetadata
from oncelog.coordinator.transaction.transaction_state import PERSISTED_STATES, TransactionState
from oncelog.protocol.compiler import encode
from oncelog.protocol.internal.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from oncelog.protocol.records.record_batch import CorruptRecord, Record, iter_records, read_header
from oncelog.protocol.topic_partition import TopicPartition

ONGOING = TransactionMetadata(
    producer_id=4000,
    producer_epoch=7,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset(
        {TopicPartition("orders", 2), TopicPartition("orders", 1), TopicPartition("__consumer_offsets", 5)}
    ),
    start_ms=1_700_000_000_000,
    last_update_ms=1_700_000_000_001,
    previous_producer_id=4000,
    last_producer_epoch=6,
)


def record(key: bytes | None, value: bytes | None) -> Record:
    return Record(0, 0, key, value, [])


def test_bytes_are_those_of_version_0() -> None:
    assert encode_key("id") == bytes.fromhex("000000026964")
    assert encode_value(ONGOING, 0) == (
        bytes.fromhex("00000000000000000fa000070000ea600100000002")
        + bytes.fromhex("0012")
        + b"__consumer_offsets"
        + bytes.fromhex("0000000100000005")
        + bytes.fromhex("0006")
        + b"orders"
        + bytes.fromhex("000000020000000100000002")
        + (1_700_000_000_001).to_bytes(8, "big")
        + (1_700_000_000_000).to_bytes(8, "big")
    )


def test_empty_transaction_has_null_for_partitions() -> None:
    empty = TransactionMetadata(
        producer_id=1, producer_epoch=0, timeout_ms=1, state=TransactionState.EMPTY, partitions=frozenset(),
        start_ms=-1, last_update_ms=5,
    )  # fmt: skip
    assert bytes.fromhex("00ffffffff") in encode_value(empty, 0)


def test_bytes_of_version_1_have_what_differs_from_the_defaults_as_tagged_fields() -> None:
    """B25. Tag 10000 is not Kafka's: it says why."""
    prepared = ONGOING._replace(
        state=TransactionState.PREPARE_ABORT,
        partitions=frozenset({TopicPartition("orders", 2)}),
        next_producer_id=4001,
        client_transaction_version=2,
        cause="late",
    )
    assert encode_value(prepared, 1) == (
        bytes.fromhex("00010000000000000fa000070000ea6003")
        + bytes.fromhex("0207")
        + b"orders"
        + bytes.fromhex("020000000200")
        + (1_700_000_000_001).to_bytes(8, "big")
        + (1_700_000_000_000).to_bytes(8, "big")
        + bytes.fromhex("04")
        + bytes.fromhex("0008")
        + (4000).to_bytes(8, "big")
        + bytes.fromhex("0108")
        + (4001).to_bytes(8, "big")
        + bytes.fromhex("02020002")
        + bytes.fromhex("904e0505")
        + b"late"
    )


names = st.text(max_size=8) | st.text(min_size=126, max_size=130)
partitions = st.frozensets(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), max_size=6) | st.just(
    frozenset(TopicPartition("wide", index) for index in range(200))
)
metadata = st.builds(
    TransactionMetadata,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from(sorted(PERSISTED_STATES - {TransactionState.EMPTY}, key=lambda state: int(state.value))),
    partitions=partitions,
    start_ms=st.integers(-1, 2**60),
    last_update_ms=st.integers(0, 2**60),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    client_transaction_version=st.sampled_from([0, 2]),
    cause=st.none() | names,
    last_producer_epoch=st.just(-1),
)


@pytest.mark.parametrize("version", [0, 1])
@given(st.text(min_size=1, max_size=20), metadata)
def test_written_value_is_read_back(version: int, transactional_id: str, written: TransactionMetadata) -> None:
    """B25: every field in version 1; in version 0 those that it has."""
    batch = build_record_batch(transactional_id, written, 5, value_version=version)
    (found,) = iter_records(batch, 0, read_header(batch), max_decompressed_bytes=1 << 20)
    entry = read_record(found)
    assert entry is not None
    assert entry == (transactional_id, written if version == 1 else without_tagged_fields(written))


def without_tagged_fields(written: TransactionMetadata) -> TransactionMetadata:
    return written._replace(previous_producer_id=-1, next_producer_id=-1, client_transaction_version=0, cause=None)


@pytest.mark.parametrize("version", [0, 1])
@given(metadata)
def test_handwritten_value_encoding_equals_schema(version: int, written: TransactionMetadata) -> None:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(written.partitions):
        topics.setdefault(topic, []).append(partition)
    value = TransactionLogValue(
        producer_id=written.producer_id,
        previous_producer_id=written.previous_producer_id,
        next_producer_id=written.next_producer_id,
        producer_epoch=written.producer_epoch,
        transaction_timeout_ms=written.timeout_ms,
        transaction_status=written.state.value,
        transaction_partitions=[PartitionsSchema(topic=name, partition_ids=ids) for name, ids in topics.items()],
        transaction_last_update_timestamp_ms=written.last_update_ms,
        transaction_start_timestamp_ms=written.start_ms,
        client_transaction_version=written.client_transaction_version,
        cause=written.cause,
    )
    assert encode_value(written, version) == bytes([0, version]) + encode(value, version)
    empty = written._replace(state=TransactionState.EMPTY, partitions=frozenset())
    value.transaction_status, value.transaction_partitions = 0, None
    assert encode_value(empty, version) == bytes([0, version]) + encode(value, version)


@given(st.text(min_size=1, max_size=200))
def test_handwritten_key_encoding_equals_schema(transactional_id: str) -> None:
    assert encode_key(transactional_id) == b"\0\0" + encode(TransactionLogKey(transactional_id=transactional_id), 0)


def test_tagged_fields_are_written_as_soon_as_the_cluster_has_finalised_them() -> None:
    assert [value_version(ONGOING, level) for level in (0, 1, 2)] == [0, 1, 1]


def test_producer_id_that_is_set_aside_is_written_at_any_level() -> None:
    """B25: after a downgrade too, whoever completes the transaction must know whom it changes over to."""
    rotating = ONGOING._replace(state=TransactionState.PREPARE_COMMIT, next_producer_id=4001)
    assert value_version(rotating, 0) == 1


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("status", [6, 7, 8, -1])
def test_state_that_is_never_written_is_corrupt(status: int, version: int) -> None:
    value = bytearray(encode_value(ONGOING, version))
    value[2 + 8 + 2 + 4] = status & 0xFF
    with pytest.raises(CorruptRecord):
        read_record(record(encode_key("id"), bytes(value)))


@pytest.mark.parametrize("state", [TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE])
def test_state_that_is_only_passed_through_cannot_be_written(state: TransactionState) -> None:
    passing = TransactionMetadata(
        producer_id=1, producer_epoch=0, timeout_ms=1, state=state, partitions=frozenset(), start_ms=0, last_update_ms=0
    )
    with pytest.raises(AssertionError):
        encode_value(passing)
