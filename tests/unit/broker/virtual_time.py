"""Run a test in virtual time: waits cost nothing, and a wait that nobody ends fails instead of hanging."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, ParamSpec

from tests.simulation.virtual_loop import VirtualLoop

P = ParamSpec("P")


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(Random(0))) as runner:
            runner.run(test(*args, **kwargs))

    return run


async def end_of_turn() -> None:
    """Let everything run that was deferred to the end of this turn of the loop."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
