"""The controller's work, one piece at a time.

Everything that a controller does runs in one task, so that no piece of work sees the middle of another. Between two
pieces the loop has a turn, also when neither awaits anything: thousands of requests that are only checked would
otherwise be one turn of the loop.

Work comes in two lanes, each in its own order:

* ``cluster``: what keeps partitions available. *Events* (a change notification of the metadata store, a response of a
  broker) and the requests of brokers;
* ``clients``: administrative requests.

The cluster's lane goes first: after a broker has failed, the election of new leaders does not wait until thousands of
topics have been created. Clients do not starve: after ``_MOST_IN_A_ROW`` pieces of the cluster's work one of theirs
runs.

An event has a key and is queued once, however often it is put until it runs. A request has a caller that awaits its
result. The number of queued requests is bounded; further callers wait for a place. A request has its place until its
work begins or is dropped, also if its caller is gone: the work stays in the queue.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")
Work: TypeAlias = Callable[[], Awaitable[T]]
OnFailure: TypeAlias = Callable[[BaseException], None]

_MOST_REQUESTS: Final = 1_000
"""Queued in one lane."""
_MOST_IN_A_ROW: Final = 100
"""Pieces of the cluster's work before one of a client's, if there is one."""


class QueueEnded(Exception):
    """The task that runs the queue has ended: a request would wait for ever."""


@dataclass(frozen=True, slots=True)
class _Item:
    work: Work[Any]
    response: asyncio.Future[Any] | None
    """None for an event."""


class Lane:
    """Work that runs in the order in which it came."""

    def __init__(self, filled: asyncio.Event) -> None:
        self._filled = filled
        self._items: dict[Hashable, _Item] = {}
        """By key; a request has an object of its own as its key."""
        self._places = asyncio.Semaphore(_MOST_REQUESTS)
        self._has_ended = False
        """Events are still queued then, for the next run."""

    def put(self, key: Hashable, work: Work[None]) -> None:
        """Queue an event, unless one of this key is queued."""
        self._items.setdefault(key, _Item(work, None))
        self._filled.set()

    def clear_events(self) -> None:
        """Drop all events. Requests stay."""
        self._items = {key: item for key, item in self._items.items() if item.response is not None}

    async def request(self, work: Work[T], until: float | None = None) -> T:
        """Queue ``work`` and return its result. It runs even if the caller is cancelled.

        Raises TimeoutError at the time ``until`` of the loop: work that has begun goes on, other work is dropped.
        Raises QueueEnded instead of waiting for a run that has ended.
        """
        key = object()
        try:
            async with asyncio.timeout_at(until):
                await self._places.acquire()
                if self._has_ended:
                    self._places.release()  # The next caller that waits for a place learns it too.
                    raise QueueEnded
                response: asyncio.Future[T] = asyncio.get_running_loop().create_future()
                self._items[key] = _Item(work, response)
                self._filled.set()
                return await asyncio.shield(response)
        except TimeoutError:
            if self._items.pop(key, None) is not None:
                self._places.release()
            raise

    def __len__(self) -> int:
        """Return how much work is queued."""
        return len(self._items)

    def pop(self) -> _Item:
        """Remove and return the oldest item."""
        item = self._items.pop(next(iter(self._items)))
        if item.response is not None:
            self._places.release()
        return item

    def begin(self) -> None:
        """Accept requests, also after an ``end``."""
        self._has_ended = False

    def end(self) -> None:
        """Drop everything; the callers of queued requests get CancelledError, later ones QueueEnded."""
        self._has_ended = True
        while self._items:
            response = self.pop().response
            if response is not None:
                response.cancel()


class EventQueue:
    """The two lanes, and the task that runs what is in them."""

    def __init__(self) -> None:
        self._filled = asyncio.Event()
        self.cluster = Lane(self._filled)
        self.clients = Lane(self._filled)
        self._in_a_row = 0

    async def run(self, on_failure: OnFailure) -> None:
        """Run all work until cancelled. An error goes to ``on_failure``, and that of a request to its caller too."""
        self.cluster.begin()
        self.clients.begin()
        try:
            while True:
                await self._filled.wait()
                while self.cluster or self.clients:
                    await _run(self._next(), on_failure)
                    await asyncio.sleep(0)
                self._filled.clear()
        finally:
            self.cluster.end()
            self.clients.end()

    def _next(self) -> _Item:
        if self.cluster and (self._in_a_row < _MOST_IN_A_ROW or not self.clients):
            self._in_a_row += 1
            return self.cluster.pop()
        self._in_a_row = 0
        return self.clients.pop()


class _Reporting:
    """A ``with`` block around the work of an item: its error goes to ``on_failure``, and to the caller too.

    Only a cancellation of the task that runs the queue goes on; it cancels the response. Work that was cancelled from
    within has failed.
    """

    __slots__ = ("_on_failure", "_response")

    def __init__(self, response: asyncio.Future[Any] | None, on_failure: OnFailure) -> None:
        self._response = response
        self._on_failure = on_failure

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        response = self._response
        if isinstance(error, asyncio.CancelledError) and _is_this_task_cancelled():
            if response is not None:
                response.cancel()
            return False
        if not isinstance(error, (Exception, asyncio.CancelledError)):
            return False
        self._on_failure(error)
        if response is not None and not response.done():
            response.set_exception(error)
        return True


def _is_this_task_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _run(item: _Item, on_failure: OnFailure) -> None:
    response = item.response
    with _Reporting(response, on_failure):
        result = await item.work()
        if response is not None and not response.done():
            response.set_result(result)
