"""The owner of a broker's tasks: what it spawns it also stops, and no exception of theirs is lost.

A broker object holds one supervisor; whatever must run beside the request path (checkpoints, retention, sweeps) is
spawned here, and a connection's waiting request is too. Stopping cancels in the order of spawning and waits until every
task has ended, so that nothing of a stopped broker runs on in a loop that it shares with others.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_PATIENCE_SECONDS: Final = 1.0
"""A task that has not ended by then is cancelled again."""


class Supervisor:
    """Spawns tasks, logs how they fail, stops them all."""

    def __init__(self, name: str = "broker") -> None:
        self._name = name
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._stopping = False

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
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        task.add_done_callback(on_done or self._report)
        return task

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
