"""What a handler's outcome comes to, for tests that call handlers without a dispatcher."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from oncelog.broker.dispatch.api_handler import Outcome, Shaped
from oncelog.coordinator.promise import Undecided


def without_shape(outcome: Outcome) -> Any:
    """Return the response, None, a future of it, or a coroutine of one of these."""
    if isinstance(outcome, Coroutine):
        return _awaited(outcome)
    if not isinstance(outcome, Shaped):
        return outcome
    result, shape = outcome
    if isinstance(result, asyncio.Future):
        return _mapped(result, shape)
    return _decided(result, shape) if isinstance(result, Undecided) else shape(result)


async def _awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return without_shape(await coroutine)


async def _decided(undecided: Undecided[Any], shape: Callable[[Any], Any]) -> Any:
    return shape(await undecided.decide())


def _mapped(future: "asyncio.Future[Any]", shape: Callable[[Any], Any]) -> "asyncio.Future[Any]":
    mapped: asyncio.Future[Any] = future.get_loop().create_future()
    future.add_done_callback(lambda done: mapped.set_result(shape(done.result())))
    return mapped
