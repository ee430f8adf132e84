"""The connections of one client: one for each address, opened once for all callers that need it at the same time.

A request that any broker can serve goes to an open connection with the fewest requests in flight. A connection whose
oldest request has been in flight for ``LATE_SECONDS`` is late: its broker may be stopped or cut off, so another broker
is preferred until it responds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from oncelog.clients.background_tasks import BackgroundTasks
from oncelog.clients.connection import Address, Connection
from oncelog.clients.errors import ClientClosed, RequestTimedOut
from oncelog.clients.obstacles import Obstacle

LATE_SECONDS: Final = 2.0
"""Far above what a healthy broker needs for a request about metadata; a wrong guess costs one more request."""
_CLOSE_SECONDS: Final = 5.0
_WAIT_FOR_MEMBERS: Final = frozenset({"JoinGroup", "SyncGroup"})


class ConnectionPool:
    """Opens connections with ``connect`` in tasks of ``tasks``, and keeps those that are open."""

    def __init__(self, connect: Callable[[Address], Awaitable[Connection]], tasks: BackgroundTasks) -> None:
        self._connect = connect
        self._tasks = tasks
        self._connections: dict[Address, Connection] = {}
        self._opening: dict[Address, asyncio.Task[Connection]] = {}

    async def to(self, address: Address) -> Connection:
        """Return the open connection to an address, or open one. Callers at the same time share one attempt.

        The attempt goes on when a caller is cancelled. Raises what ``connect`` raises.
        """
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        if self._tasks.is_stopping:
            raise ClientClosed(f"{address}: this client is closed")
        opening = self._opening.get(address)
        if opening is None:
            name = f"connection to {address}"
            opening = self._opening[address] = self._tasks.spawn(self._open(address), name, log_failure=False)
        await asyncio.wait([opening])
        if opening.cancelled():  # By ``close``: the caller itself was not cancelled.
            raise ClientClosed(f"{address}: this client is closed")
        return opening.result()

    async def _open(self, address: Address) -> Connection:
        try:
            connection = await self._connect(address)
        finally:
            del self._opening[address]
        self._connections[address] = connection
        return connection

    def is_open(self, address: Address) -> bool:
        connection = self._connections.get(address)
        return connection is not None and connection.is_open

    def least_loaded(self, besides: Collection[Address] = ()) -> Connection | None:
        """Return the open connection with the shortest expected wait; None if all are among ``besides``."""
        usable = [each for each in self._connections.values() if each.is_open and each.address not in besides]
        return min(usable, key=lambda each: (is_late(each), each.requests_in_flight), default=None)

    def silences(self) -> list[Obstacle]:
        """Return which connections wait for a response."""
        return [silence for each in self._connections.values() if (silence := silence_of(each)) is not None]

    def time_outs(self) -> list[str]:
        """Return what the last connections to their addresses ended with, if that was a response that did not come."""
        return [str(each.end) for each in self._connections.values() if isinstance(each.end, RequestTimedOut)]

    def hang_up(self) -> None:
        """Close every connection, without waiting for anything. None is opened afterwards."""
        self._tasks.cancel()
        for connection in self._connections.values():
            connection.close()

    async def close(self) -> None:
        """Close every connection, and wait up to 5 s for what was written to leave. None is opened afterwards."""
        self.hang_up()
        await self._tasks.stop()
        if self._connections:
            await asyncio.wait([connection.closed for connection in self._connections.values()], timeout=_CLOSE_SECONDS)


def silence_of(connection: Connection, usual_seconds: float = 0.0) -> Obstacle | None:
    """Return how long the oldest request has been in flight, beyond what is usual; None if that is 0."""
    seconds = connection.oldest_request_seconds - usual_seconds
    if seconds <= 0.0 or not connection.is_open:
        return None
    return Obstacle(
        reason=f"no response to {connection.awaited}",
        seconds=seconds,
        address=connection.address,
        is_connected=True,
        is_usual=connection.awaited in _WAIT_FOR_MEMBERS,
    )


def is_late(connection: Connection) -> bool:
    """Return whether the oldest request has been in flight for ``LATE_SECONDS``."""
    return connection.oldest_request_seconds >= LATE_SECONDS
