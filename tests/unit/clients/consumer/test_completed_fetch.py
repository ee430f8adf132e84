"""One answer for one partition: given out in pieces, with errors in their places."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.clients.consumer.completed_fetch import CompletedFetch
from oncelog.clients.consumer.consumer_errors import UnreadableRecords
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import AbortedTransaction
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.records.control_records import build_end_txn_marker
from tests.stored_batch import stored
from tests.unit.clients.consumer.fetched import ORDERS, batch, completed


def offsets(fetch: CompletedFetch, limit: int) -> list[int]:
    return [record.offset for record in fetch.take(limit)]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 7), st.sampled_from(Compression))
def test_any_pieces_give_everything_once(counts: list[int], limit: int, codec: Compression) -> None:
    batches, end = [], 0
    for count in counts:
        batches.append(batch(end, count, codec=codec))
        end += count
    fetch = completed(0, *batches)
    assert fetch.next_offset == end
    seen: list[int] = []
    while not fetch.is_drained:
        taken = offsets(fetch, limit)
        assert 0 < len(taken) <= limit
        seen += taken
        assert fetch.position == seen[-1] + 1
    assert seen == list(range(end))
    assert fetch.take(limit) == []


def test_fetch_inside_a_batch_returns_records_from_the_fetch_offset() -> None:
    fetch = completed(3, batch(2, 3), batch(5, 1))
    assert offsets(fetch, 10) == [3, 4, 5]


def test_leader_epoch_is_that_of_the_batch_before_the_position() -> None:
    fetch = completed(0, batch(0, 2, epoch=4), batch(2, 2, epoch=6))
    fetch.take(2)
    assert (fetch.position, fetch.leader_epoch) == (2, 4)
    fetch.take(1)
    assert (fetch.position, fetch.leader_epoch) == (3, 6)


def test_position_moves_past_records_that_are_not_returned() -> None:
    marker = stored(
        build_end_txn_marker(producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=0, timestamp=0),
        base_offset=2,
    )
    fetch = completed(0, batch(0), bytes(marker))
    assert offsets(fetch, 2) == [0, 1]
    assert not fetch.is_drained
    assert fetch.take(5) == []
    assert fetch.position == 3
    assert fetch.is_drained


def test_cut_off_batch_is_left_for_the_next_fetch() -> None:
    fetch = completed(0, batch(0), batch(2)[:-1])
    assert offsets(fetch, 10) == [0, 1]
    assert (fetch.next_offset, fetch.is_drained, fetch.blocks) == (2, True, False)


def test_first_batch_cut_off_raises_an_error_that_names_the_setting() -> None:
    fetch = completed(4, batch(4)[:-1])
    assert fetch.blocks
    assert not fetch.is_drained
    with pytest.raises(
        UnreadableRecords, match=r"orders-0 at position 4: .*increase max_partition_fetch_bytes"
    ) as raised:
        fetch.take(1)
    assert raised.value.next_offset is None


def test_records_before_a_damaged_batch_are_returned_first() -> None:
    damaged = bytearray(batch(2))
    damaged[-2] ^= 0x40
    fetch = completed(0, batch(0), bytes(damaged), batch(4))
    assert offsets(fetch, 10) == [0, 1]
    for _ in range(2):
        with pytest.raises(UnreadableRecords, match=r"at position 2: .* its CRC is wrong; seek to 4") as raised:
            fetch.take(10)
        assert (raised.value.topic_partition, raised.value.position, raised.value.next_offset) == (ORDERS, 2, 4)
    assert not fetch.is_drained


def test_crcs_are_checked_by_default() -> None:
    damaged = bytearray(batch(0))
    damaged[-2] ^= 0x01
    fetch = completed(0, bytes(damaged), check_crcs=False)
    assert len(fetch.take(10)) == 2


def test_batch_above_max_batch_bytes_raises_at_its_place() -> None:
    bomb = batch(2, 2000, codec=Compression.ZSTD)
    fetch = completed(0, batch(0), bomb, max_batch_bytes=5000)
    assert offsets(fetch, 10) == [0, 1]
    with pytest.raises(UnreadableRecords, match=r"the batch at offset 2 .* more than 5000 bytes"):
        fetch.take(10)


def test_batch_of_an_old_format_raises_an_error_that_names_it() -> None:
    old = bytearray(batch(2))
    old[16] = 1
    fetch = completed(0, batch(0), bytes(old))
    assert (fetch.next_offset, fetch.blocks) == (2, True)
    fetch.take(2)
    with pytest.raises(UnreadableRecords, match="format version 1"):
        fetch.take(1)


def test_position_after_overlapping_batches_never_goes_back() -> None:
    """A broker that sends what was not requested."""
    fetch = completed(9, batch(2))
    assert fetch.take(10) == []
    assert (fetch.position, fetch.next_offset) == (9, 9)


def test_fetch_with_an_error_has_no_records_and_blocks() -> None:
    fetch = completed(5, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert fetch.blocks
    assert fetch.take(1) == []


def test_aborted_transaction_is_skipped_batch_by_batch() -> None:
    marker = stored(
        build_end_txn_marker(producer_id=-1, producer_epoch=0, commit=False, coordinator_epoch=0, timestamp=0),
        base_offset=2,
    )
    fetch = completed(0, batch(0), bytes(marker), batch(3), aborted=[AbortedTransaction(producer_id=5, first_offset=0)])
    assert offsets(fetch, 1) == [0]
    assert offsets(fetch, 10) == [1, 3, 4]
