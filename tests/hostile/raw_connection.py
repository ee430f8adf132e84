"""A connection that sends bytes as it pleases, and only counts what comes back."""

import asyncio
import ssl
from typing import Any, NamedTuple, Self


class NeverResponded(Exception):
    """Neither a response nor the end of the connection came in time."""


class Received(NamedTuple):
    """What a broker did with what it was sent."""

    responses: int
    closed: bool


class RawConnection(asyncio.Protocol):
    """``async with await RawConnection.open(port)``; the connection is aborted at the end."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.responses = 0
        self.last_response = b""
        self.closed: asyncio.Future[None] = loop.create_future()
        self._arrived = asyncio.Event()
        self._received = bytearray()
        self._transport: Any = None

    @classmethod
    async def open(cls, port: int, tls: ssl.SSLContext | None = None) -> "RawConnection":
        loop = asyncio.get_running_loop()
        host = "localhost" if tls else None
        _, connection = await loop.create_connection(cls, "127.0.0.1", port, ssl=tls, server_hostname=host)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        position, end = 0, len(self._received)
        while end - position >= 4:
            size = int.from_bytes(self._received[position : position + 4], "big")
            if end - position < 4 + size:
                break
            self.last_response = bytes(self._received[position + 4 : position + 4 + size])
            self.responses += 1
            position += 4 + size
        del self._received[:position]
        self._arrived.set()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
        self._arrived.set()

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    def stop_reading(self) -> None:
        self._transport.pause_reading()

    async def receive_any(self, within: float) -> None:
        """Wait for the first bytes, whatever they are. Raises ``TimeoutError``."""
        async with asyncio.timeout(within):
            await self._arrived.wait()

    async def receive(self, responses: int, within: float) -> Received:
        """Wait for so many responses, or the end of the connection. Raises ``NeverResponded`` after ``within`` s."""
        try:
            async with asyncio.timeout(within):
                while self.responses < responses and not self.closed.done():
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError as error:
            raise NeverResponded(f"{self.responses} of {responses} responses after {within:g} s") from error
        return Received(self.responses, self.closed.done())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transport.abort()
        await self.closed
