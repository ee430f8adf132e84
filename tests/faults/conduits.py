"""Connections between processes that can be cut, one direction at a time, without root: proxies in user space.

Every process listens behind a port of this module's; whoever connects there gets a *conduit*: two sockets, and bytes
that are passed from one to the other. Each side of it belongs to a process, so a conduit knows in which of the cut
directions its bytes would go. What is sent in a cut direction is not read any more, and so stays in the sender's socket
until the cut is healed: as with packets that are lost and sent again, nothing is lost and nothing closes; nor is the
end of the connection passed on. A connection that is new while either direction is cut is made when that is healed, if
whoever tries has not given up by then.

Who connects to ZooKeeper is told by the port, one for each broker. Who connects to a broker says so in the client id of
its first request (``broker-2``, ``broker-2-fetcher``, ``oncelog-heartbeat-2``); where that is encrypted, the kernel
says which process it is (``tests.faults.socket_owner``).
"""

import asyncio
import os
import re
import socket
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, cast

from oncelog.protocol.framing import parse_request_header
from tests.faults.socket_owner import SocketGone

ZOOKEEPER: Final = "zookeeper"
_HOST: Final = "127.0.0.1"
_SIZE_BYTES: Final = 4
_ESTABLISHED: Final = 1
"""The state of a TCP connection, as Linux numbers them."""
_BROKER: Final = re.compile(r"(?:broker|oncelog-heartbeat)-(\d+)(-|$)")

Cut: TypeAlias = tuple[str, str]
"""From whom to whom nothing passes: ids of brokers, or ``zookeeper``."""


class Conduits:
    """All conduits of one cluster, and what is cut. Belongs to one event loop."""

    def __init__(self, owner_of: Callable[[int, int], str | None] | None = None) -> None:
        """``owner_of``: the broker that is connected from a port to another, for connections that do not say."""
        self.owner_of = owner_of
        self._cuts: set[Cut] = set()
        self._servers: list[asyncio.Server] = []
        self._conduits: set[_Conduit] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self.strangers: set[str] = set()
        """Who is no broker at the brokers' inner ports, by client id or port: nobody else should connect there."""

    async def lead_to(self, target: str, port: int, source: str | None = None) -> int:
        """Listen in the place of a process; the port. ``source`` is who connects there, if it is always the same."""
        server = await asyncio.get_running_loop().create_server(
            lambda: _Conduit(self, source, target, port).near, _HOST
        )
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    def cut(self, cuts: Iterable[Cut]) -> None:
        """From now on nothing passes in these directions."""
        self._cuts |= set(cuts)
        for conduit in self._conduits:
            conduit.look()

    def heal(self) -> None:
        """Let everything through again, also what was held."""
        self._cuts.clear()
        for conduit in list(self._conduits):
            conduit.look()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for conduit in list(self._conduits):
            conduit.abort()
        for task in list(self._connecting):
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)

    # What conduits call

    def opened(self, conduit: "_Conduit") -> None:
        self._conduits.add(conduit)

    def closed(self, conduit: "_Conduit") -> None:
        self._conduits.discard(conduit)

    def connect(self, conduit: "_Conduit", port: int) -> None:
        """Make the far side of a conduit."""
        task = asyncio.get_running_loop().create_task(self._connect(conduit, port))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, conduit: "_Conduit", port: int) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: conduit.far, _HOST, port)
        except OSError:
            conduit.abort()


class _Conduit:
    """One connection: its near side is that of who connected, its far side that of who is connected to."""

    def __init__(self, conduits: Conduits, source: str | None, target: str, port: int) -> None:
        self._conduits = conduits
        self._source = source
        self._target = target
        self._port = port
        self._first = bytearray()
        """What came before the far side was there."""
        self._is_connecting = False
        self.near = _Side(self._near_opened, self._near_received, self.abort)
        self.far = _Side(self._far_opened, lambda data: self.near.write(data), self.abort)
        self.near.other, self.far.other = self.far, self.near

    def look(self) -> None:
        """The cuts have changed."""
        source = self._source
        if source is None:
            return
        is_cut = self._conduits.is_cut(source, self._target), self._conduits.is_cut(self._target, source)
        if not self._is_connecting:
            self._begin(is_cut=any(is_cut))
            return
        self.near.hold(is_cut[0])
        self.far.hold(is_cut[1])

    def _begin(self, *, is_cut: bool) -> None:
        if is_cut:
            self.near.hold(True)
        elif self.near.was_left:
            self.abort()
        else:
            self._is_connecting = True
            self.near.hold(False)
            self._conduits.connect(self, self._port)

    def abort(self) -> None:
        """Either side has ended: so does the other, once it has what was sent to it."""
        self._conduits.closed(self)
        self.near.close()
        self.far.close()

    def _near_opened(self) -> None:
        self._conduits.opened(self)
        if self._source is None and self._conduits.owner_of is not None:
            port = self.near.peer_port
            try:
                self._source = self._conduits.owner_of(port, self.near.own_port)
            except SocketGone:
                self.abort()
                return
            if self._source is None:
                self._conduits.strangers.add(f"port {port}")
                self.abort()
                return
        self.look()

    def _near_received(self, data: bytes) -> None:
        if self.far.is_open:
            self.far.write(data)
            return
        self._first += data
        if self._source is None:
            self._source = self._sender()
            self.look()

    def _sender(self) -> str | None:
        """Who the first request says that it is from; None while it is not there as a whole."""
        size = int.from_bytes(self._first[:_SIZE_BYTES], "big")
        if len(self._first) < _SIZE_BYTES or len(self._first) < _SIZE_BYTES + size:
            return None
        header, _ = parse_request_header(memoryview(bytes(self._first))[_SIZE_BYTES : _SIZE_BYTES + size])
        match = _BROKER.match(header.client_id or "")
        if match is None:
            self._conduits.strangers.add(str(header.client_id))
            return str(header.client_id)
        return match[1]

    def _far_opened(self) -> None:
        if not self.near.is_open:
            self.far.close()
            return
        self.far.write(bytes(self._first))
        self.look()


class _Side(asyncio.Protocol):
    """One socket of a conduit. It is not read while its direction is cut, or while the other side is full."""

    def __init__(
        self, on_opened: Callable[[], None], on_received: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        self._on_opened = on_opened
        self._on_received = on_received
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._is_held = self._other_is_full = False
        self.other: _Side

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def peer_port(self) -> int:
        assert self._transport is not None
        port: int = self._transport.get_extra_info("peername")[1]
        return port

    @property
    def own_port(self) -> int:
        assert self._transport is not None
        port: int = self._transport.get_extra_info("sockname")[1]
        return port

    @property
    def was_left(self) -> bool:
        """Whether the process has closed its socket, which is not heard while nothing is read."""
        if self._transport is None or not self.is_open:
            return True
        with socket.socket(fileno=os.dup(self._transport.get_extra_info("socket").fileno())) as same:
            return same.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED

    def write(self, data: bytes) -> None:
        if self._transport is not None and self.is_open:
            self._transport.write(data)

    def hold(self, held: bool) -> None:
        self._is_held = held
        self._decide()

    def wait_for_other(self, is_full: bool) -> None:
        self._other_is_full = is_full
        self._decide()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _decide(self) -> None:
        if self._transport is None or not self.is_open:
            return
        if self._is_held or self._other_is_full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._on_opened()

    def data_received(self, data: bytes) -> None:
        self._on_received(data)

    def pause_writing(self) -> None:
        self.other.wait_for_other(True)

    def resume_writing(self) -> None:
        self.other.wait_for_other(False)

    def connection_lost(self, error: Exception | None) -> None:
        self._on_end()
