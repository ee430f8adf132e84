"""What connections may still begin in a turn of the loop."""

import asyncio

import pytest

from broker.network.turn_share import TURN_REQUESTS, TurnShare
from tests.unit.broker.virtual_time import in_virtual_time


@in_virtual_time
async def test_connection_begins_one_request_when_others_have_used_up_the_turn() -> None:
    share = TurnShare()
    assert share.limit(64) == 64
    share.spend(TURN_REQUESTS - 10)
    assert share.limit(64) == 10
    share.spend(300)
    assert share.limit(64) == 1
    await asyncio.sleep(0)
    assert share.limit(64) == 64


@pytest.mark.parametrize("spent", [1, TURN_REQUESTS, 2 * TURN_REQUESTS])
@in_virtual_time
async def test_connection_whose_slice_is_used_up_begins_nothing(spent: int) -> None:
    share = TurnShare()
    share.spend(spent)
    assert share.limit(0) == 0
    assert share.limit(-3) <= 0
