"""A second event loop, in a thread: it responds to heartbeats while the broker's own loop stalls.

Everything that a broker does happens on one loop, appends included, and a write that the disk holds up for seconds
holds up the loop. Other brokers would take such a broker for dead, if their heartbeats waited, too. So a connection
that carries heartbeats only is *adopted*: a second descriptor of its socket goes to the side loop, and the broker's
loop closes the first.

An adopted connection must be a plain TCP connection: what TLS has in its state cannot be handed over. Then the
heartbeats stay on the broker's loop.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

ProtocolFactory = Callable[[], asyncio.Protocol]


class SideLoop(Protocol):
    """Where connections are served that must not wait for the broker's loop."""

    def adopt(self, transport: asyncio.BaseTransport, factory: ProtocolFactory) -> bool:
        """Serve a connection with another protocol from now on; False if that is not possible.

        What was written to ``transport`` leaves first. ``factory`` is called where the protocol will run.
        """

    def post(self, callback: Callable[[], None]) -> None:
        """Have the broker's loop call back in its next turn, if it still runs."""

    def close(self) -> None:
        """End the connections that were adopted."""


class ThreadSideLoop:
    """A ``SideLoop`` of its own thread, which begins with the first connection."""

    def __init__(self) -> None:
        self._main = asyncio.get_running_loop()
        self._side: asyncio.AbstractEventLoop | None = None
        self._transports: set[asyncio.BaseTransport] = set()

    def adopt(self, transport: asyncio.BaseTransport, factory: ProtocolFactory) -> bool:
        descriptor = transport.get_extra_info("socket")
        if descriptor is None or transport.get_extra_info("sslcontext") is not None:
            return False
        try:
            adopted = socket.socket(fileno=os.dup(descriptor.fileno()))
        except OSError:
            return False
        adopted.setblocking(False)
        asyncio.run_coroutine_threadsafe(self._serve(adopted, factory), self._running())
        transport.close()
        return True

    def post(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # The broker's loop is closed.
            self._main.call_soon_threadsafe(callback)

    def close(self) -> None:
        if self._side is not None:
            asyncio.run_coroutine_threadsafe(self._stop(), self._side)
            self._side = None

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._side is None:
            self._side = asyncio.SelectorEventLoop()
            threading.Thread(target=_run, args=(self._side,), name="heartbeats", daemon=True).start()
        return self._side

    async def _serve(self, adopted: socket.socket, factory: ProtocolFactory) -> None:
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(factory, adopted)
        self._transports = {known for known in self._transports if not known.is_closing()}
        self._transports.add(transport)

    async def _stop(self) -> None:
        """Close all connections, those included that were adopted a moment ago."""
        side = asyncio.get_running_loop()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)
        for transport in self._transports:
            transport.close()
        side.call_soon(side.stop)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()
