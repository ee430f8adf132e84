"""Rows from Spark, asked for in a thread of their own, so that the loop goes on while Spark computes them.

A task's rows come from a blocking iterator, and the next one may be minutes away. If the loop stood still meanwhile,
records that were sent would expire (``kafka.delivery.timeout.ms``) although their answers are in the socket, and those
that wait for their turn would not leave. One row batch is asked for at a time, and only when the task wants it: Spark
is not read ahead of what brokers take.
"""

import asyncio
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, Generic, Self, TypeVar

T = TypeVar("T")

_END: Final = object()


class PulledRows(Generic[T]):
    """An asynchronous iterator over a blocking one. ``close`` ends its thread, once the iterator returns.

    After ``close`` the thread leaves the loop alone, which may be closed when the iterator returns at last.
    The thread is a daemon: a worker that is to end does not wait for an upstream that has more to compute.
    """

    def __init__(self, rows: Iterator[T]) -> None:
        self._rows = rows
        self._loop = asyncio.get_running_loop()
        self._wanted: SimpleQueue[asyncio.Future[object] | None] = SimpleQueue()
        self._handing_over = Lock()
        self._closed = False
        Thread(target=self._pull, name="sink: rows from Spark", daemon=True).start()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Raises what the blocking iterator raises."""
        pulled: asyncio.Future[object] = self._loop.create_future()
        self._wanted.put(pulled)
        found = await pulled
        if found is _END:
            raise StopAsyncIteration
        return found  # type: ignore[return-value]  # What is not the end is a row.

    def close(self) -> None:
        with self._handing_over:
            self._closed = True
        self._wanted.put(None)

    def _pull(self) -> None:
        while (pulled := self._wanted.get()) is not None:
            try:
                found: object = next(self._rows, _END)
            except BaseException as error:  # It belongs to the task, whatever it is.
                self._hand_over(_fail, pulled, error)
            else:
                self._hand_over(_succeed, pulled, found)

    def _hand_over(
        self, settle: "Callable[[asyncio.Future[object], Any], None]", pulled: "asyncio.Future[object]", found: object
    ) -> None:
        """Under the lock, so that the loop is not closed between the look at ``_closed`` and the call."""
        with self._handing_over:
            if not self._closed:
                self._loop.call_soon_threadsafe(settle, pulled, found)


def _succeed(pulled: "asyncio.Future[object]", found: object) -> None:
    if not pulled.done():
        pulled.set_result(found)


def _fail(pulled: "asyncio.Future[object]", error: BaseException) -> None:
    if not pulled.done():
        pulled.set_exception(error)
