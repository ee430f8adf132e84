"""Since when the event loop has turned, so that what was connected before has been accepted."""

import asyncio

from oncelog.broker.network.loop_turns import LoopTurns
from oncelog.coordinator.ports import NEVER
from tests.unit.broker.virtual_time import in_virtual_time


def test_loop_that_stood_still_has_accepted_nothing_meanwhile() -> None:
    """B111: the first connections that it accepts afterwards may be as old as the stall."""
    turns = LoopTurns()
    found = [turns.all_accepted_until()]
    for now in (0.5, 1.0, 9.0, 9.5):  # It stands still from 1.1 to 9.0, say.
        turns.note(now)
        found.append(turns.all_accepted_until())
    assert found == [NEVER, NEVER, 0.5, 1.0, 9.0]


@in_virtual_time
async def test_loop_that_turns_accepts_everything_within_a_second() -> None:
    turns = LoopTurns()
    turns.start()
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(60.0)
    assert 58.9 < turns.all_accepted_until() - began < 60.0
    turns.stop()
    await asyncio.sleep(60.0)
    assert turns.all_accepted_until() - began < 60.0
