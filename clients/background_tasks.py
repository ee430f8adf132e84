"""The owner of a client's tasks: it stops what it spawned, and reports each failure to the client."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from oncelog.clients.errors import IllegalState

_log = logging.getLogger(__name__)
T = TypeVar("T")

_PATIENCE_SECONDS: Final = 1.0
"""A task that has not ended by then is cancelled again."""
_RESTART_SECONDS: Final = 1.0
"""The pause before a task that failed is started again."""


class BackgroundTasks:
    """Spawns tasks and stops them all. A failure is logged when it happens, and reported to ``on_failure``."""

    def __init__(self, owner: str, on_failure: Callable[[BaseException], None] | None = None) -> None:
        self._owner = owner
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str, *, log_failure: bool = True) -> "asyncio.Task[T]":
        """Run a coroutine in a task. ``log_failure`` is False where somebody takes the task's outcome.

        Raises ``IllegalState`` once the client is closed: a call that was under way then must end with its error.
        """
        if self._stopping:
            coroutine.close()
            raise IllegalState(f"{self._owner} is closed: {name} was not started")
        try:
            task = asyncio.get_running_loop().create_task(coroutine, name=f"{self._owner}: {name}")
        except RuntimeError:  # No loop runs: the caller is closed after its loop has ended.
            coroutine.close()
            raise
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._look_at if log_failure else _ignore)
        return task

    def keep_running(self, run: Callable[[], Coroutine[Any, Any, None]], name: str) -> "asyncio.Task[None]":
        """Run a coroutine function in a task until it returns. A failure is reported, and the function run again."""
        return self.spawn(self._repeat(run, name), name)

    async def _repeat(self, run: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        while True:
            try:
                return await run()
            except Exception as error:  # Without this task the client stands still, whatever the error is.
                self._report(f"{self._owner}: {name}", error)
            await asyncio.sleep(_RESTART_SECONDS)

    def _look_at(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(task.get_name(), error)

    def _report(self, name: str, error: BaseException) -> None:
        _log.error("%s failed", name, exc_info=error)
        if self._on_failure is not None:
            self._on_failure(error)

    def cancel(self) -> None:
        """Cancel every task. Nothing can be spawned afterwards."""
        self._stopping = True
        for task in list(self._tasks):
            task.cancel()

    async def stop(self) -> None:
        """Cancel every task and wait until all have ended. Nothing can be spawned afterwards."""
        self._stopping = True
        while self._tasks:
            self.cancel()
            await asyncio.wait(list(self._tasks), timeout=_PATIENCE_SECONDS)


def _ignore(task: "asyncio.Task[Any]") -> None:
    """Ignore a failure that no caller takes because the client was closed meanwhile."""
    if not task.cancelled():
        task.exception()
