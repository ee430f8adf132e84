"""How much is requested at a time."""

import pytest

from oncelog.clients.consumer.read_ahead import MAX_UNREAD_RESPONSES, partition_bytes, response_bytes

_MEBIBYTE = 1 << 20


@pytest.mark.parametrize("brokers", [1, 3, 7])
def test_unread_responses_of_all_brokers_fill_the_buffer_and_no_more(brokers: int) -> None:
    most = MAX_UNREAD_RESPONSES * brokers * response_bytes(16 * _MEBIBYTE, brokers)
    assert 16 * _MEBIBYTE - MAX_UNREAD_RESPONSES * brokers < most <= 16 * _MEBIBYTE


def test_request_has_room_for_something_however_small_the_buffer() -> None:
    assert response_bytes(1, 0) == response_bytes(1, 9) == 1


@pytest.mark.parametrize(
    ("partitions", "size"), [(0, 1 << 20), (8, 1 << 20), (9, 1 << 19), (100, 1 << 16), (10_000, 1 << 16)]
)
def test_partitions_share_a_response_down_to_what_batches_need(partitions: int, size: int) -> None:
    assert partition_bytes(_MEBIBYTE, 8 * _MEBIBYTE, partitions) == size


def test_fetch_with_a_smaller_partition_limit_requests_less() -> None:
    assert partition_bytes(500, 8 * _MEBIBYTE, 1) == 500
