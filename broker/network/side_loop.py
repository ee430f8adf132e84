"""A second event loop, in a thread: it responds to heartbeats while the broker's own loop stalls.

Everything that a broker does happens on one loop, appends included, and a write that the disk holds up for seconds
holds up the loop. Other brokers would take such a broker for dead, if their heartbeats waited, too. So a connection
that carries heartbeats only is *adopted*: a second descriptor of its socket goes to the side loop, and the broker's
loop closes the first.

A connection with TLS is adopted with the state of its encryption, if nothing is to be sent. Any other one must be a
plain TCP connection. Otherwise the heartbeats stay on the broker's loop.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, cast

from oncelog.broker.dispatch.request import CloseConnection
from oncelog.broker.tls.tls_transport import TlsShared, TlsState, TlsTransport

_BUFFER_SIZE: Final = 4_096

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
        self._tls: TlsShared | None = None
        """What connections with TLS share; None until there is one."""

    def adopt(self, transport: asyncio.BaseTransport, factory: ProtocolFactory) -> bool:
        descriptor = transport.get_extra_info("socket")
        if descriptor is None:
            return False
        try:
            adopted = socket.socket(fileno=os.dup(descriptor.fileno()))
        except OSError:
            return False
        state = None
        if isinstance(transport, TlsTransport):
            state = transport.hand_over()
            if state is None:
                adopted.close()
                return False
        adopted.setblocking(False)
        asyncio.run_coroutine_threadsafe(self._serve(adopted, factory, state), self._running())
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

    async def _serve(self, adopted: socket.socket, factory: ProtocolFactory, state: TlsState | None) -> None:
        secured = factory if state is None else partial(self._carry_on, state, factory)
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(secured, adopted)
        self._transports = {known for known in self._transports if not known.is_closing()}
        self._transports.add(transport)

    def _carry_on(self, state: TlsState, factory: ProtocolFactory) -> asyncio.BaseProtocol:
        if self._tls is None:
            self._tls = TlsShared(handshake_seconds=0, failure_delay_seconds=0)
        return TlsTransport.carry_on(state, _Unbuffered(factory()), self._tls)

    async def _stop(self) -> None:
        """Close all connections, those included that were adopted a moment ago."""
        side = asyncio.get_running_loop()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)
        for transport in self._transports:
            transport.close()
        side.call_soon(side.stop)


class _Unbuffered:
    """Hands what TLS decrypts to a protocol without a buffer of its own. Implements ``SecuredProtocol``."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        self._buffer = memoryview(bytearray(_BUFFER_SIZE))
        self.connection_lost = protocol.connection_lost
        self.pause_writing = protocol.pause_writing
        self.resume_writing = protocol.resume_writing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(TlsTransport, transport)
        self._protocol.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.data_received(bytes(self._buffer[:nbytes]))

    def note_records(self, overhead: int, held: int) -> None:
        """Do nothing: no request here waits for the order of others."""

    def close_after_responses(self, error: CloseConnection) -> None:
        self._transport.abort()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()
