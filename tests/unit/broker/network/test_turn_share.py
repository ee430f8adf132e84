"""What connections may still begin in a turn of the loop."""

import asyncio

import pytest

from oncelog.broker.network.turn_share import SMALL, TURN_UNITS, TurnShare, units_of
from tests.unit.broker.virtual_time import in_virtual_time


@in_virtual_time
async def test_connection_begins_one_request_when_others_have_used_up_the_turn() -> None:
    share = TurnShare()
    assert share.limit(64) == 64
    share.spend(TURN_UNITS - 10)
    assert share.limit(64) == 10
    share.spend(300)
    assert share.limit(64) == 1
    await asyncio.sleep(0)
    assert share.limit(64) == 64


@pytest.mark.parametrize("spent", [1, TURN_UNITS, 2 * TURN_UNITS])
@in_virtual_time
async def test_connection_whose_slice_is_used_up_begins_nothing(spent: int) -> None:
    share = TurnShare()
    share.spend(spent)
    assert share.limit(0) == 0
    assert share.limit(-3) <= 0


@in_virtual_time
async def test_requests_that_wait_begin_in_order_as_far_as_units_suffice() -> None:
    share, begun = TurnShare(), list[int]()
    share.spend(TURN_UNITS)
    for number in range(7):

        def begin(number: int = number) -> None:
            begun.append(number)
            share.spend(TURN_UNITS // 2)

        share.await_turn(begin)
    seen = []
    for _ in range(5):
        await asyncio.sleep(0)
        seen.append(len(begun))
    assert seen == [2, 4, 6, 7, 7]
    assert begun == list(range(7))
    assert share.limit(64) == 64


def test_units_of_a_frame_are_those_of_its_size_and_api() -> None:
    def frame(api_key: int, size: int) -> memoryview:
        return memoryview(api_key.to_bytes(2, "big") + bytes(size - 2))

    assert units_of(memoryview(b"")) == 1
    assert units_of(frame(3, SMALL - 1)) == 1
    assert units_of(frame(3, 100_000)) > 350
    assert units_of(frame(0, 100_000)) < 30
