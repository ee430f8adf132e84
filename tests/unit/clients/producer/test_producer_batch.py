"""Batches as they are filled, sent, split and done."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.clients.errors import BrokerRefused, ClientError, IllegalState, Refusal
from oncelog.clients.producer.future_record_metadata import FutureRecordMetadata
from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.producer_id_and_epoch import ProducerIdAndEpoch
from oncelog.clients.producer.record_metadata import RecordMetadata
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.record_batch import NewRecord, build_batch, crc_is_valid, iter_records, read_header
from oncelog.protocol.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 3)
PRODUCER = ProducerIdAndEpoch(4000, 2)
NOW_MS = 1_700_000_000_000
UNLIMITED = 2**30

blobs = st.one_of(st.none(), st.binary(max_size=70), st.integers(8_100, 8_300).map(bytes))
headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=2)
timestamps = st.one_of(st.integers(0, 10), st.integers(-5, 20_000)).map(lambda delta: NOW_MS + delta)
records = st.builds(NewRecord, timestamps, blobs, blobs, headers)


def batch_of(*added: NewRecord, limit: int = UNLIMITED) -> ProducerBatch:
    batch = ProducerBatch(ORDERS, limit, added[0].timestamp, 0.0)
    for record in added:
        assert batch.append(*record)
    return batch


def values(*names: str) -> list[NewRecord]:
    return [NewRecord(NOW_MS, None, name.encode()) for name in names]


@settings(max_examples=200, deadline=None)
@given(st.lists(records, min_size=1, max_size=6), st.sampled_from(Compression))
def test_batch_bytes_equal_those_of_the_protocol(added: list[NewRecord], codec: Compression) -> None:
    batch = batch_of(*added)
    batch.assign(PRODUCER, 17, is_transactional=True)
    expected = build_batch(
        added, compression=codec, producer_id=4000, producer_epoch=2, base_sequence=17, is_transactional=True
    )
    assert batch.encode(codec) == expected


def test_long_batches_leave_the_table_of_short_varints() -> None:
    added = values(*("x" for _ in range(8_200)))
    assert batch_of(*added).encode(Compression.NONE) == build_batch(added)


def test_value_of_another_type_leaves_the_batch_unchanged() -> None:
    batch = batch_of(*values("one"))
    with pytest.raises(TypeError):
        batch.append(NOW_MS, None, "a string", ())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        batch.append(NOW_MS, "a string", b"value", ())  # type: ignore[arg-type]
    assert batch.record_count == 1
    assert batch.encode(Compression.NONE) == build_batch(values("one"))


def test_record_that_does_not_fit_leaves_the_batch_as_it_was() -> None:
    batch = batch_of(*values("one"), limit=80)
    assert batch.append(NOW_MS + 5, None, bytes(20), ()) == 0
    assert batch.append(NOW_MS + 5, None, b"12", ()) > 0
    header = read_header(batch.encode(Compression.NONE))
    assert (header.records_count, header.max_timestamp) == (2, NOW_MS + 5)


def test_first_record_always_fits() -> None:
    batch = batch_of(*values("x" * 1000), limit=80)
    assert batch.is_full


def test_retry_keeps_its_sequence_and_the_bytes_of_the_former_attempt() -> None:
    batch = batch_of(*values("one"))
    batch.assign(PRODUCER, 5, is_transactional=False)
    first = batch.encode(Compression.NONE)
    batch.attempts = 1
    second = batch.encode(Compression.NONE)
    assert second is not first
    assert second == first


@pytest.mark.parametrize("codec", Compression)
def test_changed_sequence_changes_the_crc(codec: Compression) -> None:
    batch = batch_of(*values("one", "two"))
    batch.assign(PRODUCER, 5, is_transactional=False)
    before = bytes(batch.encode(codec))
    batch.attempts = 1
    batch.forget_sequence()
    batch.assign(PRODUCER._replace(epoch=3), 0, is_transactional=False)
    encoded = batch.encode(codec)
    header = read_header(encoded)
    assert (header.producer_epoch, header.base_sequence) == (3, 0)
    assert crc_is_valid(encoded, 0, header)
    assert encoded != before
    assert [record.value for record in iter_records(encoded, 0, header, max_decompressed_bytes=100)] == [b"one", b"two"]


def test_batch_that_may_be_written_keeps_its_sequence() -> None:
    batch = batch_of(*values("one"))
    batch.assign(PRODUCER, 5, is_transactional=False)
    batch.maybe_written = True
    with pytest.raises(AssertionError):
        batch.forget_sequence()


def test_batch_is_done_once_whatever_response_comes_later() -> None:
    batch = batch_of(*values("one", "two"))
    reported: list[str] = []
    batch.when_done(lambda: reported.append("first"))
    assert batch.complete(40, -1)
    assert not batch.fail(ClientError("late"))
    assert not batch.complete(50, -1)
    batch.when_done(lambda: reported.append("second"))
    assert reported == ["first", "second"]
    assert batch.metadata(1, NOW_MS) == RecordMetadata("orders", 3, 41, NOW_MS)


def test_metadata_has_log_append_time_and_may_have_no_offset() -> None:
    appended, duplicate = batch_of(*values("one")), batch_of(*values("one"))
    appended.complete(40, NOW_MS + 9)
    duplicate.complete(-1, -1)
    assert appended.metadata(0, NOW_MS).timestamp_ms == NOW_MS + 9
    assert duplicate.metadata(0, NOW_MS).offset == -1


def test_single_records_may_fail_with_errors_of_their_own() -> None:
    batch = batch_of(*values("one", "two"))
    of_all = BrokerRefused("orders-3", Refusal(error=ErrorCode.INVALID_RECORD))
    of_second = BrokerRefused("orders-3", Refusal(error=ErrorCode.INVALID_TIMESTAMP))
    batch.fail(of_all, {1: of_second})
    assert [batch.error_of(index) for index in range(2)] == [of_all, of_second]


def test_parts_hold_all_records_and_complete_the_batch() -> None:
    batch = batch_of(*values("one", "two", "three"))
    batch.assign(PRODUCER, 2**31 - 2, is_transactional=True)
    batch.encode(Compression.LZ4)
    futures = [FutureRecordMetadata(batch, index, NOW_MS) for index in range(3)]
    first, second, third = batch.split(1, UNLIMITED)
    assert [part.base_sequence for part in (first, second, third)] == [2**31 - 2, 2**31 - 1, 0]
    assert all(part.is_transactional and part.producer == PRODUCER for part in (first, second, third))
    first.complete(10, -1)
    third.complete(12, -1)
    assert not futures[0].done()
    with pytest.raises(IllegalState):
        futures[0].result()
    second.fail(ClientError("no"))
    assert all(future.done() for future in futures)
    assert [futures[0].result().offset, futures[2].result().offset] == [10, 12]
    with pytest.raises(ClientError, match="no"):
        futures[1].result()


def test_parts_can_be_split_again() -> None:
    batch = batch_of(*values("one", "two", "three"))
    batch.encode(Compression.NONE)
    (part,) = batch.split(UNLIMITED, UNLIMITED)
    part.encode(Compression.NONE)
    for offset, small in enumerate(part.split(1, UNLIMITED)):
        small.complete(offset, -1)
    assert batch.is_done
    assert [batch.metadata(index, 0).offset for index in range(3)] == [0, 1, 2]
