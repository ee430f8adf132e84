"""Undoing what was begun when a later step fails."""

from collections.abc import Awaitable, Callable
from types import TracebackType


class OnError:
    """Awaits ``undo()`` if the block raises, whatever that is: also if the task is cancelled. The error goes on."""

    def __init__(self, undo: Callable[[], Awaitable[None]]) -> None:
        self._undo = undo

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            await self._undo()
