"""One HTTP request to an issuer of tokens, and its response: in a thread, within a time and a size.

Redirections are not followed and proxies are not used: a secret goes to the address in the settings, or nowhere. HTTPS
trusts what the system trusts. When the time is over the socket is shut down, so that the thread ends, too.
"""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from http.client import HTTPConnection

_MAX_CONNECT_SECONDS: Final = 5.0
_OK: Final = 200


class HttpFailed(Exception):
    """No response that can be used. The text contains neither the request nor the response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """What to send: GET without a body, POST with one."""

    url: str
    """``http:`` or ``https:``."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)


async def exchange(request: HttpRequest, *, seconds: float, max_bytes: int) -> bytes:
    """Return the body of a response with status 200. Raises ``HttpFailed``."""
    from http.client import HTTPException  # Loaded here: most clients and brokers have no need of it.

    loop = asyncio.get_running_loop()
    # In a thread, too: to load the certificates that the system trusts takes some 100 ms.
    connection = await loop.run_in_executor(None, _connection, request.url, min(seconds, _MAX_CONNECT_SECONDS))
    try:
        async with asyncio.timeout(seconds):
            status, body = await loop.run_in_executor(None, _exchange, connection, request, max_bytes)
    except TimeoutError:
        raise HttpFailed(f"no response within {seconds:g} s") from None
    except (OSError, HTTPException, ValueError) as error:
        raise HttpFailed(_reason(error)) from None
    finally:
        _interrupt(connection)
    if status != _OK:
        raise HttpFailed(f"it responds with HTTP status {status}")
    if len(body) > max_bytes:
        raise HttpFailed(f"its response is longer than {max_bytes} bytes")
    return body


def _connection(url: str, seconds: float) -> "HTTPConnection":
    from http.client import HTTPConnection, HTTPSConnection

    parts = urlsplit(url)
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return HTTPSConnection(parts.hostname or "", parts.port, timeout=seconds, context=context)
    return HTTPConnection(parts.hostname or "", parts.port, timeout=seconds)


def _exchange(connection: "HTTPConnection", request: HttpRequest, max_bytes: int) -> tuple[int, bytes]:
    """Send the request and return status and body, of which at most one byte more than ``max_bytes``."""
    from http.client import IncompleteRead

    parts = urlsplit(request.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Accept": "application/json", "Connection": "close", "User-Agent": "oncelog", **request.headers}
    try:
        connection.request("GET" if request.body is None else "POST", target, request.body, headers)
        response = connection.getresponse()
        body = response.read(max_bytes + 1)
        if response.length and len(body) <= max_bytes:
            raise IncompleteRead(b"", response.length)
        return response.status, body
    finally:
        connection.close()


def _interrupt(connection: "HTTPConnection") -> None:
    """End what a thread still does on a connection."""
    open_socket = connection.sock
    if open_socket is not None:
        with suppress(OSError, ValueError):
            open_socket.shutdown(socket.SHUT_RDWR)


def _reason(error: Exception) -> str:
    from http.client import HTTPException, RemoteDisconnected

    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, RemoteDisconnected):
        return "it closes the connection without a response"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "its response is not HTTP" if isinstance(error, HTTPException) else "its address is not valid"
