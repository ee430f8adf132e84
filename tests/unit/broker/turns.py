"""How much is done in one turn of the loop, in lines of Python: the same number on every machine."""

import asyncio
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


async def longest_turn(begin: Callable[[], Any]) -> tuple[Any, int]:
    """The outcome of a request, and the most lines that were executed between two turns of another task."""
    lines = longest = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    async def watch() -> None:
        nonlocal lines, longest
        while True:
            longest, lines = max(longest, lines), 0
            await asyncio.sleep(0)

    watcher = asyncio.get_running_loop().create_task(watch())
    await asyncio.sleep(0)
    previous = sys.gettrace()
    sys.settrace(count)
    try:
        outcome = begin()
        if asyncio.iscoroutine(outcome) or asyncio.isfuture(outcome):
            outcome = await outcome
    finally:
        sys.settrace(previous)
        await asyncio.sleep(0)
        watcher.cancel()
    return outcome, longest
