"""A connection to the broker that carries frames as they are: in order, responses matched by order."""

import asyncio
from collections import deque
from struct import Struct
from typing import cast

from oncelog.clients.frames import FrameSplitter

_SIZE = Struct(">i")


class Upstream(asyncio.Protocol):
    """Make it with ``connect``. Responses are frames without their size; None where the broker closed instead."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._splitter = FrameSplitter()
        self._awaited: deque[asyncio.Future[memoryview | None]] = deque()
        self.is_open = True

    def send(self, frame: bytes) -> "asyncio.Future[memoryview | None]":
        """Send a frame that will be answered."""
        response: asyncio.Future[memoryview | None] = asyncio.get_running_loop().create_future()
        if self.is_open:
            self._awaited.append(response)
            self.send_without_response(frame)
        else:
            response.set_result(None)
        return response

    def send_without_response(self, frame: bytes) -> None:
        self._transport.writelines([_SIZE.pack(len(frame)), frame])

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for response in self._splitter.feed(data):
            awaited = self._awaited.popleft()
            if not awaited.done():
                awaited.set_result(response)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        for awaited in self._awaited:
            if not awaited.done():
                awaited.set_result(None)
        self._awaited.clear()


async def connect(port: int) -> Upstream:
    """Raises ``OSError`` when the broker is not there."""
    loop = asyncio.get_running_loop()
    _, upstream = await loop.create_connection(Upstream, "127.0.0.1", port)
    return upstream
