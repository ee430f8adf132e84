"""Heartbeats between brokers, answered although the broker's loop stands still for a while.

A broker that watches another asks it something small five times a second (``broker.broker_channel``): ApiVersions, over
a connection that carries nothing else, under a client id that says so. After the first such request the connection is
handed to the side loop. That answers as long as the broker's loop has turned within the last ``MAX_STALL_SECONDS``: one
that stands still for longer, because the disk does not come back, is of no use, and others should lead.

Any client can name itself so. It gets a connection that answers ApiVersions and nothing else; what it learns is less
than from the first answer, which came from the broker's loop.
"""

import asyncio
from functools import partial
from struct import Struct
from typing import Final, cast

from broker.network.side_loop import SideLoop
from protocol.api_keys import ApiKey
from protocol.framing import encode_response, parse_request_header
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.primitives import DecodeError

MAX_STALL_SECONDS: Final = 5.0
_CLIENT_ID: Final = "oncelog-heartbeat-"
_MOST_CONNECTIONS: Final = 1_000
_MOST_BYTES: Final = 1_024
"""Of one heartbeat."""
_SIZE: Final = Struct(">i")


def heartbeat_client_id(broker_id: int) -> str:
    """The client id under which a broker sends heartbeats."""
    return f"{_CLIENT_ID}{broker_id}"


def is_heartbeat(client_id: str | None) -> bool:
    return client_id is not None and client_id.startswith(_CLIENT_ID)


class Heartbeats:
    """Hands connections to the side loop, and notices there whether the broker's loop turns."""

    def __init__(self, side_loop: SideLoop) -> None:
        self._side_loop = side_loop
        self._connections = 0
        self._asked_at: float | None = None
        """When the broker's loop was asked to turn, by the side loop's clock; None if it has turned since."""

    def adopt(self, transport: asyncio.BaseTransport) -> bool:
        """Answer what comes over a connection on the side loop from now on; False if the broker's loop has to."""
        return self._connections < _MOST_CONNECTIONS and self._side_loop.adopt(transport, partial(_Responder, self))

    def is_turning(self) -> bool:
        """Whether the broker's loop has turned lately. Called on the side loop."""
        now = asyncio.get_running_loop().time()
        asked_at = self._asked_at  # Read once: the broker's loop, in another thread, may clear it at any moment.
        if asked_at is None:
            self._asked_at = now
            self._side_loop.post(self._turned)
            return True
        return now - asked_at <= MAX_STALL_SECONDS

    def _turned(self) -> None:
        self._asked_at = None

    def opened(self) -> None:
        self._connections += 1

    def closed(self) -> None:
        self._connections -= 1


class _Responder(asyncio.Protocol):
    """One connection that carries heartbeats."""

    _transport: asyncio.Transport

    def __init__(self, heartbeats: Heartbeats) -> None:
        self._heartbeats = heartbeats
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._heartbeats.opened()

    def connection_lost(self, error: Exception | None) -> None:
        self._heartbeats.closed()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._received)
            end = _SIZE.size + size
            if not 0 < size <= _MOST_BYTES:
                self._transport.close()
                return
            if len(self._received) < end:
                return
            frame = bytes(self._received[_SIZE.size : end])
            del self._received[:end]
            self._answer(frame)

    def _answer(self, frame: bytes) -> None:
        """Answer, or close on whatever is no heartbeat. A broker that stands still for too long says nothing."""
        try:
            header, _ = parse_request_header(memoryview(frame))
        except DecodeError:
            self._transport.close()
            return
        if header.api_key != ApiKey.API_VERSIONS or header.api_version not in ApiVersionsResponse.versions:
            self._transport.close()
        elif self._heartbeats.is_turning():
            response = encode_response(header.correlation_id, ApiVersionsResponse(), header.api_version)
            self._transport.writelines(response)
