"""The owner of a client's tasks: it stops those that it has spawned, and reports each failure to the client."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from oncelog.clients.errors import ClientClosed

_log = logging.getLogger(__name__)
T = TypeVar("T")
Run: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

_CANCEL_AGAIN_SECONDS: Final = 1.0
"""The pause before a task that has not ended is cancelled again."""
_RESTART_SECONDS: Final = 1.0
"""The pause before a task that failed is started again."""


class KeptTask:
    """A task that is started again after each failure, until it returns or its owner stops."""

    def __init__(self, first: "asyncio.Task[None]") -> None:
        self.current = first

    @property
    def has_ended(self) -> bool:
        """Return whether the task has ended without a failure, so that it is not started again."""
        task = self.current
        return task.done() and (task.cancelled() or task.exception() is None)


class BackgroundTasks:
    """Spawns tasks and stops them all. A failure is logged when it happens, and reported to ``on_failure``."""

    def __init__(self, owner: str, on_failure: Callable[[BaseException], None] | None = None) -> None:
        self._owner = owner
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False

    @property
    def is_stopping(self) -> bool:
        """Return whether nothing can be spawned any more."""
        return self._stopping

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str, *, log_failure: bool = True) -> "asyncio.Task[T]":
        """Run a coroutine in a task. ``log_failure`` is False if the caller takes the result of the task.

        Raises ``ClientClosed`` once the client is closed: a call that was under way then must end with its error.
        """
        if self._stopping:
            coroutine.close()
            raise ClientClosed(f"{self._owner} is closed: {name} was not started")
        try:
            task = asyncio.get_running_loop().create_task(coroutine, name=f"{self._owner}: {name}")
        except RuntimeError:  # No loop runs: the caller is closed after its loop has ended.
            coroutine.close()
            raise
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._report_failure if log_failure else _ignore_failure)
        return task

    def keep_running(self, run: Run, name: str) -> KeptTask:
        """Run a coroutine function in a task until it returns. After a failure, which is reported, start it again."""
        kept = KeptTask(self.spawn(run(), name))
        kept.current.add_done_callback(partial(self._restart_failed, kept, run, name))
        return kept

    def _restart_failed(self, kept: KeptTask, run: Run, name: str, task: "asyncio.Task[None]") -> None:
        if not kept.has_ended and not self._stopping:
            kept.current = self.spawn(_run_after_pause(run), name)
            kept.current.add_done_callback(partial(self._restart_failed, kept, run, name))

    def _report_failure(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed", task.get_name(), exc_info=error)
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
            await asyncio.wait(list(self._tasks), timeout=_CANCEL_AGAIN_SECONDS)


async def _run_after_pause(run: Run) -> None:
    await asyncio.sleep(_RESTART_SECONDS)
    await run()


def _ignore_failure(task: "asyncio.Task[Any]") -> None:
    """Mark a failure as retrieved: its caller may never take it if the client is closed meanwhile."""
    if not task.cancelled():
        task.exception()
