"""``Entrance``: where the requests of a connection go, and the ``Gate`` before it while a client must authenticate."""

from typing import Protocol

from oncelog.broker.dispatch.dispatcher import Dispatcher, PendingResponse, ResponseBuffers
from oncelog.broker.dispatch.request import CloseConnection, ConnectionInfo
from oncelog.broker.network.frames import FrameReader


class Gate(Protocol):
    """Begins the requests of a connection until its client is authenticated, and longer if that expires."""

    def dispatch(self, frame: memoryview, connection: ConnectionInfo) -> ResponseBuffers | PendingResponse:
        """Begin one request. Raises CloseConnection, and nothing else."""

    def refuse(self, reason: str) -> CloseConnection:
        """Return how the connection ends for a frame that is not read."""

    def connection_lost(self) -> None: ...


class Entrance:
    """The way of a connection's requests."""

    __slots__ = ("_dispatcher", "_gate", "_max_bytes", "_reader", "dispatch", "is_open")

    def __init__(self, dispatcher: Dispatcher, reader: FrameReader) -> None:
        self._dispatcher = dispatcher
        self._reader = reader
        self._max_bytes = reader.max_size
        self._gate: Gate | None = None
        self.dispatch = dispatcher.dispatch
        """Begins a request."""
        self.is_open = True
        """Whether the client may send any request."""

    def guard(self, gate: Gate, max_bytes: int) -> None:
        """Have a gate begin requests, of ``max_bytes`` at most, before there are any."""
        self._gate, self.dispatch, self.is_open = gate, gate.dispatch, False
        self._reader.max_size = max_bytes

    def open(self, *, keeps_gate: bool) -> None:
        """Serve the client, which is authenticated; the gate remains if that expires."""
        self.is_open = True
        self._reader.allow(self._max_bytes)
        if not keeps_gate:
            self._gate, self.dispatch = None, self._dispatcher.dispatch

    def refuse(self, reason: str) -> CloseConnection:
        """Return how the connection ends for a frame that is not read."""
        return CloseConnection(reason) if self._gate is None else self._gate.refuse(reason)

    def connection_lost(self) -> None:
        """Take the gate away: it references its connection, and a broker hardly ever collects such cycles."""
        if self._gate is not None:
            self._gate.connection_lost()
            self._gate, self.dispatch = None, self._dispatcher.dispatch
