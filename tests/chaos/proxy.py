"""A TCP proxy in front of one broker that breaks connections, as networks and middle boxes do, from a seed.

It needs nothing of its event loop but ``create_server`` and ``create_connection``, so it stands before a real broker
as well as before a simulated one. While the weather is bad, each connection draws after how many bytes, in which
direction, what befalls it (``Fault``). What has passed before that has passed; bytes are never changed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Final, cast

_HOST: Final = "127.0.0.1"
_MEAN_BYTES: Final = (20, 200, 2_000, 10_000)
"""How many bytes pass on the average before a fault: within a handshake, a request, some, or many."""
_LONGEST_DELAY_SECONDS: Final = 3.0


class Fault(Enum):
    """What befalls one direction of a connection, or both."""

    CUT = "both sides are closed, and what has not passed is gone"
    RESET = "both sides are aborted"
    SWALLOW = "nothing passes any more in this direction, and nobody is told"
    CLOSE_SENDER = "the sender is told that the connection has ended; what it had sent still passes"
    CLOSE_RECEIVER = "the receiver is told that the connection has ended; the sender is not"
    DELAY = "nothing passes in this direction for a while"


class Proxy:
    """Listens for clients and connects each to the broker. ``faults`` counts what happened."""

    def __init__(self, broker_port: int, rng: Random, *, port: int = 0) -> None:
        self.broker_port = broker_port
        self.port = port
        self.rng = rng
        self.is_bad = False
        """Whether new connections draw faults."""
        self.share = 0.9
        """Of the connections that do."""
        self.faults: Counter[Fault] = Counter()
        self.connecting: set[asyncio.Task[None]] = set()
        self._paths: dict[_Path, None] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen on ``port``; 0 chooses one."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Path(self).near, _HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def heal(self) -> None:
        """Let everything pass from now on; connections that are broken silently are cut."""
        self.is_bad = False
        for path in list(self._paths):
            path.heal()

    async def close(self) -> None:
        """Stop listening and end all connections."""
        assert self._server is not None
        self._server.close()
        for path in list(self._paths):
            path.close()
        for task in list(self.connecting):
            task.cancel()
        await asyncio.gather(*self.connecting, return_exceptions=True)

    def opened(self, path: "_Path") -> None:
        self._paths[path] = None

    def closed(self, path: "_Path") -> None:
        self._paths.pop(path, None)


class _Path:
    """One connection of a client, and the one to the broker that belongs to it."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.near = _Side(self, self._near_opened)
        self.far = _Side(self, lambda: self.near.resume())
        self.near.other, self.far.other = self.far, self.near
        self._fault: Fault | None = None
        self._victim = self.near
        """The side whose bytes are counted."""
        self._bytes_left = 0
        if proxy.is_bad and proxy.rng.random() < proxy.share:
            self._fault = proxy.rng.choice(list(Fault))
            self._victim = proxy.rng.choice((self.near, self.far))
            self._bytes_left = int(proxy.rng.expovariate(1 / proxy.rng.choice(_MEAN_BYTES)))

    def _near_opened(self) -> None:
        self._proxy.opened(self)
        self.near.pause()
        task = asyncio.get_running_loop().create_task(self._connect())
        self._proxy.connecting.add(task)
        task.add_done_callback(self._proxy.connecting.discard)

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.far, _HOST, self._proxy.broker_port)
        except OSError:
            self.near.close()

    def received(self, side: "_Side", data: bytes) -> None:
        """Pass on what came from one side, or what is left of it."""
        if self._fault is None or side is not self._victim or len(data) <= self._bytes_left:
            self._bytes_left -= len(data) if side is self._victim else 0
            side.pass_on(data)
            return
        side.pass_on(data[: self._bytes_left])
        fault, self._fault = self._fault, None
        self._proxy.faults[fault] += 1
        self._strike(fault, side, data[self._bytes_left :])

    def _strike(self, fault: Fault, side: "_Side", rest: bytes) -> None:
        match fault:
            case Fault.CUT:
                self.close()
            case Fault.RESET:
                self.near.abort()
                self.far.abort()
            case Fault.SWALLOW:
                side.is_swallowed = True
            case Fault.CLOSE_SENDER:
                side.pass_on(rest)
                side.other.is_orphan = True
                side.close()
            case Fault.CLOSE_RECEIVER:
                side.is_swallowed = side.is_orphan = True
                side.other.close()
            case Fault.DELAY:
                side.delay(rest, self._proxy.rng.uniform(0, _LONGEST_DELAY_SECONDS))

    def heal(self) -> None:
        """No fault comes any more; a side that waits in vain is told."""
        self._fault = None
        if self.near.is_swallowed or self.far.is_swallowed or self.near.is_orphan or self.far.is_orphan:
            self.close()

    def close(self) -> None:
        self.near.close()
        self.far.close()

    def ended(self, side: "_Side") -> None:
        """One side has ended: so does the other, unless it is meant not to hear of it."""
        if not side.other.is_orphan:
            side.other.close()
        if not side.is_open and not side.other.is_open:
            self._proxy.closed(self)


class _Side(asyncio.Protocol):
    """One socket of a path; not read while its direction stands still, or while the other side is full."""

    def __init__(self, path: _Path, on_opened: Callable[[], None]) -> None:
        self._path = path
        self._on_opened = on_opened
        self._transport: asyncio.Transport | None = None
        self._is_delayed = False
        self._paused_for_other = False
        self.is_swallowed = False
        """Whether what it sends vanishes."""
        self.is_orphan = False
        """Whether it stays open when the other side ends."""
        self.other: _Side

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def pass_on(self, data: bytes) -> None:
        """To the other side, if there is one."""
        if data and not self.is_swallowed and self.other._transport is not None and self.other.is_open:
            self.other._transport.write(data)

    def delay(self, rest: bytes, seconds: float) -> None:
        """Stand still for a while, then go on with ``rest``."""
        self._is_delayed = True
        self.pause()
        asyncio.get_running_loop().call_later(seconds, self._go_on, rest)

    def _go_on(self, rest: bytes) -> None:
        self._is_delayed = False
        self.pass_on(rest)
        self.resume()

    def pause(self) -> None:
        if self._transport is not None and self.is_open:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and self.is_open and not self._is_delayed and not self._paused_for_other:
            self._transport.resume_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self is self._path.far and not self._path.near.is_open:
            self.close()
            return
        self._on_opened()

    def data_received(self, data: bytes) -> None:
        self._path.received(self, data)

    def pause_writing(self) -> None:
        self.other._paused_for_other = True
        self.other.pause()

    def resume_writing(self) -> None:
        self.other._paused_for_other = False
        self.other.resume()

    def connection_lost(self, error: Exception | None) -> None:
        self._path.ended(self)
