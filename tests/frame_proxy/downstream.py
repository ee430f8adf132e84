"""A client's connection to the proxy: whole frames in, bytes out."""

import asyncio
from collections.abc import Callable
from typing import cast

from oncelog.clients.frames import FrameSplitter
from oncelog.protocol.schema import Buffer

_MOST_FRAMES = 1_000


class Downstream(asyncio.Protocol):
    """The protocol of one accepted connection; ``accepted`` is told of it once."""

    _transport: asyncio.Transport

    def __init__(self, accepted: Callable[["Downstream"], None]) -> None:
        self._accepted = accepted
        self._splitter = FrameSplitter()
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_FRAMES)

    async def next_frame(self) -> bytes | None:
        """The next frame without its size; None when the client has closed."""
        return await self._frames.get()

    def write(self, parts: list[Buffer]) -> None:
        if not self._transport.is_closing():
            self._transport.writelines(parts)

    def cut(self) -> None:
        """End the connection as a broken network does: at once, without what was still to be read."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._accepted(self)

    def data_received(self, data: bytes) -> None:
        for frame in self._splitter.feed(data):
            self._frames.put_nowait(bytes(frame))

    def connection_lost(self, error: Exception | None) -> None:
        self._frames.put_nowait(None)
