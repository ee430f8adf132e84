"""Rows from Spark, pulled in a thread of their own, so that the loop goes on while Spark computes them.

A task's rows come from a blocking iterator, and the next one may be minutes away. If the loop stood still meanwhile,
records that were sent would expire (``kafka.delivery.timeout.ms``) although their responses are in the socket, and
those that wait for their turn would not leave. One row batch is pulled at a time, and only when the task wants it:
Spark is not read ahead of what brokers take.
"""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from threading import Thread
from typing import Any, Final, Generic, Self, TypeVar

T = TypeVar("T")

_END: Final = object()


class PulledRows(Generic[T]):
    """An asynchronous iterator over a blocking one. ``close`` ends its thread, once the blocking iterator returns.

    The thread runs a loop of its own, which the blocking iterator may hold up. It is a daemon: a worker process that
    ends does not wait for rows that are still being computed.
    """

    def __init__(self, rows: Iterator[T]) -> None:
        self._rows = rows
        self._thread_loop = asyncio.new_event_loop()
        self._thread_loop.set_exception_handler(_ignore)
        Thread(target=self._run_thread, name="sink: rows from Spark", daemon=True).start()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Return the next row batch. Raises what the blocking iterator raises."""
        found = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._pull(), self._thread_loop))
        if found is _END:
            raise StopAsyncIteration
        return found  # type: ignore[return-value]  # What is not the end is a row batch.

    def close(self) -> None:
        """Let the thread end after the pull that is under way, if any; its outcome is dropped."""
        self._thread_loop.call_soon_threadsafe(self._thread_loop.stop)

    async def _pull(self) -> object:
        return next(self._rows, _END)

    def _run_thread(self) -> None:
        with closing(self._thread_loop):
            self._thread_loop.run_forever()


def _ignore(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Drop the error of a pull that was cancelled: asyncio would log that no task has seen it."""
