"""The time for which a connection is not read."""

import asyncio
import sys

from oncelog.broker.network.mute import Mute
from tests.unit.broker.virtual_time import in_virtual_time


class Changes:
    """Notes when it was called."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self) -> None:
        self.times.append(asyncio.get_running_loop().time())


@in_virtual_time
async def test_mute_notifies_when_it_has_begun_and_when_it_ends() -> None:
    loop, changes = asyncio.get_running_loop(), Changes()
    mute, began = Mute(loop, changes), loop.time()
    mute.begin(5)
    assert mute.is_on
    assert changes.times == []
    await asyncio.sleep(4)
    assert mute.is_on
    await asyncio.sleep(2)
    assert not mute.is_on
    assert changes.times == [began, began + 5]


@in_virtual_time
async def test_mute_that_is_on_lasts_for_the_longer_time() -> None:
    loop, changes = asyncio.get_running_loop(), Changes()
    mute, began = Mute(loop, changes), loop.time()
    mute.begin(5)
    mute.begin(3)
    await asyncio.sleep(4)
    mute.begin(6)
    await asyncio.sleep(60)
    assert changes.times == [began, began + 10]


@in_virtual_time
async def test_mute_of_a_lost_connection_never_notifies() -> None:
    changes = Changes()
    mute = Mute(asyncio.get_running_loop(), changes)
    mute.begin(5)
    mute.forget()
    mute.begin(5)
    await asyncio.sleep(60)
    assert changes.times == []


@in_virtual_time
async def test_mute_of_a_lost_connection_has_no_timer() -> None:
    mute = Mute(asyncio.get_running_loop(), Changes())
    mute.begin(100_000)
    await asyncio.sleep(1)
    mute.forget()
    assert sys.getrefcount(mute) == 2, "that of this test and the argument; a timer would keep it for a day"
