"""The controller's work, one piece at a time.

Everything that a controller does runs in one task, in the order in which it was asked for, so that no piece of work
sees the middle of another. Between two pieces the loop has a turn, also when neither waits for anything: thousands of
requests that are only judged would otherwise be one turn of the loop. There are two ways to ask: a *hint* says that
something should be looked at and is kept once however often it is given; a *request* has an asker who waits for its
result. Requests are bounded in number: beyond that their askers wait for a place.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")
Work: TypeAlias = Callable[[], Awaitable[T]]

_MOST_REQUESTS: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Item:
    work: Work[Any]
    answer: asyncio.Future[Any] | None


class EventQueue:
    """Hints and requests, waiting for the task that runs them."""

    def __init__(self) -> None:
        self._items: dict[object, _Item] = {}
        """By what makes them the same: a hint's name, or an object of its own for a request."""
        self._places = asyncio.Semaphore(_MOST_REQUESTS)
        self._filled = asyncio.Event()

    def hint(self, name: str, work: Work[None]) -> None:
        """Run ``work`` some time, once, however often it is hinted at until then."""
        self._items.setdefault(name, _Item(work, None))
        self._filled.set()

    def forget_hints(self) -> None:
        """Whatever was hinted at need not be looked at any more. Requests stay."""
        self._items = {key: item for key, item in self._items.items() if item.answer is not None}

    async def request(self, work: Work[T], until: float | None = None) -> T:
        """Run ``work`` after what was asked before, and wait for it. It is run even if the asker is cancelled.

        Raises TimeoutError at the time ``until`` of the loop: work that has begun goes on, other work is dropped.
        """
        key = object()
        try:
            async with asyncio.timeout_at(until), self._places:
                answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
                self._items[key] = _Item(work, answer)
                self._filled.set()
                return await asyncio.shield(answer)
        except TimeoutError:
            self._items.pop(key, None)
            raise

    async def run(self, on_failure: Callable[[Exception], None]) -> None:
        """Run everything that is asked, for ever. What a hint's work raises goes to ``on_failure``; what a request's
        raises goes to its asker too."""
        try:
            while True:
                await self._filled.wait()
                while self._items:
                    item = self._items.pop(next(iter(self._items)))
                    await self._run(item, on_failure)
                    await asyncio.sleep(0)
                self._filled.clear()
        finally:
            for item in self._items.values():
                if item.answer is not None:
                    item.answer.cancel()
            self._items.clear()

    @staticmethod
    async def _run(item: _Item, on_failure: Callable[[Exception], None]) -> None:
        try:
            result = await item.work()
        except Exception as error:
            on_failure(error)
            if item.answer is not None and not item.answer.done():
                item.answer.set_exception(error)
        except BaseException:
            if item.answer is not None:
                item.answer.cancel()
            raise
        else:
            if item.answer is not None and not item.answer.done():
                item.answer.set_result(result)
