"""The listening side as a whole."""

import asyncio
import socket
from typing import Any

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.network.connection_slots import SILENCE_SECONDS
from oncelog.broker.network.socket_server import Traffic
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.messages.produce import ProduceRequest, ProduceResponse, TopicProduceResponse
from tests.unit.broker.network.frame_client import LOOPS, FrameClient, frame, run, serve


@pytest.mark.parametrize("loop_name", LOOPS)
def test_stop_does_not_wait_for_a_client_that_never_reads(loop_name: str) -> None:
    """B78: responses that the client does not read are dropped with their connection after the time-out."""

    async def scenario() -> None:
        begun = asyncio.Event()

        @handles(ApiKey.PRODUCE, versions="3-11")
        def handle_produce(broker: Any, context: RequestContext, request: ProduceRequest) -> Outcome:
            begun.set()
            return ProduceResponse(responses=[TopicProduceResponse(name="x" * 30_000) for _ in range(600)])

        async with serve([handle_produce]) as served:
            client = await served.connect()
            client.transport.pause_reading()
            client.send(*((number, ProduceRequest(acks=1), 3) for number in range(10)))
            await begun.wait()
            async with asyncio.timeout(3 if loop_name == "virtual" else 60):
                await served.server.stop()
                while served.server.connection_count:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)

    run(loop_name, scenario)


@pytest.mark.parametrize("loop_name", LOOPS)
def test_listener_byte_counts_include_closed_connections(loop_name: str) -> None:
    async def scenario() -> None:
        @handles(ApiKey.PRODUCE, versions="3-11")
        def handle_produce(broker: Any, context: RequestContext, request: ProduceRequest) -> Outcome:
            # One write of one buffer, one of several, and one that is too large to be joined.
            return ProduceResponse(responses=[TopicProduceResponse(name="x" * 30_000) for _ in range(request.acks)])

        async with serve([handle_produce]) as served:
            sent = received = 0
            for client in (await served.connect(), await served.connect()):
                requests = [(number, ProduceRequest(acks=number), 3) for number in (0, 1, 3)]
                client.send(*requests)
                await client.correlation_ids(3)
                sent += sum(len(frame(*request)) for request in requests)
                received += sum(4 + len(frame) for frame in client.frames)
            assert served.server.traffic() == {"PLAINTEXT": Traffic(2, 2, sent, received)}
            client.transport.close()
            while served.server.connection_count == 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert served.server.traffic() == {"PLAINTEXT": Traffic(1, 2, sent, received)}

    run(loop_name, scenario)


@pytest.mark.parametrize("loop_name", ["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("setting", "option"),
    [("socket_send_buffer_bytes", socket.SO_SNDBUF), ("socket_receive_buffer_bytes", socket.SO_RCVBUF)],
)
def test_connections_have_the_buffers_that_are_configured(loop_name: str, setting: str, option: int) -> None:
    async def scenario(size: int) -> int:
        async with serve([], config=BrokerConfig(**{setting: size})) as served:
            await served.connect()
            while not served.server.connection_count:  # noqa: ASYNC110
                await asyncio.sleep(0)
            (connection,) = served.server._connections
            found: int = connection._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, option)
            return found

    async def both() -> None:
        assert await scenario(30_000) == 60_000  # Linux doubles it, for what it keeps beside the bytes.
        assert await scenario(-1) != 60_000

    run(loop_name, both)


@handles(ApiKey.PRODUCE, versions="3-11")
def handle_produce_at_once(broker: Any, context: RequestContext, request: ProduceRequest) -> Outcome:
    return ProduceResponse()


async def is_served(client: FrameClient) -> bool:
    """Return whether requests of a connection get responses."""
    client.send((1, ProduceRequest(acks=1), 3))
    return await client.correlation_ids(1) == [1]


@pytest.mark.parametrize("loop_name", LOOPS)
def test_connection_of_a_broker_on_a_listener_of_its_own_displaces_one_of_a_client(loop_name: str) -> None:
    async def scenario() -> None:
        config = BrokerConfig(max_connections=2)
        async with serve([handle_produce_at_once], config=config, listeners=("CLIENTS", "BROKERS")) as served:
            first, second = await served.connect("CLIENTS"), await served.connect("CLIENTS")
            assert await is_served(second)
            broker = await served.connect("BROKERS")
            assert await is_served(broker)
            await first.lost
            others = [await served.connect("BROKERS") for _ in range(2)]
            await second.lost
            assert [await is_served(other) for other in others] == [True, True]

    run(loop_name, scenario)


def test_connection_beyond_limit_displaces_one_that_stays_silent() -> None:
    async def scenario() -> None:
        async with serve([handle_produce_at_once], config=BrokerConfig(max_connections=3)) as served:
            first, second, third = [await served.connect() for _ in range(3)]
            assert await is_served(second)
            third.transport.write(frame(1, ProduceRequest(acks=1), 3)[:-1])
            assert not await is_served(await served.connect())
            await asyncio.sleep(SILENCE_SECONDS)
            assert await is_served(await served.connect())
            await first.lost
            assert await is_served(await served.connect())
            await third.lost
            assert not await is_served(await served.connect())
            assert not second.lost.done()

    run("virtual", scenario)


def test_connection_refused_for_its_address_displaces_none() -> None:
    async def scenario() -> None:
        config = BrokerConfig(max_connections=1, max_connections_per_ip=1)
        async with serve([handle_produce_at_once], config=config) as served:
            first = await served.connect()
            await asyncio.sleep(SILENCE_SECONDS)
            assert not await is_served(await served.connect())
            assert await is_served(first)

    run("virtual", scenario)
