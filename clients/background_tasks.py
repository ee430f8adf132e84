"""The owner of a client's tasks: what it spawns it also stops, and no failure of theirs goes unnoticed."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

_log = logging.getLogger(__name__)
T = TypeVar("T")

_PATIENCE_SECONDS: Final = 1.0
"""A task that has not ended by then is cancelled again."""


class BackgroundTasks:
    """Spawns tasks and stops them all. A failure is logged when it happens; who wants it awaits the task, too."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str, *, log_failure: bool = True) -> "asyncio.Task[T]":
        """Run a coroutine in a task. ``log_failure`` is False where somebody takes the task's outcome."""
        if self._stopping:
            coroutine.close()
            raise RuntimeError(f"{self._owner} is stopping: {name} was not started")
        task = asyncio.get_running_loop().create_task(coroutine, name=f"{self._owner}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_report if log_failure else _look_at)
        return task

    async def stop(self) -> None:
        """Cancel every task and wait until all have ended. Nothing can be spawned afterwards."""
        self._stopping = True
        while self._tasks:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.wait(list(self._tasks), timeout=_PATIENCE_SECONDS)


def _look_at(task: "asyncio.Task[Any]") -> None:
    """What nobody takes because the client was closed meanwhile is not worth a complaint."""
    if not task.cancelled():
        task.exception()


def _report(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("%s failed", task.get_name(), exc_info=error)
