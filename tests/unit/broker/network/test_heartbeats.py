"""Heartbeats get responses while the broker's event loop stalls: on real sockets, loops and threads."""

import asyncio
import random
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.sources import load_config
from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.network.heartbeats import MOST_CONNECTIONS, Heartbeats, heartbeat_client_id, is_heartbeat
from oncelog.broker.network.side_loop import ProtocolFactory, SideLoop, ThreadSideLoop
from oncelog.broker.start import start_broker
from oncelog.broker.storage.disk import LocalDisk
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.framing import encode_request, parse_response
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.schema import Message
from tests.certificates import Certificate, make_certificate
from tests.simulation.virtual_loop import SimSideLoop, VirtualLoop
from tests.unit.broker.network.frame_client import LOOPS, FrameClient, Served, run, serve

VERSION = 3
TIMEOUT_SECONDS = 30.0


class BlockingClient:
    """A client with blocking calls: waiting for a response stalls the event loop of the calling thread."""

    def __init__(self, port: int, client_id: str, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
        self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        self._client_id = client_id
        self._sent = 0

    def send(self, request: Message) -> None:
        self._sent += 1
        self._socket.sendall(b"".join(encode_request(self._sent, self._client_id, request, VERSION)))

    def receive(self) -> bytes:
        """A frame; empty if the connection has ended."""
        (size,) = struct.unpack(">i", self._read(4) or bytes(4))
        return self._read(size)

    def request(self) -> tuple[int, ApiVersionsResponse]:
        self.send(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
        return parse_response(ApiVersionsResponse, VERSION, memoryview(self.receive()))

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self._socket.recv(size - len(data))):
            data += more
        return data


async def _serve(directory: Path, certificate: Certificate | None) -> None:
    """Run a broker and a client that sends it heartbeats from the loop that the broker runs on."""
    side_loop = ThreadSideLoop()
    listener_settings = ["listeners=PLAINTEXT://127.0.0.1:0"]
    tls = None
    if certificate is not None:
        listener_settings = ["listeners=SSL://127.0.0.1:0", f"ssl.keystore.location={certificate.both}"]
        tls = ssl.create_default_context(cafile=str(certificate.certificate))
    config = load_config(overrides=[*listener_settings, f"log.dirs={directory}"], environment={}).config
    broker = await start_broker(
        config, disk=LocalDisk(), wall_clock=lambda: 0, rng=random.Random(1), side_loop=side_loop
    )
    (listener,) = broker.listeners.advertised.values()
    port = listener.port
    client = await asyncio.to_thread(BlockingClient, port, heartbeat_client_id(7), tls)
    correlation_id, first = await asyncio.to_thread(client.request)
    assert (correlation_id, first.error_code) == (1, 0)
    assert first.api_keys, "the first response comes from the broker"
    try:
        for expected in range(2, 5):  # Here, on the broker's loop, which therefore does not turn.
            correlation_id, response = client.request()
            assert (correlation_id, response.error_code) == (expected, 0)
        client.send(MetadataRequest(topics=[]))
        assert client.receive() == b"", "only heartbeats get responses"
    finally:
        client.close()
        await broker.stop()
        side_loop.close()


@pytest.mark.parametrize("has_tls", [False, True])
@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_heartbeats_get_responses_while_the_broker_loop_stalls(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path, has_tls: bool
) -> None:
    certificate = make_certificate(tmp_path, "localhost", "DNS:localhost") if has_tls else None
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(tmp_path / "data", certificate))


class PromptSideLoop:
    """The broker's loop calls back before the side loop's thread goes on: the worst moment that threads can choose."""

    def adopt(self, transport: asyncio.BaseTransport, factory: ProtocolFactory) -> bool:
        return False

    def post(self, callback: Callable[[], None]) -> None:
        callback()

    def close(self) -> None:
        pass


def test_loop_that_runs_the_posted_call_counts_as_turning() -> None:
    async def turning() -> list[bool]:
        heartbeats = Heartbeats(PromptSideLoop())
        return [heartbeats.is_turning() for _ in range(3)]

    assert asyncio.run(turning()) == [True, True, True]


# What strangers can take by calling themselves brokers


@handles(ApiKey.API_VERSIONS, versions="0-4")
def handle_api_versions(broker: Any, context: RequestContext, request: ApiVersionsRequest) -> Outcome:
    context.connection.carries_heartbeats = is_heartbeat(context.client_id)
    return ApiVersionsResponse()


def heartbeats(count: int) -> bytes:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return b"".join(b"".join(encode_request(i, heartbeat_client_id(9), request, VERSION)) for i in range(count))


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until something holds; the scenario's own limit ends it otherwise."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


@asynccontextmanager
async def serve_heartbeats(config: BrokerConfig, listeners: Sequence[str] = ("PLAINTEXT",)) -> AsyncIterator[Served]:
    """A server that adopts the connections of heartbeats: on a side loop of its own, or on a simulated one."""
    loop = asyncio.get_running_loop()
    side_loop: SideLoop = SimSideLoop(loop) if isinstance(loop, VirtualLoop) else ThreadSideLoop()
    async with serve(
        [handle_api_versions], config=config, heartbeats=Heartbeats(side_loop), listeners=listeners
    ) as served:
        try:
            yield served
        finally:
            side_loop.close()


async def gets_response(client: FrameClient) -> bool:
    """Return whether a heartbeat gets a response; then its connection is adopted, if it is the first one."""
    responses = len(client.frames)
    client.transport.write(heartbeats(1))
    return len(await client.correlation_ids(responses + 1)) > responses


every_loop = pytest.mark.parametrize("loop_name", LOOPS)


@every_loop
def test_adopted_connections_keep_their_slots_until_they_are_closed(loop_name: str) -> None:
    async def scenario() -> None:
        async with serve_heartbeats(BrokerConfig(max_connections=2)) as served:
            clients = [await served.connect() for _ in range(2)]
            for _ in range(3):
                assert [await gets_response(client) for client in clients] == [True, True]
            assert served.server.connection_count == served.server.traffic()["PLAINTEXT"].connections == 2
            assert not await gets_response(await served.connect())
            clients[0].transport.close()
            await until(lambda: served.server.connection_count == 1)
            assert await gets_response(await served.connect())

    run(loop_name, scenario)


@every_loop
def test_adopted_connection_that_falls_silent_is_closed(loop_name: str) -> None:
    idle_ms = 500 if loop_name == "virtual" else 3_000  # A busy machine needs time for the first heartbeat.

    async def scenario() -> None:
        async with serve_heartbeats(BrokerConfig(connections_max_idle_ms=idle_ms)) as served:
            client = await served.connect()
            assert await gets_response(client)
            await client.lost
            await until(lambda: served.server.connection_count == 0)

    run(loop_name, scenario)


def test_adopted_connection_stays_while_heartbeats_come() -> None:
    async def scenario() -> None:
        async with serve_heartbeats(BrokerConfig(connections_max_idle_ms=500)) as served:
            client = await served.connect()
            for _ in range(8):
                assert await gets_response(client)
                await asyncio.sleep(0.2)

    run("virtual", scenario)


@every_loop
def test_ten_thousand_heartbeats_at_once_close_the_connection(loop_name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serve_heartbeats(BrokerConfig()) as served:
            client = await served.connect()
            assert await gets_response(client)
            client.transport.pause_reading()
            client.transport.write(heartbeats(10_000))
            await until(lambda: served.server.connection_count == 0)
            client.transport.resume_reading()
            await client.lost
            assert len(client.frames) < 100

    run(loop_name, scenario)
    assert "socket.send()" not in caplog.text


def test_heartbeats_on_a_listener_for_clients_stay_with_the_broker_loop() -> None:
    async def scenario() -> None:
        async with serve_heartbeats(BrokerConfig(), listeners=("CLIENTS", "BROKERS")) as served:
            for listener, is_adopted in (("CLIENTS", False), ("BROKERS", True)):
                client = await served.connect(listener)
                assert await gets_response(client)
                before = served.server.traffic()[listener].bytes_in
                assert await gets_response(client)
                assert (served.server.traffic()[listener].bytes_in == before) == is_adopted

    run("virtual", scenario)


class FullTransport(asyncio.Transport):
    """A transport whose client reads nothing: what is written stays. It ends as asyncio's do."""

    def __init__(self) -> None:
        super().__init__()
        self.buffered = 0
        self.writes_after_end = 0
        self._high = 64 * 1024
        self._is_closing = False
        self.protocol: asyncio.Protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self._high = high

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            self.writes_after_end += 1
            return
        self.buffered += len(data)
        if self.buffered > self._high:
            self.protocol.pause_writing()

    def is_closing(self) -> bool:
        return self._is_closing

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class FullSideLoop(PromptSideLoop):
    """Adopts connections whose clients read nothing."""

    def __init__(self) -> None:
        self.transports: list[FullTransport] = []

    def adopt(self, transport: asyncio.BaseTransport, factory: ProtocolFactory) -> bool:
        full = FullTransport()
        full.protocol = factory()
        full.protocol.connection_made(full)
        self.transports.append(full)
        return True


def test_adopted_connection_whose_responses_are_not_read_is_closed() -> None:
    async def scenario() -> None:
        side_loop, lost = FullSideLoop(), list[None]()
        assert Heartbeats(side_loop).adopt(FullTransport(), None, lambda: lost.append(None))
        (transport,) = side_loop.transports
        for _ in range(1_250):
            transport.protocol.data_received(heartbeats(8))
        assert transport.is_closing()
        assert transport.buffered < 8 * 1024
        assert transport.writes_after_end == 0
        await until(lambda: lost)
        assert len(lost) == 1

    asyncio.run(scenario())


def test_adopted_connections_are_bounded_and_make_room_when_they_end() -> None:
    async def scenario() -> None:
        side_loop, lost = FullSideLoop(), list[None]()
        responders = Heartbeats(side_loop)

        def adopt() -> bool:
            return responders.adopt(FullTransport(), None, lambda: lost.append(None))

        assert all(adopt() for _ in range(MOST_CONNECTIONS))
        assert not adopt()
        side_loop.transports[0].abort()
        await until(lambda: lost)
        assert adopt()
        assert not adopt()

    asyncio.run(scenario())
