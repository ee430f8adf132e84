"""The way from the threads of a library into the event loop: one queue, so that calls keep their order."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)


class LoopCrossing:
    """Calls from other threads to the event loop, in order; the loop is woken once for all that wait."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._lock = threading.Lock()
        self._woken = False

    def __call__(self, callback: Callable[..., None], *arguments: Any) -> None:
        with self._lock:
            self._calls.append((callback, arguments))
            if self._woken:
                return
            self._woken = True
        try:
            self._loop.call_soon_threadsafe(self._run)
        except RuntimeError:
            logger.debug("a call came after the event loop had ended")

    def _run(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, deque()
            self._woken = False
        for callback, arguments in calls:
            callback(*arguments)
