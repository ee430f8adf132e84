"""The event loop of a client: the one in which it was used first. Its connections and tasks work in no other."""

import asyncio

from oncelog.clients.errors import IllegalState


class OwnLoop:
    """The event loop of one client; ``kind`` is the client's class, for the errors."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._loop: asyncio.AbstractEventLoop | None = None

    def require(self) -> None:
        """Raise ``IllegalState`` unless the client's own event loop is the running one."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            raise IllegalState(
                f"no event loop is running: use `async with {self._kind}(...)` in a coroutine, and run it with"
                " asyncio.run(...)"
            ) from None
        if self._loop is None:
            self._loop = running
        if self._loop is not running:
            raise IllegalState(
                f"this {self._kind} belongs to another event loop: create and close one inside each asyncio.run(...);"
                " from another thread use asyncio.run_coroutine_threadsafe"
            )

    def time(self) -> float:
        """Return the time of the client's own event loop, in seconds. Raises as ``require``."""
        self.require()
        assert self._loop is not None
        return self._loop.time()

    def require_if_used(self) -> None:
        """Raise ``IllegalState`` if the client has been used in an event loop that is not the running one."""
        if self._loop is not None:
            self.require()
