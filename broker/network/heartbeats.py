"""Heartbeats between brokers, with responses even while the broker's event loop stalls.

A broker that watches another sends it a small request five times a second (``oncelog.broker.peers.cluster_channel``):
ApiVersions, over a connection that carries nothing else, under a client id for heartbeats. After the first such request
the connection is handed to the side loop. The side loop responds while the broker's loop has turned within the
last ``MAX_STALL_SECONDS``: a broker that stalls for longer, because its disk does not respond, cannot serve, and others
should lead.

Any client can use that client id. It gets a connection that serves ApiVersions only, with fewer details than the first
response, which came from the broker's loop. Its resources are bounded:

* At most ``MOST_CONNECTIONS`` connections are adopted; the broker's loop responds on the others.
* A connection on which nothing comes for ``connections.max.idle.ms`` is closed.
* A connection whose responses are not read is closed, and so is one that sends many requests at once: a broker waits
  for each response before it sends the next heartbeat.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Final, cast

from oncelog.broker.network.side_loop import SideLoop
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.framing import encode_response, parse_request_header
from oncelog.protocol.messages.api_versions import ApiVersionsResponse
from oncelog.protocol.primitives import DecodeError

MAX_STALL_SECONDS: Final = 5.0
_CLIENT_ID: Final = "oncelog-heartbeat-"
MOST_CONNECTIONS: Final = 100
_MOST_BYTES: Final = 1_024
"""Of one heartbeat."""
_MOST_AT_ONCE: Final = 16
"""Heartbeats that come together. A broker sends one."""
_MOST_UNREAD: Final = 1_024
"""Bytes of responses that wait in this process, beside what the system holds for the client."""
_SIZE: Final = Struct(">i")


def heartbeat_client_id(broker_id: int) -> str:
    """Return the client id under which a broker sends heartbeats."""
    return f"{_CLIENT_ID}{broker_id}"


def is_heartbeat(client_id: str | None) -> bool:
    return client_id is not None and client_id.startswith(_CLIENT_ID)


class Heartbeats:
    """Hands connections to the side loop, and notices there whether the broker's loop turns."""

    def __init__(self, side_loop: SideLoop) -> None:
        self._side_loop = side_loop
        self._connections = 0
        """Those that are adopted. Counted on the broker's loop."""
        self._posted_at: float | None = None
        """When a call was posted to the broker's loop, by the side loop's clock; None if it has run since."""

    def adopt(
        self, transport: asyncio.BaseTransport, max_idle_seconds: float | None, on_lost: Callable[[], None]
    ) -> bool:
        """Respond on the side loop to a connection from now on; False if the broker's loop must.

        The connection is closed when nothing comes for ``max_idle_seconds``; None: never. ``on_lost`` is called on the
        broker's loop when the connection has ended.
        """
        if self._connections >= MOST_CONNECTIONS:
            return False
        lost = partial(self._side_loop.post, partial(self._lost, on_lost))
        if not self._side_loop.adopt(transport, partial(_Responder, self.is_turning, max_idle_seconds, lost)):
            return False
        self._connections += 1
        return True

    def _lost(self, on_lost: Callable[[], None]) -> None:
        self._connections -= 1
        on_lost()

    def is_turning(self) -> bool:
        """Return whether the broker's loop has turned lately. Called on the side loop."""
        now = asyncio.get_running_loop().time()
        posted_at = self._posted_at  # Read once: the broker's loop, in another thread, may clear it at any moment.
        if posted_at is None:
            self._posted_at = now
            self._side_loop.post(self._turned)
            return True
        return now - posted_at <= MAX_STALL_SECONDS

    def _turned(self) -> None:
        self._posted_at = None


class _Responder(asyncio.Protocol):
    """One connection that carries heartbeats."""

    _transport: asyncio.Transport

    def __init__(
        self, is_turning: Callable[[], bool], max_idle_seconds: float | None, on_lost: Callable[[], None]
    ) -> None:
        self._is_turning = is_turning
        self._max_idle_seconds = max_idle_seconds
        self._on_lost = on_lost
        self._received = bytearray()
        self._loop = asyncio.get_running_loop()
        self._last_activity = self._loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_MOST_UNREAD)
        self._check_idle()

    def connection_lost(self, error: Exception | None) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._on_lost()

    def pause_writing(self) -> None:
        """Close the connection of a client that does not read."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._last_activity = self._loop.time()
        self._received += data
        for _ in range(_MOST_AT_ONCE):
            frame = self._next_frame()
            if frame is None:
                return
            self._respond(frame)
        if self._next_frame() is not None:
            self._transport.abort()

    def _next_frame(self) -> bytes | None:
        """Take a whole request from what was received; None if there is none, or the connection is being closed."""
        if self._transport.is_closing() or len(self._received) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._received)
        if not 0 < size <= _MOST_BYTES:
            self._transport.close()
            return None
        end = _SIZE.size + size
        if len(self._received) < end:
            return None
        frame = bytes(self._received[_SIZE.size : end])
        del self._received[:end]
        return frame

    def _respond(self, frame: bytes) -> None:
        """Respond to a heartbeat; close on any other request. Send nothing while the broker's loop stalls."""
        try:
            header, _ = parse_request_header(memoryview(frame))
        except DecodeError:
            self._transport.close()
            return
        if header.api_key != ApiKey.API_VERSIONS or header.api_version not in ApiVersionsResponse.versions:
            self._transport.close()
        elif self._is_turning():
            response = encode_response(header.correlation_id, ApiVersionsResponse(), header.api_version)
            self._transport.write(b"".join(response))  # asyncio's ``writelines`` may not call ``pause_writing``.

    def _check_idle(self) -> None:
        """Close the connection if it has been idle for too long; otherwise look again when it may have been."""
        if self._max_idle_seconds is None:
            return
        idle_at = self._last_activity + self._max_idle_seconds
        if self._loop.time() >= idle_at:
            self._transport.abort()
        else:
            self._idle_timer = self._loop.call_at(idle_at, self._check_idle)
