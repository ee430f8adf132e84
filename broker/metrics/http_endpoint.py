"""A small HTTP server for a few pages that are read: GET and HEAD, one request on a connection.

It stands beside a broker that has other things to do, so everything is bounded: the connections, the size of a request,
and the time from its first byte to the last of the response. A client that exceeds a bound loses the connection.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias, cast

from oncelog.broker.process.supervisor import Supervisor

logger = logging.getLogger(__name__)

_MOST_CONNECTIONS: Final = 16
_LARGEST_REQUEST: Final = 8 * 1024
_LONGEST_SECONDS: Final = 30.0
_BACKLOG: Final = 16
_TEXT: Final = "text/plain; charset=utf-8"
_END: Final = b"\r\n\r\n"


class Page(NamedTuple):
    """The response to a request."""

    parts: tuple[bytes, ...]
    """The body. One part is sent after the other, as the client reads: a page of metrics may have many megabytes."""
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = _TEXT


Pages: TypeAlias = Mapping[str, Callable[[], Awaitable[Page]]]
"""By path."""


class HttpEndpoint:
    """Listens at one address. Every request is a task of the supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._server: asyncio.AbstractServer | None = None
        self._connections: dict[_Connection, None] = {}
        self.pages: Pages = {}
        """Empty until the broker has something to show: every path is unavailable then."""

    async def listen(self, host: str, port: int) -> int:
        """Open the address; returns the port. Raises ``OSError`` when it is not available."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), host or None, port, backlog=_BACKLOG)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def stop(self) -> None:
        """Close the address and every connection."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()

    def make(self, request: bytes, on_page: Callable[[Page], None]) -> None:
        """Call back with the page that a request names; with an error page if it cannot be made."""

        def made(task: "asyncio.Task[Page]") -> None:
            if task.cancelled():
                return  # The broker stops.
            error = task.exception()
            if error is not None:
                logger.error("The page of %r cannot be made", request.decode("latin-1"), exc_info=error)
            on_page(_problem(HTTPStatus.INTERNAL_SERVER_ERROR) if error is not None else task.result())

        self._supervisor.spawn(self._page(request), "HTTP request", on_done=made)

    def admit(self, connection: "_Connection") -> bool:
        """Return whether there is room for one more connection."""
        self._connections[connection] = None
        return len(self._connections) <= _MOST_CONNECTIONS

    def forget(self, connection: "_Connection") -> None:
        del self._connections[connection]

    async def _page(self, request: bytes) -> Page:
        """Return the page that a request names, or an error page."""
        method, _, rest = request.partition(b" ")
        target, _, version = rest.partition(b" ")
        if not version.startswith(b"HTTP/1.") or not target.startswith(b"/"):
            return _problem(HTTPStatus.BAD_REQUEST)
        if method not in (b"GET", b"HEAD"):
            return _problem(HTTPStatus.METHOD_NOT_ALLOWED)
        if not self.pages:
            return _problem(HTTPStatus.SERVICE_UNAVAILABLE, "the broker is starting")
        page = self.pages.get(target.partition(b"?")[0].decode("latin-1"))
        if page is None:
            return _problem(HTTPStatus.NOT_FOUND, f"there are {', '.join(self.pages)}")
        return await page()


class _Connection(asyncio.Protocol):
    """One request, one response."""

    _transport: asyncio.Transport
    _deadline: asyncio.TimerHandle

    def __init__(self, endpoint: HttpEndpoint) -> None:
        self._endpoint = endpoint
        self._received = bytearray()
        self._is_received = False
        self._unsent: deque[bytes] = deque()
        """The rest of the response."""
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = asyncio.get_running_loop().call_later(_LONGEST_SECONDS, self.abort)
        if not self._endpoint.admit(self):
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._deadline.cancel()
        self._unsent.clear()
        self._endpoint.forget(self)

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_received or self._transport.is_closing():
            return
        self._received += data
        if _END in self._received:
            self._is_received = True
            request = bytes(self._received).partition(b"\r\n")[0]
            self._endpoint.make(request, lambda page: self._write(page, request.partition(b" ")[0]))
        elif len(self._received) > _LARGEST_REQUEST:
            self._is_received = True
            self._write(_problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), b"GET")

    def _write(self, page: Page, method: bytes) -> None:
        """Write the response and end the connection when it has left, or when its time is up."""
        head = (
            f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
            f"Content-Type: {page.content_type}\r\n"
            f"Content-Length: {sum(map(len, page.parts))}\r\n"
            "Connection: close\r\n\r\n"
        )
        self._unsent = deque((head.encode(), *(() if method == b"HEAD" else page.parts)))
        self._send()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._send()

    def _send(self) -> None:
        """Send one part in this turn of the loop, if the client has read enough of those before."""
        if self._is_paused or not self._unsent:
            return
        self._transport.write(self._unsent.popleft())
        if not self._unsent:
            self._transport.close()
        elif not self._is_paused:
            asyncio.get_running_loop().call_soon(self._send)


def _problem(status: HTTPStatus, message: str = "") -> Page:
    return Page((f"{message or status.phrase}\n".encode(),), status)
