"""One connection against a broker that says what the test wants, in virtual time and over loopback."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
import uvloop

from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.errors import (
    BadResponse,
    BrokerSilent,
    ConnectionLost,
    RequestTimedOut,
    Unreachable,
    VersionNotSupported,
)
from oncelog.clients.routes import Node
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.api_versions import ApiVersionsResponse
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.schema import Message, Versions
from tests.simulation.virtual_loop import VirtualLoop
from tests.unit.clients.scripted_broker import Reaction, ScriptedBroker, metadata
from tests.unit.clients.scripted_cluster import in_turn

Test = Callable[[], Awaitable[None]]

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "virtual": lambda: VirtualLoop(Random(1)),
}


def on_both_loops(test: Test) -> Callable[[str], None]:
    """Run a test over loopback sockets, and in virtual time with random segmentation."""

    @pytest.mark.parametrize("loop", LOOPS)
    @functools.wraps(test)
    def run(loop: str) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(300):
                await test()

        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(bounded())

    del run.__wrapped__  # pytest reads the signature from here.
    return run


@asynccontextmanager
async def serving(broker: ScriptedBroker) -> AsyncIterator[ScriptedBroker]:
    await broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@asynccontextmanager
async def connected(broker: ScriptedBroker, request_seconds: float = 5.0) -> AsyncIterator[Connection]:
    async with serving(broker):
        connection = await connect(broker.address, connect_seconds=5.0, request_seconds=request_seconds)
        try:
            yield connection
        finally:
            connection.close()
            await connection.closed


def find(key: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=key, coordinator_keys=[key])


def echoing() -> ScriptedBroker:
    """Returns the key that was requested, in version 3 at most: later ones have no place for it."""

    def respond(request: Message) -> FindCoordinatorResponse:
        assert isinstance(request, FindCoordinatorRequest)
        return FindCoordinatorResponse(host=request.key)

    broker = ScriptedBroker({FindCoordinatorRequest: respond})
    broker.versions[ApiKey.FIND_COORDINATOR] = Versions(0, 3)
    return broker


@on_both_loops
async def test_request_is_sent_in_the_newest_common_version() -> None:
    broker = ScriptedBroker({MetadataRequest: MetadataResponse(cluster_id="here")})
    broker.versions[ApiKey.METADATA] = Versions(0, 9)
    async with connected(broker) as connection:
        response = await connection.send(MetadataRequest(topics=None), MetadataResponse)
        assert response.cluster_id == "here"
        assert connection.versions.range_of(ApiKey.METADATA) == Versions(0, 9)


@on_both_loops
async def test_responses_meet_their_requests_in_order() -> None:
    async with connected(echoing()) as connection:
        keys = [f"key-{number}" for number in range(200)]
        sent = [connection.send(find(key), FindCoordinatorResponse) for key in keys]
        assert [response.host for response in await asyncio.gather(*sent)] == keys


@on_both_loops
async def test_cancelled_caller_leaves_the_others_their_responses() -> None:
    async with connected(echoing()) as connection:
        first, second = (connection.send(find(key), FindCoordinatorResponse) for key in ("first", "second"))
        first.cancel()
        assert (await second).host == "second"


@on_both_loops
async def test_older_broker_gets_api_versions_again_in_its_version() -> None:
    """KIP-511."""
    broker = echoing()
    broker.refuse_api_versions_above = 2
    async with connected(broker) as connection:
        assert (await connection.send(find("key"), FindCoordinatorResponse)).host == "key"


@on_both_loops
async def test_api_that_the_broker_lacks_raises_without_a_request() -> None:
    async with connected(echoing()) as connection:
        with pytest.raises(VersionNotSupported, match="no version of PRODUCE"):
            connection.send(ProduceRequest(), MetadataResponse)
        with pytest.raises(VersionNotSupported, match="only versions 0 to 3 of FIND_COORDINATOR"):
            connection.send(find("key"), FindCoordinatorResponse, at_most=-1)


@on_both_loops
async def test_silence_ends_the_connection_and_everybody_hears_of_it() -> None:
    broker = ScriptedBroker({MetadataRequest: Reaction.SILENCE})
    async with connected(broker, request_seconds=0.05) as connection:
        slow = connection.send(MetadataRequest(), MetadataResponse, timeout=60)
        quick = connection.send(MetadataRequest(), MetadataResponse)
        with pytest.raises(RequestTimedOut):
            await quick
        with pytest.raises(RequestTimedOut):  # Responses come in order: this one cannot come any more.
            await slow
        assert not connection.is_open
        with pytest.raises(ConnectionLost):
            connection.send(MetadataRequest(), MetadataResponse)


async def test_response_in_time_does_not_time_out_later_requests() -> None:
    async with connected(echoing(), request_seconds=0.05) as connection:
        for _ in range(3):
            await connection.send(find("key"), FindCoordinatorResponse)
            await asyncio.sleep(0.03)
        assert connection.is_open


@on_both_loops
async def test_connection_closed_by_the_broker_fails_requests_in_flight() -> None:
    broker = ScriptedBroker({MetadataRequest: Reaction.CLOSE})
    async with connected(broker) as connection:
        with pytest.raises(ConnectionLost, match="closed the connection"):
            await connection.send(MetadataRequest(), MetadataResponse)
        assert isinstance(await connection.closed, ConnectionLost)


@on_both_loops
async def test_closing_tells_those_who_wait() -> None:
    async with connected(ScriptedBroker({MetadataRequest: Reaction.SILENCE})) as connection:
        waiting = connection.send(MetadataRequest(), MetadataResponse)
        connection.close()
        with pytest.raises(ConnectionLost, match="was closed"):
            await waiting


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "does not respond like a Kafka broker: it speaks HTTP$"),
        (b"<!DOCTYPE HTML>", "it speaks HTTP$"),
        (b"SSH-2.0-OpenSSH_9.2", "it speaks SSH$"),
        (
            b"\x15\x03\x03\x00\x02\x02\x46",
            "it speaks TLS, .* not use: set security.protocol=SSL or SASL_SSL$",
        ),
        (
            b"\x16\x03\x01\x00\xff",
            "it speaks TLS, .* not use: set security.protocol=SSL or SASL_SSL$",
        ),
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes"),
        (b"\x00\x00\x00\x04\x7f\x00\x00\x00", "a response to request|ends"),
        (b"\x00\x00\x00\x05\x00\x00\x00\x01\x00", "ends"),
    ],
)
def test_bytes_that_are_no_response_end_the_connection(frame: bytes, reason: str) -> None:
    async def test() -> None:
        async with connected(ScriptedBroker({MetadataRequest: frame})) as connection:
            with pytest.raises(BadResponse, match=reason):
                await connection.send(MetadataRequest(), MetadataResponse)
            assert not connection.is_open

    asyncio.run(test())


@on_both_loops
async def test_response_to_another_request_ends_the_connection() -> None:
    wrong = b"\x00\x00\x00\x0b" + (77).to_bytes(4, "big") + bytes(7)
    broker = ScriptedBroker({FindCoordinatorRequest: wrong})
    broker.versions[ApiKey.FIND_COORDINATOR] = Versions(0, 0)
    async with connected(broker) as connection:
        with pytest.raises(BadResponse):
            await connection.send(find("key"), FindCoordinatorResponse)


@on_both_loops
async def test_response_without_a_request_ends_the_connection() -> None:
    broker = ScriptedBroker({ProduceRequest: bytes(8)})
    async with connected(broker) as connection:
        connection.send_without_response(ProduceRequest(acks=0), at_most=9)
        assert isinstance(await connection.closed, BadResponse)


@on_both_loops
async def test_request_without_a_response_keeps_the_order_of_the_others() -> None:
    broker = echoing()
    broker.script[ProduceRequest] = Reaction.SILENCE
    async with connected(broker) as connection:
        connection.send_without_response(ProduceRequest(acks=0), at_most=9)
        assert (await connection.send(find("key"), FindCoordinatorResponse)).host == "key"
        assert len(broker.seen(ProduceRequest)) == 1


@on_both_loops
async def test_written_bytes_leave_before_a_close() -> None:
    broker = ScriptedBroker({ProduceRequest: Reaction.SILENCE})
    async with serving(broker):
        connection = await connect(broker.address)
        for _ in range(50):
            connection.send_without_response(ProduceRequest(acks=0), at_most=9)
        connection.close()
        await connection.closed
        await asyncio.gather(*(side.lost for side in broker.connections))
        assert len(broker.requests) == 50


@on_both_loops
async def test_connect_to_a_closed_port_raises_unreachable() -> None:
    async with serving(ScriptedBroker({})) as broker:
        address = broker.address
    with pytest.raises(Unreachable, match="Connection refused"):
        await connect(address)


async def test_connect_to_a_silent_listener_times_out() -> None:
    async with serving(ScriptedBroker({})) as broker:
        broker.api_versions = Reaction.SILENCE
        with pytest.raises(BrokerSilent, match="accepts connections, but does not respond within"):
            await connect(broker.address, connect_seconds=0.05)


async def test_connect_to_a_listener_that_closes_raises_unreachable_with_the_remedy() -> None:
    """As a listener with TLS does when it is spoken to without."""
    async with serving(ScriptedBroker({})) as broker:
        broker.api_versions = Reaction.CLOSE
        remedy = r": closed the connection.* without a response: is this the port of .* without TLS\? If .* SASL_SSL$"
        with pytest.raises(Unreachable, match=f"^{broker.address}{remedy}"):
            await connect(broker.address)


@on_both_loops
async def test_broker_that_refuses_api_versions_raises_bad_response() -> None:
    async with serving(ScriptedBroker({})) as broker:
        broker.api_versions = ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        with pytest.raises(BadResponse, match="CLUSTER_AUTHORIZATION_FAILED"):
            await connect(broker.address)


NO_HOSTS = ["a..b", ".", "x" * 64 + ".example", "a\0b", "\udcff"]
NO_PORTS = [-1, 0, 65536, 2**31 - 1]
"""What a broker may advertise, since it advertises what its settings say."""
NO_ADDRESSES = [Address(host, 9092) for host in NO_HOSTS] + [Address("127.0.0.1", port) for port in NO_PORTS]


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("address", NO_ADDRESSES, ids=ascii)
def test_advertised_address_that_is_invalid_is_unreachable(
    make_loop: Callable[[], asyncio.AbstractEventLoop], address: Address
) -> None:
    async def play() -> None:
        with pytest.raises(Unreachable) as raised:
            await connect(address, connect_seconds=5.0)
        assert raised.value.is_retriable

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(play())


@pytest.mark.parametrize("address", [each for each in NO_ADDRESSES if each.host != "\udcff"], ids=ascii)
def test_leader_whose_advertised_address_is_corrected_is_found(address: Address) -> None:
    async def play() -> None:
        broker = ScriptedBroker({ListGroupsRequest: ListGroupsResponse()}, node_id=1)
        here = await broker.start()
        broker.script[MetadataRequest] = in_turn(metadata({1: address}, {}), metadata({1: here}, {}))
        async with Cluster([here], rng=Random(1), operation_seconds=30.0) as cluster:
            await cluster.call(Node(1), ListGroupsRequest(), ListGroupsResponse)
        broker.stop()

    with asyncio.Runner() as runner:
        runner.run(play())


class ExhaustedLoop(VirtualLoop):
    """The loop of a process that cannot allocate a connection."""

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        raise MemoryError


def test_connection_without_memory_raises_unreachable() -> None:
    async def play() -> None:
        with pytest.raises(Unreachable, match="no memory"):
            await connect(Address("127.0.0.1", 9092))

    with asyncio.Runner(loop_factory=lambda: ExhaustedLoop(Random(1))) as runner:
        runner.run(play())


class Unallocatable(str):
    """A text for whose bytes there is no memory."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        raise MemoryError


@on_both_loops
async def test_request_without_memory_ends_the_connection_and_may_be_retried() -> None:
    async with connected(echoing()) as connection:
        before = connection.send(find("before"), FindCoordinatorResponse)
        with pytest.raises(ConnectionLost, match="no memory") as raised:
            connection.send(find(Unallocatable("key")), FindCoordinatorResponse)
        assert raised.value.is_retriable
        with pytest.raises(ConnectionLost):
            await before


def test_addresses_read_as_they_are_written() -> None:
    assert str(Address("broker1", 9092)) == "broker1:9092"
    assert str(Address("::1", 9092)) == "[::1]:9092"
