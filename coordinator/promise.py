"""The result of a request or of an append: there already, or still to come.

A coordinator decides in one synchronous step, and responds when the high watermark has passed the record: in the same
call where one replica is enough, else later. ``Promise`` serves both without a future in the first case.

What a coordinator returns for a request is a ``Response``, one of three:

* the result itself;
* a future of it: the request is decided and in the log, and the result comes when the record is replicated, so the
  connection's next request may begin;
* ``Undecided``: nothing is done yet, and the connection's next request waits until the request is decided.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")


class Promise(Generic[T]):
    """A result that is completed once, now or later; later completions are ignored."""

    __slots__ = ("_callbacks", "value")

    def __init__(self) -> None:
        self.value: T | None = None
        """None until it is completed."""
        self._callbacks: tuple[Callable[[T], None], ...] = ()

    def complete(self, value: T) -> None:
        """Set the value and call back; do nothing if there is a value already."""
        if self.value is None:
            self.value = value
            callbacks, self._callbacks = self._callbacks, ()
            for callback in callbacks:
                callback(value)

    def then(self, callback: Callable[[T], None]) -> None:
        """Call back with the value: now if it is there, else when it comes, in the order of these calls."""
        if self.value is not None:
            callback(self.value)
        else:
            self._callbacks += (callback,)

    def result(self) -> T | asyncio.Future[T]:
        """Return the value if it is there, else a future of it."""
        return self.value if self.value is not None else self.future()

    def future(self) -> asyncio.Future[T]:
        """Return a future of the value. Cancelling it has no effect on this promise."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.then(partial(settle, future))
        return future


def settle(future: asyncio.Future[T], value: T) -> None:
    """Set the result of a future, unless it is done: the first result counts, and its reader may be gone."""
    if not future.done():
        future.set_result(value)


class Undecided(NamedTuple, Generic[T]):
    """A request that must wait before it is decided: for its transactional id, or for a producer id."""

    decide: Callable[[], Coroutine[Any, Any, T]]


Response: TypeAlias = T | asyncio.Future[T] | Undecided[T]


async def value_of(response: Response[T]) -> T:
    """Wait for the result."""
    if isinstance(response, Undecided):
        decided: T = await response.decide()
        return decided
    if isinstance(response, asyncio.Future):
        future: asyncio.Future[T] = response
        return await future
    return response
