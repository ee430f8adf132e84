"""The bytes of ``__transaction_state``, pinned, and read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.transaction.log_records import build_record_batch, encode_key, encode_value, read_record
from coordinator.transaction.state import PERSISTED_STATES, TransactionMetadata, TransactionState
from protocol.compiler import encode
from protocol.internal.transaction_log import PartitionsSchema, TransactionLogValue
from protocol.records.record_batch import CorruptRecord, Record, iter_records, read_header
from protocol.topic_partition import TopicPartition

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


def test_the_bytes_are_those_of_version_0() -> None:
    assert encode_key("id") == bytes.fromhex("000000026964")
    assert encode_value(ONGOING) == (
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


def test_an_empty_transaction_has_null_for_partitions() -> None:
    empty = TransactionMetadata(
        producer_id=1, producer_epoch=0, timeout_ms=1, state=TransactionState.EMPTY, partitions=frozenset(),
        start_ms=-1, last_update_ms=5,
    )  # fmt: skip
    assert bytes.fromhex("00ffffffff") in encode_value(empty)


partitions = st.frozensets(st.builds(TopicPartition, st.text(max_size=8), st.integers(0, 2**31 - 1)), max_size=6)
metadata = st.builds(
    TransactionMetadata,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from(sorted(PERSISTED_STATES - {TransactionState.EMPTY}, key=lambda state: int(state.value))),
    partitions=partitions,
    start_ms=st.integers(-1, 2**60),
    last_update_ms=st.integers(0, 2**60),
)


@given(st.text(min_size=1, max_size=20), metadata)
def test_what_is_written_is_read_back(transactional_id: str, written: TransactionMetadata) -> None:
    batch = build_record_batch(transactional_id, written, 5)
    (found,) = iter_records(batch, 0, read_header(batch), max_decompressed_bytes=1 << 20)
    entry = read_record(found)
    assert entry is not None
    assert entry == (transactional_id, written)


def test_values_of_version_1_are_read_with_their_tagged_fields() -> None:
    """B25: previous and next producer ids survive where the log has them."""
    value = TransactionLogValue(
        producer_id=4001,
        previous_producer_id=4000,
        next_producer_id=4002,
        producer_epoch=0,
        transaction_timeout_ms=60_000,
        transaction_status=TransactionState.COMPLETE_COMMIT.value,
        transaction_partitions=[PartitionsSchema(topic="orders", partition_ids=[1])],
        transaction_last_update_timestamp_ms=9,
        transaction_start_timestamp_ms=8,
        client_transaction_version=2,
    )
    entry = read_record(record(encode_key("id"), b"\0\1" + encode(value, 1)))
    assert entry is not None
    found = entry.metadata
    assert found is not None
    assert (found.previous_producer_id, found.next_producer_id, found.client_transaction_version) == (4000, 4002, 2)
    assert found.partitions == {TopicPartition("orders", 1)}


@pytest.mark.parametrize("status", [6, 7, 8, -1])
def test_a_state_that_is_never_written_is_not_believed(status: int) -> None:
    value = bytearray(encode_value(ONGOING))
    value[2 + 8 + 2 + 4] = status & 0xFF
    with pytest.raises(CorruptRecord):
        read_record(record(encode_key("id"), bytes(value)))


@pytest.mark.parametrize("state", [TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE])
def test_a_state_that_is_only_passed_through_cannot_be_written(state: TransactionState) -> None:
    passing = TransactionMetadata(
        producer_id=1, producer_epoch=0, timeout_ms=1, state=state, partitions=frozenset(), start_ms=0, last_update_ms=0
    )
    with pytest.raises(AssertionError):
        encode_value(passing)
