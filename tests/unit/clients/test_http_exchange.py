"""One HTTP request: bounds of time and size, and what is not followed."""

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.clients.http_exchange import HttpFailed, HttpRequest, exchange
from tests.certificates import make_authority

pytestmark = pytest.mark.real_loop


class _Scripted(asyncio.Protocol):
    def __init__(self, script: Callable[[asyncio.Transport, bytes], None]) -> None:
        self._script = script
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if b"\r\n\r\n" in self._received:
            self._script(self._transport, self._received)


@asynccontextmanager
async def serve(
    script: Callable[[asyncio.Transport, bytes], None], context: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Scripted(script), "127.0.0.1", 0, ssl=context)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def respond(content: bytes) -> Callable[[asyncio.Transport, bytes], None]:
    def script(transport: asyncio.Transport, request: bytes) -> None:
        transport.write(content)
        transport.close()

    return script


async def test_body_is_returned_and_path_and_query_are_sent() -> None:
    requests: list[bytes] = []

    def script(transport: asyncio.Transport, request: bytes) -> None:
        requests.append(request)
        respond(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")(transport, request)

    async with serve(script) as url:
        assert await exchange(HttpRequest(url=f"{url}/a?b=c"), seconds=5, max_bytes=3) == b"abc"
        assert requests[0].startswith(b"GET /a?b=c HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n", "it responds with HTTP status 302"),
        (b"HTTP/1.1 401 No\r\n\r\nhidden", "it responds with HTTP status 401"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 101, "its response is longer than 100 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx", "its response is not HTTP"),
        (b"SSH-2.0-hidden\r\n", "its response is not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200, "its response is not HTTP"),
        (b"", "it closes the connection without a response"),
    ],
    ids=lambda value: str(value[:30]),
)
async def test_response_that_cannot_be_used_is_an_error_without_its_content(content: bytes, why: str) -> None:
    async with serve(respond(content)) as url:
        with pytest.raises(HttpFailed, match=why) as raised:
            await exchange(HttpRequest(url=url), seconds=5, max_bytes=100)
        assert "hidden" not in str(raised.value)


async def test_slow_response_ends_in_time_and_so_does_its_thread() -> None:
    def drip(transport: asyncio.Transport, request: bytes) -> None:
        transport.write(b"H")
        asyncio.get_running_loop().call_later(0.05, drip, transport, request)

    async with serve(drip) as url:
        with pytest.raises(HttpFailed, match=r"no response within 0\.3 s"):
            await exchange(HttpRequest(url=url), seconds=0.3, max_bytes=100)
        before = threading.active_count()
        await asyncio.wait_for(asyncio.get_running_loop().shutdown_default_executor(), 5)
        assert threading.active_count() < before or before == 1


async def test_certificate_must_be_one_that_the_system_trusts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = make_authority("root")
    own = authority.issue("localhost")
    (tmp_path / "own.pem").write_bytes(own.key_pem() + own.chain_pem)
    (tmp_path / "ca.pem").write_bytes(authority.certificate_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own.pem")
    content = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    async with serve(respond(content), context) as url:
        url = url.replace("http://127.0.0.1", "https://localhost")
        with pytest.raises(HttpFailed, match="its certificate is not accepted: "):
            await exchange(HttpRequest(url=url), seconds=5, max_bytes=100)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert await exchange(HttpRequest(url=url), seconds=5, max_bytes=100) == b"{}"


async def test_address_without_a_server_is_an_error() -> None:
    async with serve(respond(b"")) as url:
        pass
    with pytest.raises(HttpFailed, match="Connection refused"):
        await exchange(HttpRequest(url=url), seconds=5, max_bytes=100)
