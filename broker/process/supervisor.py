"""The owner of a broker's tasks: what it spawns it also stops, and no exception of theirs is lost.

A broker object holds one supervisor. ``spawn`` is for work that ends: a connection's waiting request, a connection that
is made. ``retry`` is for work that ends and must not be given up: the load of a coordinator's partition. ``supervise``
and ``repeat`` are for work that must go on as long as the broker. After an unexpected exception these three are begun
again, later each time they fail in a row; it is logged, and counted in ``failures``. ``failing`` names the tasks whose
last attempt failed.

Stopping cancels in the order of spawning and waits until every task has ended, so that nothing of a stopped broker runs
on in a loop that it shares with others.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from oncelog.broker.process.containment import Containment

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_PATIENCE_SECONDS: Final = 1.0
"""A task that has not ended by then is cancelled again."""
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 60.0
_RECOVERED_SECONDS: Final = 60.0
"""A task that has run for this time without an exception no longer counts as failing."""


class Failing(NamedTuple):
    """A background task whose last attempt failed."""

    attempts: int
    """Failures in a row."""
    error: str


class Supervisor:
    """Spawns tasks, logs how they fail, stops them all."""

    def __init__(self, name: str = "broker") -> None:
        self._name = name
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._stopping = False
        self.failures: Counter[str] = Counter()
        """How often each background task has failed, by the task's name."""
        self.failing: dict[str, Failing] = {}
        """The background tasks whose last attempt failed, by name."""

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(
        self,
        coroutine: Coroutine[Any, Any, _T],
        name: str,
        *,
        on_done: Callable[[asyncio.Task[_T]], None] | None = None,
    ) -> asyncio.Task[_T]:
        """Run ``coroutine`` in a task of this supervisor; after ``stop`` it is closed unstarted.

        ``on_done`` takes the task's outcome, failure included; without it a failure is logged.
        """
        if self._stopping:
            coroutine.close()
            raise RuntimeError(f"{self._name} is stopping: {name} was not started")
        try:
            task = asyncio.get_running_loop().create_task(coroutine, name=name)
        except RuntimeError:  # No loop runs: the caller is closed after its loop has ended.
            coroutine.close()
            raise
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        task.add_done_callback(on_done or self._report)
        return task

    def supervise(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[None]:
        """Run ``work()`` until it returns; after an exception begin it again, with backoff."""
        self.failures[name] += 0
        return self.spawn(self._supervise(work, name), name)

    def retry(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[None]:
        """Run ``work()`` until it returns; after an exception again, with backoff. The caller may cancel the task.

        Unlike supervised work it is not counted in ``failures`` before it fails.
        """
        return self.spawn(self._retry(work, name), name)

    async def _retry(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        try:
            await self._supervise(work, name)
        finally:
            self.failing.pop(name, None)

    def repeat(self, act: Callable[[], Awaitable[None]], name: str, interval_seconds: float) -> "Interval":
        """Run ``act()`` at an interval for ever, for the first time after one; after an exception earlier than that.

        Returns the interval, which can be changed.
        """
        self.failures[name] += 0
        interval = Interval(interval_seconds)
        self.spawn(self._repeat(act, name, interval), name)
        return interval

    async def _supervise(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        loop = asyncio.get_running_loop()
        contained = Containment(partial(self._note_failure, name))
        while True:
            recovered = loop.call_later(_RECOVERED_SECONDS, self._recovered, name)
            try:
                with contained:
                    await work()
                    self._recovered(name)
                    return
            finally:
                recovered.cancel()
            await asyncio.sleep(self._pause_seconds(name))

    async def _repeat(self, act: Callable[[], Awaitable[None]], name: str, interval: "Interval") -> None:
        contained = Containment(partial(self._note_failure, name))
        while True:
            await interval.elapse(self._pause_seconds(name))
            with contained:
                await act()
                self._recovered(name)

    def _pause_seconds(self, name: str) -> float:
        """Return the seconds after which a task that failed is begun again; infinity: its last attempt did not fail."""
        failing = self.failing.get(name)
        if failing is None:
            return math.inf
        return min(_FIRST_PAUSE_SECONDS * 2.0 ** min(failing.attempts - 1, 16), _LONGEST_PAUSE_SECONDS)

    def _note_failure(self, name: str, error: Exception) -> None:
        """Log and count a failure."""
        known = self.failing.get(name)
        attempts = 1 if known is None else known.attempts + 1
        self.failing[name] = Failing(attempts, f"{type(error).__name__}: {error}")
        self.failures[name] += 1
        if attempts & (attempts - 1) == 0:  # Log attempts 1, 2, 4, 8 and so on.
            # The traceback of an error that repeats says nothing new; an OSError says what it has to say by itself.
            is_known = isinstance(error, OSError) or (known is not None and known.error == self.failing[name].error)
            _log.error(
                "%s: background task %r failed (attempt %d) and is begun again: %s",
                self._name,
                name,
                attempts,
                self.failing[name].error,
                exc_info=None if is_known else error,
            )

    def _recovered(self, name: str) -> None:
        failing = self.failing.pop(name, None)
        if failing is not None:
            _log.info("%s: background task %r works again after %d failures", self._name, name, failing.attempts)

    async def stop(self) -> None:
        """Cancel every task and wait for its end. Nothing can be spawned afterwards. Must not run inside a task."""
        self._stopping = True
        while self._tasks:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.wait(list(self._tasks), timeout=_PATIENCE_SECONDS)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]

    def _report(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            _log.error("%s: task %s failed", self._name, task.get_name(), exc_info=error)


class Interval:
    """The seconds between two runs of repeated work."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._changed = asyncio.Event()

    def change(self, seconds: float) -> None:
        """Set another length. It also holds for the interval that is running: work that is due by it begins at once."""
        if seconds != self._seconds:
            self._seconds = seconds
            self._changed.set()

    async def elapse(self, longest_seconds: float) -> None:
        """Wait for one interval, or for ``longest_seconds`` if that is shorter."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(0)
        while (left := began + min(self._seconds, longest_seconds) - loop.time()) > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return
