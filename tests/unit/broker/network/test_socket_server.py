"""The listening side as a whole."""

import asyncio
from typing import Any

import pytest

from broker.dispatch import Outcome, RequestContext, handles
from broker.network.socket_server import Traffic
from protocol.api_keys import ApiKey
from protocol.messages.produce import ProduceRequest, ProduceResponse, TopicProduceResponse
from tests.unit.broker.network.frame_client import LOOPS, frame, run, serve


@pytest.mark.parametrize("loop_name", LOOPS)
def test_stopping_does_not_wait_for_a_client_that_never_reads(loop_name: str) -> None:
    """B78: answers that nobody takes are thrown away with their connection when the time for that is up."""

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
            async with asyncio.timeout(3):
                await served.server.stop()
                while served.server.connection_count:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)

    run(loop_name, scenario)


@pytest.mark.parametrize("loop_name", LOOPS)
def test_what_went_over_a_listener_is_counted_also_of_connections_that_are_gone(loop_name: str) -> None:
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
                received += sum(4 + len(answer) for answer in client.frames)
            assert served.server.traffic() == {"PLAINTEXT": Traffic(2, 2, sent, received)}
            client.transport.close()
            while served.server.connection_count == 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert served.server.traffic() == {"PLAINTEXT": Traffic(1, 2, sent, received)}

    run(loop_name, scenario)
