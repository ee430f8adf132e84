"""Cancelling a call where it awaits for the n-th time."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any


class CancelledAt:
    """Awaits ``work``, and has the task that does so cancelled at the ``step``-th await inside; 0: never."""

    def __init__(self, work: Awaitable[Any], step: int, on_cancel: Callable[[], None]) -> None:
        self._work = work
        self._step = step
        self._on_cancel = on_cancel

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        count = 0
        failure: BaseException | None = None
        while True:
            try:
                waits_for = next(steps) if failure is None else steps.throw(failure)
            except StopIteration as end:
                return end.value
            count += 1
            if count == self._step:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                self._on_cancel()
            failure = None
            try:
                yield waits_for
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                failure = error
