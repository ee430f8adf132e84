"""A client that sends bytes and collects frames, and a server with scripted handlers, on any of three event loops."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import uvloop

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listeners import Listener
from oncelog.broker.dispatch.api_handler import ApiHandler
from oncelog.broker.dispatch.dispatcher import Dispatcher
from oncelog.broker.dispatch.sliced_work import SlicedWork
from oncelog.broker.network.heartbeats import Heartbeats
from oncelog.broker.network.socket_server import NO_GUARDS, Guard, SocketServer
from oncelog.broker.process.supervisor import Supervisor
from oncelog.protocol.framing import encode_request
from oncelog.protocol.schema import Message
from tests.simulation.virtual_loop import VirtualLoop

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "virtual": lambda: VirtualLoop(random.Random(1)),
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
"""Virtual time first: a scenario that hangs fails there at once."""


def run(loop_name: str, scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario on one of the loops, for at most 300 of its seconds: that ends one that hangs."""

    async def bounded() -> None:
        async with asyncio.timeout(300):
            await scenario()

    with asyncio.Runner(loop_factory=LOOPS[loop_name]) as runner:
        runner.run(bounded())


class FrameClient(asyncio.Protocol):
    """Keeps what it receives, cut into frames."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.frames: list[bytes] = []
        self.lost = asyncio.get_running_loop().create_future()
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < end:
                break
            self.frames.append(bytes(self._buffer[4:end]))
            del self._buffer[:end]
        self._changed.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(None)
        self._changed.set()

    def send(self, *requests: tuple[int, Message, int]) -> None:
        """Send (correlation id, request, version)s in one write."""
        self.transport.write(b"".join(frame(*request) for request in requests))

    async def correlation_ids(self, count: int) -> list[int]:
        """Wait for ``count`` responses in all, or for the end of the connection."""
        while len(self.frames) < count and not self.lost.done():
            self._changed.clear()
            await self._changed.wait()
        return [int.from_bytes(frame[:4], "big") for frame in self.frames]


def frame(correlation_id: int, request: Message, version: int) -> bytes:
    return b"".join(encode_request(correlation_id, "tester", request, version))


class OnlyEncodes:
    """All that dispatch needs of a broker whose handlers need none."""

    def __init__(self) -> None:
        self.sliced_work = SlicedWork()


class Served:
    """A listening server and how to reach it."""

    def __init__(
        self, server: SocketServer, dispatcher: Dispatcher, supervisor: Supervisor, ports: Mapping[str, int]
    ) -> None:
        self.server = server
        self.dispatcher = dispatcher
        self.supervisor = supervisor
        self.port = next(iter(ports.values()))
        self._ports = ports
        self._clients: list[FrameClient] = []

    async def connect(self, listener: str | None = None) -> FrameClient:
        """Connect to a listener; the first one if none is named."""
        loop = asyncio.get_running_loop()
        port = self.port if listener is None else self._ports[listener]
        _, client = await loop.create_connection(FrameClient, "127.0.0.1", port)
        self._clients.append(client)
        return client

    async def close_clients(self) -> None:
        for client in self._clients:
            client.transport.abort()
            await client.lost


@asynccontextmanager
async def serve(
    handlers: Iterable[ApiHandler[Any]],
    *,
    broker: Any = None,
    config: BrokerConfig | None = None,
    heartbeats: Heartbeats | None = None,
    listeners: Sequence[str] = ("PLAINTEXT",),
    guards: Mapping[str, Guard] = NO_GUARDS,
) -> AsyncIterator[Served]:
    """Serve ``handlers`` on free ports. ``broker`` is whatever the handlers want to be called with.

    The last of ``listeners`` is the one between brokers.
    """
    supervisor = Supervisor()
    dispatcher = Dispatcher(broker or OnlyEncodes(), handlers)  # type: ignore[arg-type]
    server = SocketServer(config or BrokerConfig(), supervisor, heartbeats)
    ports = await server.bind([Listener(name=name, host="127.0.0.1", port=0) for name in listeners], listeners[-1])
    await server.serve(dispatcher, guards)
    served = Served(server, dispatcher, supervisor, ports)
    try:
        yield served
    finally:
        await served.close_clients()
        await server.stop()
        await supervisor.stop()
