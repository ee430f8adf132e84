"""The pages' server, on uvloop, on stock asyncio and in virtual time."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from oncelog.broker.metrics.http_endpoint import HttpEndpoint, Page
from oncelog.broker.process.supervisor import Supervisor
from tests.unit.broker.network.frame_client import LOOPS, run

every_loop = pytest.mark.parametrize("loop_name", LOOPS)


PART_SIZE, PARTS = 1 << 16, 120
"""Of a page that no socket takes at once."""


class Client(asyncio.Protocol):
    """Sends bytes, and keeps what comes until the other side closes."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.received = b""
        self.closed: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(self.received)


class Site:
    """An endpoint with a page that responds, one that waits for its gate, and one that fails."""

    def __init__(self) -> None:
        self.supervisor = Supervisor()
        self.endpoint = HttpEndpoint(self.supervisor)
        self.gate = asyncio.Event()
        self.port = 0

    def publish(self) -> None:
        self.endpoint.pages = {
            "/large": self._large,
            "/page": self._page,
            "/gated": self._gated,
            "/broken": self._broken,
        }

    async def connect(self) -> Client:
        _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", self.port)
        return client

    async def ask(self, *parts: bytes) -> bytes:
        client = await self.connect()
        for part in parts:
            client.transport.write(part)
            await asyncio.sleep(0.001)
        return await client.closed

    async def _page(self) -> Page:
        return Page((b"con", b"tent"), content_type="text/x")

    async def _large(self) -> Page:
        return Page((bytes(PART_SIZE),) * PARTS)

    async def _gated(self) -> Page:
        await self.gate.wait()
        return Page((b"late",))

    async def _broken(self) -> Page:
        raise ValueError("a bug")


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    site = Site()
    site.port = await site.endpoint.listen("127.0.0.1", 0)
    site.publish()
    try:
        yield site
    finally:
        site.endpoint.stop()
        await site.supervisor.stop()


def status(response: bytes) -> int:
    version, code, _ = response.split(b" ", 2)
    assert version == b"HTTP/1.1"
    return int(code)


@every_loop
def test_page_is_sent_whole_and_the_connection_ends(loop_name: str) -> None:
    async def scenario() -> None:
        async with site() as here:
            response = await here.ask(b"GET /page?x=1 HTTP/1.1\r\nHost: x\r\n", b"Accept: */*\r\n\r\n")
            head, _, body = response.partition(b"\r\n\r\n")
            assert body == b"content"
            assert head.split(b"\r\n") == [
                b"HTTP/1.1 200 OK",
                b"Content-Type: text/x",
                b"Content-Length: 7",
                b"Connection: close",
            ]
            assert (await here.ask(b"HEAD /page HTTP/1.0\r\n\r\n")).split(b"\r\n\r\n")[1] == b""

    run(loop_name, scenario)


@every_loop
def test_large_page_is_sent_as_its_client_reads(loop_name: str) -> None:
    async def scenario() -> None:
        async with site() as here:
            slow = await here.connect()
            slow.transport.pause_reading()
            slow.transport.write(b"GET /large HTTP/1.1\r\n\r\n")
            assert (await here.ask(b"GET /page HTTP/1.1\r\n\r\n")).endswith(b"content")
            slow.transport.resume_reading()
            head, _, body = (await slow.closed).partition(b"\r\n\r\n")
            assert len(body) == PARTS * PART_SIZE
            assert b"Content-Length: %d" % len(body) in head

    run(loop_name, scenario)


@every_loop
@pytest.mark.parametrize(
    ("request_line", "code"),
    [
        (b"GET /nothing HTTP/1.1", 404),
        (b"POST /page HTTP/1.1", 405),
        (b"GET page HTTP/1.1", 400),
        (b"GET /page", 400),
        (b"GET /page HTTP/2", 400),
        (b"\x00\x00\x00\x12\x00\x12\x00\x03", 400),
        (b"", 400),
        (b"GET /\xff HTTP/1.1", 404),
    ],
)
def test_unknown_page_is_refused(loop_name: str, request_line: bytes, code: int) -> None:
    async def scenario() -> None:
        async with site() as here:
            assert status(await here.ask(request_line + b"\r\n\r\n")) == code

    run(loop_name, scenario)


def test_page_that_fails_is_500_and_the_log_has_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with site() as here:
            with caplog.at_level(logging.ERROR):
                assert status(await here.ask(b"GET /broken HTTP/1.1\r\n\r\n")) == 500
            assert "a bug" in caplog.text

    run("virtual", scenario)


def test_page_before_the_broker_serves_is_unavailable() -> None:
    async def scenario() -> None:
        async with site() as here:
            here.endpoint.pages = {}
            assert status(await here.ask(b"GET /page HTTP/1.1\r\n\r\n")) == 503

    run("virtual", scenario)


@every_loop
def test_request_without_end_is_refused(loop_name: str) -> None:
    async def scenario() -> None:
        async with site() as here:
            assert status(await here.ask(b"GET /page HTTP/1.1\r\n", b"x" * 10_000)) == 431

    run(loop_name, scenario)


@every_loop
def test_more_connections_than_there_is_room_for_are_cut(loop_name: str) -> None:
    async def scenario() -> None:
        async with site() as here:
            waiting = [await here.connect() for _ in range(16)]
            for client in waiting:
                client.transport.write(b"GET /gated HTTP/1.1\r\n\r\n")
            assert await here.ask() == b""
            here.gate.set()
            assert [status(await client.closed) for client in waiting] == [200] * 16
            assert status(await here.ask(b"GET /page HTTP/1.1\r\n\r\n")) == 200

    run(loop_name, scenario)


@pytest.mark.parametrize("begun", [b"", b"GET /page HTTP/1.1\r\n", b"GET /gated HTTP/1.1\r\n\r\n"])
def test_connection_without_a_request_is_closed_in_time(begun: bytes) -> None:
    """In virtual time. Neither a client that does not ask, nor one whose page does not come."""

    async def scenario() -> None:
        async with site() as here:
            loop = asyncio.get_running_loop()
            client = await here.connect()
            began = loop.time()
            client.transport.write(begun)
            await client.closed
            assert 29 < loop.time() - began < 31

    with asyncio.Runner(loop_factory=LOOPS["virtual"]) as runner:
        runner.run(scenario())


@every_loop
def test_stopping_ends_what_is_under_way(loop_name: str) -> None:
    async def scenario() -> None:
        async with site() as here:
            client = await here.connect()
            client.transport.write(b"GET /gated HTTP/1.1\r\n\r\n")
            await asyncio.sleep(0.01)
            here.endpoint.stop()
            assert await client.closed == b""
            await here.supervisor.stop()
            assert len(here.supervisor) == 0

    run(loop_name, scenario)
