"""The virtual loop and its processes: what is left of them when they end."""

import random
import warnings
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

from tests.simulation.virtual_loop import SimProcess, VirtualLoop


async def _numbers() -> AsyncGenerator[int, None]:
    yield 1


def test_loop_that_is_closed_closes_generators_that_were_left_open() -> None:
    loop = VirtualLoop(random.Random(1))
    closing = loop.create_task(_numbers().aclose())  # As asyncio does when a generator is collected.
    loop.close()
    assert not closing.done()


async def _inner() -> None: ...


async def _outer(inner: Coroutine[Any, Any, None]) -> None:
    await inner


def test_kill_of_a_process_drops_what_has_not_begun() -> None:
    loop = VirtualLoop(random.Random(1))
    process = SimProcess(loop, "p")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        process.run(_outer(_inner()))
        process.kill()
    loop.close()
    assert not caught
