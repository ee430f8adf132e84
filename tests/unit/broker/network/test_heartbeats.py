"""Heartbeats are answered while the broker's own event loop stands still: on real sockets, loops and threads."""

import asyncio
import random
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from broker.config_sources import load_config
from broker.network.heartbeats import Heartbeats, heartbeat_client_id
from broker.network.side_loop import ProtocolFactory, ThreadSideLoop
from broker.server import start_broker
from broker.storage.disk import LocalDisk
from protocol.framing import encode_request, parse_response
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest
from protocol.schema import Message

VERSION = 3
TIMEOUT_SECONDS = 30.0


class BlockingClient:
    """Whoever waits for an answer here stops the event loop of this thread."""

    def __init__(self, port: int, client_id: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
        self._client_id = client_id
        self._sent = 0

    def send(self, request: Message) -> None:
        self._sent += 1
        self._socket.sendall(b"".join(encode_request(self._sent, self._client_id, request, VERSION)))

    def receive(self) -> bytes:
        """A frame; empty if the connection has ended."""
        (size,) = struct.unpack(">i", self._read(4) or bytes(4))
        return self._read(size)

    def ask(self) -> tuple[int, ApiVersionsResponse]:
        self.send(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
        return parse_response(ApiVersionsResponse, VERSION, memoryview(self.receive()))

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self._socket.recv(size - len(data))):
            data += more
        return data


async def _serve(directory: Path) -> None:
    """Run a broker and a client that asks it from the loop that the broker runs on."""
    side_loop = ThreadSideLoop()
    config = load_config(
        overrides=["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={directory}"], environment={}
    ).config
    broker = await start_broker(
        config, disk=LocalDisk(), wall_clock=lambda: 0, rng=random.Random(1), side_loop=side_loop
    )
    (listener,) = broker.listeners.advertised.values()
    port = listener.port
    client = await asyncio.to_thread(BlockingClient, port, heartbeat_client_id(7))
    correlation_id, first = await asyncio.to_thread(client.ask)
    assert (correlation_id, first.error_code) == (1, 0)
    assert first.api_keys, "the first answer comes from the broker"
    try:
        for expected in range(2, 5):  # Here, on the broker's loop, which therefore does not turn.
            correlation_id, answer = client.ask()
            assert (correlation_id, answer.error_code) == (expected, 0)
        client.send(MetadataRequest(topics=[]))
        assert client.receive() == b"", "nothing but heartbeats is answered"
    finally:
        client.close()
        await broker.stop()
        side_loop.close()


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_heartbeats_are_answered_while_the_broker_loop_stands_still(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(tmp_path))


class PromptSideLoop:
    """The broker's loop calls back before the side loop's thread goes on: the worst moment that threads can choose."""

    def adopt(self, transport: asyncio.BaseTransport, factory: ProtocolFactory) -> bool:
        return False

    def post(self, callback: Callable[[], None]) -> None:
        callback()

    def close(self) -> None:
        pass


def test_loop_that_turns_while_it_is_asked_counts_as_turning() -> None:
    async def ask() -> list[bool]:
        heartbeats = Heartbeats(PromptSideLoop())
        return [heartbeats.is_turning() for _ in range(3)]

    assert asyncio.run(ask()) == [True, True, True]
