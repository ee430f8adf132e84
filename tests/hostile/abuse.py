"""What clients can do to a broker with TLS, authentication and access control lists, each a coroutine.

As in ``tests.hostile.attacks``, the broker may respond, refuse or close; what it does to the ordinary client beside is
measured around it (``tests.hostile.abuse_stage``).
"""

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.topic_partition import TopicPartition
from tests.hostile import hostile_bytes as made
from tests.hostile.attacks import Tally
from tests.hostile.raw_connection import RawConnection
from tests.hostile.secured_broker import ABUSER, LARGE, UNKNOWN, Place, login, trusting
from tests.simulation import requests
from tests.simulation.wire_client import WireClient

_WITHIN_SECONDS: Final = 90.0
_METADATA_VERSION: Final = 9
_PRODUCE_VERSION: Final = 9
_NAMES: Final = 10_000
"""Of a request: nearly as many as a broker takes."""
_FETCHES: Final = 60
_RECORD_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Abuse:
    """How much of it."""

    lists: int
    """Access control lists."""
    slow: int
    """Connections that send one byte a second."""
    storm: int
    """Connections that come at the same moment."""
    seconds: int
    """How long what has no end goes on."""
    together: int
    """Connections that begin handshakes and log in, without end."""
    non_readers: int
    """Consumers that read nothing."""
    decisions: int
    """Of the access control lists, for one client."""


FULL: Final = Abuse(
    lists=10_000, slow=1_000, storm=2_000, seconds=15, together=50, non_readers=100, decisions=1_000_000
)
SMALL: Final = Abuse(lists=300, slow=20, storm=20, seconds=1, together=4, non_readers=4, decisions=20_000)
"""For every run of the tests."""


class Abuser:
    """A hostile client with an account."""

    def __init__(self, place: Place, abuse: Abuse, tally: Tally) -> None:
        self.place = place
        self.abuse = abuse
        self.tally = tally
        self.context = trusting(place.authority)
        self.rng = random.Random(1)

    async def connected(self) -> RawConnection:
        """A connection whose handshake is done."""
        return await RawConnection.open(self.place.port, self.context)

    async def logged_in(self) -> RawConnection:
        connection = await self.connected()
        for number, part in enumerate(login(ABUSER, ABUSER), start=1):
            connection.send(part)
            received = await connection.receive(number, _WITHIN_SECONDS)
            assert not received.closed
        return connection

    def client_hello(self) -> bytes:
        """The first bytes of a handshake; it costs nothing to send them again."""
        outgoing = ssl.MemoryBIO()
        try:
            self.context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
        except ssl.SSLWantReadError:
            pass
        return outgoing.read()

    async def until_the_end(self, act: Callable[[], Awaitable[None]], fate: str) -> None:
        """Act without a pause on so many connections, for so many seconds."""
        end = perf_counter() + self.abuse.seconds

        async def go_on() -> None:
            while perf_counter() < end:
                await act()
                self.tally.add(1, fate)

        await asyncio.gather(*(go_on() for _ in range(self.abuse.together)))


async def slow_connections(abuser: Abuser) -> None:
    """Handshakes of which one byte comes a second."""
    hello = abuser.client_hello()
    connections = [await RawConnection.open(abuser.place.port) for _ in range(abuser.abuse.slow)]
    for position in range(abuser.abuse.seconds):
        for connection in connections:
            if not connection.closed.done():
                connection.send(hello[position : position + 1])
        await asyncio.sleep(1.0)  # The pace of a client that crawls.
    abuser.tally.add(len(connections), "crawled")
    await _abort(connections)


async def connection_storm(abuser: Abuser) -> None:
    """Clients that all connect and complete their handshakes at the same moment."""
    connections = await asyncio.gather(*(abuser.connected() for _ in range(abuser.abuse.storm)))
    abuser.tally.add(len(connections), "connected")
    await _abort(connections)


async def endless_handshakes(abuser: Abuser) -> None:
    """Handshakes that are begun, have the broker sign its part, and are left."""
    hello = abuser.client_hello()

    async def begin() -> None:
        async with await RawConnection.open(abuser.place.port) as connection:
            connection.send(hello)
            await connection.receive_any(_WITHIN_SECONDS)

    await abuser.until_the_end(begin, "begun")


async def wrong_passwords(abuser: Abuser) -> None:
    """Logins that fail."""
    handshake, authenticate = login(ABUSER, "a wrong password")

    async def fail() -> None:
        async with await abuser.connected() as connection:
            connection.send(handshake)
            await connection.receive(1, _WITHIN_SECONDS)
            connection.send(authenticate)
            await connection.receive(3, _WITHIN_SECONDS)
            if not connection.closed.done():
                abuser.tally.harm("a wrong password opens a connection")

    await abuser.until_the_end(fail, "refused")


async def never_reads(abuser: Abuser) -> None:
    """Consumers that ask for everything, and read nothing of it."""
    client = await WireClient.connect(abuser.place.plain_port, response_within=_WITHIN_SECONDS)
    records = made.incompressible_batch(abuser.rng, _RECORD_BYTES)
    for _ in range(_FETCHES):
        await client.call(requests.produce(TopicPartition(LARGE, 0), records), _PRODUCE_VERSION)
    client.close()
    fetches = made.long_poll_and_fetches(LARGE, 0, _FETCHES)
    connections = [await abuser.logged_in() for _ in range(abuser.abuse.non_readers)]
    for connection in connections:
        connection.stop_reading()
        connection.send(fetches)
    await asyncio.sleep(abuser.abuse.seconds)  # As long as an attacker would watch the broker fill.
    abuser.tally.add(_FETCHES * len(connections), "not read")
    await _abort(connections)


async def unknown_topics(abuser: Abuser) -> None:
    """Metadata of ten thousand topics that do not exist, from many clients."""
    connections = [await abuser.logged_in() for _ in range(abuser.abuse.together)]
    data = _metadata(f"{UNKNOWN}{n}" for n in range(_NAMES))
    for connection in connections:
        connection.send(data)
    for connection in connections:
        await connection.receive(3, _WITHIN_SECONDS)
    abuser.tally.add(len(connections), "responded")
    await _abort(connections)


async def many_decisions(abuser: Abuser) -> None:
    """Requests of one client that need a million decisions of the lists, none of which allows anything."""
    count = abuser.abuse.decisions // _NAMES
    data = _metadata(f"forbidden-{n}" for n in range(_NAMES))
    connection = await abuser.logged_in()
    for number in range(count):
        connection.send(data)
        await connection.receive(3 + number, _WITHIN_SECONDS)
    abuser.tally.add(count, "responded")
    await _abort([connection])


def _metadata(names: Iterable[str]) -> bytes:
    topics = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics)
    return b"".join(encode_request(3, ABUSER, request, _METADATA_VERSION))


async def _abort(connections: Iterable[RawConnection]) -> None:
    for connection in connections:
        async with connection:
            pass


ABUSES: Final[tuple[tuple[str, Callable[[Abuser], Awaitable[None]]], ...]] = (
    ("slow connections", slow_connections),
    ("a storm of connections", connection_storm),
    ("handshakes without end", endless_handshakes),
    ("wrong passwords without end", wrong_passwords),
    ("consumers that never read", never_reads),
    ("metadata of unknown topics", unknown_topics),
    ("decisions of access control lists", many_decisions),
)
