"""What lies between processes that faults cut off from each other: nothing is lost, nothing is reordered, and nothing
passes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from tests.faults.conduits import ZOOKEEPER, Conduits

pytestmark = pytest.mark.real_loop

SECONDS = 300.0
"""It ends a test that hangs."""
TURN_SECONDS = 0.1
"""For what must not happen to happen."""


class Ear(asyncio.Protocol):
    """One end of a connection that remembers what it hears, and can say it back."""

    def __init__(self, *, echoes: bool = False) -> None:
        self._echoes = echoes
        self._news = asyncio.Event()
        self.heard = b""
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self._news.set()
        if self._echoes:
            self.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        self._news.set()

    async def until(self, condition: Callable[["Ear"], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition(self):
                self._news.clear()
                await self._news.wait()


class World:
    """A broker 1 that says back what it hears, and the way to it."""

    def __init__(self) -> None:
        self.conduits = Conduits()
        self.served: list[Ear] = []

    def _serve(self) -> Ear:
        self.served.append(Ear(echoes=True))
        return self.served[-1]

    async def open(self, source: str | None) -> None:
        self._server = await asyncio.get_running_loop().create_server(self._serve, "127.0.0.1")
        self._port = await self.conduits.lead_to("1", self._server.sockets[0].getsockname()[1], source)

    async def connect(self) -> Ear:
        _, ear = await asyncio.get_running_loop().create_connection(Ear, "127.0.0.1", self._port)
        return ear

    async def close(self) -> None:
        await self.conduits.close()
        self._server.close()
        for ear in self.served:
            ear.transport.close()


@asynccontextmanager
async def world(source: str | None = "2") -> AsyncIterator[World]:
    made = World()
    await made.open(source)
    try:
        yield made
    finally:
        await made.close()


def frame(client_id: str) -> bytes:
    return b"".join(bytes(part) for part in encode_request(1, client_id, ApiVersionsRequest(), 3))


async def test_conduit_without_cut_passes_all_bytes() -> None:
    async with world() as made:
        ear = await made.connect()
        ear.transport.write(b"x" * 1_000_000)
        await ear.until(lambda ear: ear.heard == b"x" * 1_000_000)
        ear.transport.close()
        await made.served[0].until(lambda ear: ear.ended)


async def test_cut_in_one_direction_passes_bytes_of_the_other() -> None:
    async with world() as made:
        ear = await made.connect()
        ear.transport.write(b"a")
        await ear.until(lambda ear: ear.heard == b"a")
        made.conduits.cut([("1", "2")])
        ear.transport.write(b"b")
        await made.served[0].until(lambda ear: ear.heard == b"ab")
        await asyncio.sleep(TURN_SECONDS)
        assert ear.heard == b"a"
        made.conduits.heal()
        await ear.until(lambda ear: ear.heard == b"ab")


async def test_connection_closed_across_a_cut_is_noticed_after_healing() -> None:
    async with world() as made:
        ear = await made.connect()
        ear.transport.write(b"a")
        await ear.until(lambda ear: ear.heard == b"a")
        made.conduits.cut([("1", "2"), ("2", "1")])
        ear.transport.write(b"b")
        ear.transport.close()
        await asyncio.sleep(TURN_SECONDS)
        assert (made.served[0].heard, made.served[0].ended) == (b"a", False)
        made.conduits.heal()
        await made.served[0].until(lambda ear: ear.ended)
        assert made.served[0].heard == b"ab"


@pytest.mark.parametrize("cut", [("1", "2"), ("2", "1")])
async def test_connection_across_a_cut_is_served_after_healing_unless_closed(cut: tuple[str, str]) -> None:
    async with world() as made:
        made.conduits.cut([cut])
        patient, impatient = await made.connect(), await made.connect()
        patient.transport.write(b"patient")
        impatient.transport.write(b"impatient")
        impatient.transport.close()
        await asyncio.sleep(TURN_SECONDS)
        assert made.served == []
        made.conduits.heal()
        await patient.until(lambda ear: ear.heard == b"patient")
        assert [ear.heard for ear in made.served] == [b"patient"]


async def test_cut_between_two_brokers_leaves_others_connected() -> None:
    async with world() as made:
        ear = await made.connect()
        made.conduits.cut([("1", "3"), ("3", "1"), ("1", ZOOKEEPER)])
        ear.transport.write(b"a")
        await ear.until(lambda ear: ear.heard == b"a")


@pytest.mark.parametrize("client_id", ["broker-2", "broker-2-fetcher"])
async def test_broker_is_recognised_by_the_client_id_of_its_first_request(client_id: str) -> None:
    async with world(source=None) as made:
        made.conduits.cut([("2", "1")])
        of_2, of_3 = await made.connect(), await made.connect()
        of_2.transport.write(frame(client_id))
        for byte in frame("broker-3"):
            of_3.transport.write(bytes([byte]))
        await of_3.until(lambda ear: ear.heard == frame("broker-3"))
        assert of_2.heard == b""
        made.conduits.heal()
        await of_2.until(lambda ear: ear.heard == frame(client_id))
        assert made.conduits.strangers == set()


async def test_client_that_is_no_broker_is_listed_as_stranger() -> None:
    async with world(source=None) as made:
        ear = await made.connect()
        ear.transport.write(frame("somebody"))
        await ear.until(lambda ear: ear.heard == frame("somebody"))
        assert made.conduits.strangers == {"somebody"}


async def test_broker_whose_bytes_are_encrypted_is_recognised_by_its_port() -> None:
    made = World()
    ports: list[int] = []

    def owner_of(port: int, _: int) -> str | None:
        ports.append(port)
        return "2" if len(ports) == 1 else None

    made.conduits.owner_of = owner_of
    await made.open(None)
    of_2 = await made.connect()
    of_2.transport.write(b"\x16\x03")
    await of_2.until(lambda ear: ear.heard == b"\x16\x03")
    assert ports == [of_2.transport.get_extra_info("sockname")[1]]
    stranger = await made.connect()
    await stranger.until(lambda ear: ear.ended)
    assert made.conduits.strangers == {f"port {ports[1]}"}
    of_2.transport.close()
    await made.close()
