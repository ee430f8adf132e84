"""The calls under way of one client, which its ``close`` ends all at once.

A call may wait for a response, for the pause before its next attempt, or for a connection. What it waits for does not
have to know of the end: the call is cancelled there, and raises the client's own exception.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from oncelog.clients.errors import ClientClosed


class CallsUnderWay:
    """The calls of one client. ``error`` is the type of what they raise when the client is closed."""

    def __init__(self, client: str, error: type[ClientClosed] = ClientClosed) -> None:
        self._client = client
        self._error = error
        self._calls: dict[asyncio.Timeout, asyncio.Task[object] | None] = {}
        self._is_closed = False

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Do what is inside as one call. Raises ``ClientClosed`` when the client is closed, now or before."""
        if self._is_closed:
            raise self._closed()
        call = asyncio.timeout(None)
        try:
            async with call:
                self._calls[call] = asyncio.current_task()
                try:
                    yield
                finally:
                    del self._calls[call]
        except TimeoutError:
            if call.expired():
                raise self._closed() from None
            raise

    def close(self) -> None:
        """End every call under way as ``end``, and refuse further ones."""
        self._is_closed = True
        self.end()

    def end(self) -> None:
        """End every call under way, except one that does so itself, and those that end already."""
        now = asyncio.get_running_loop().time()
        for call, task in self._calls.items():
            if task is not asyncio.current_task() and not call.expired():
                call.reschedule(now)

    def _closed(self) -> ClientClosed:
        return self._error(f"the {self._client} is closed: create another one")
