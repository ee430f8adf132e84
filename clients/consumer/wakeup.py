"""Wakes the calls of the application that wait inside the consumer."""

import asyncio
import math

from oncelog.clients.errors import BackgroundTaskFailed


class Wakeup(asyncio.Event):
    """What background tasks use to reach ``poll`` and ``position``: they set it, or leave a failure to be raised there.

    It stays set for ``poll``, which clears it before it looks at everything. ``position`` may wait at the same time and
    is resumed by the next ``set``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: set[asyncio.Future[None]] = set()
        self._failure: BaseException | None = None

    def set(self) -> None:
        """Have every waiting call look at everything again."""
        super().set()
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def fail(self, failure: BaseException) -> None:
        """Keep the failure of a background task for the next call, in place of an earlier one."""
        self._failure = failure
        self.set()

    def raise_failure(self) -> None:
        """Raise ``BackgroundTaskFailed``, once for each failure of a background task."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise BackgroundTaskFailed(f"a background task of the consumer failed: {failure!r}") from failure

    async def wait_until_set(self, deadline: float) -> bool:
        """Wait until it is set. Return False if it was not before ``deadline`` (the loop's time)."""
        try:
            async with asyncio.timeout_at(_finite(deadline)):
                await self.wait()
        except TimeoutError:
            return False
        return True

    async def wait_for_next(self, deadline: float) -> None:
        """Wait until it is set again, or until ``deadline`` (the loop's time)."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            async with asyncio.timeout_at(_finite(deadline)):
                await waiting
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(waiting)


def _finite(when: float) -> float | None:
    """Return a time for a loop's timer, which has no infinity."""
    return None if when == math.inf else when
