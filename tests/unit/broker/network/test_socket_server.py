"""The listening side as a whole."""

import asyncio
from typing import Any

import pytest

from broker.dispatch import Outcome, RequestContext, handles
from protocol.api_keys import ApiKey
from protocol.messages.produce import ProduceRequest, ProduceResponse, TopicProduceResponse
from tests.unit.broker.network.frame_client import LOOPS, run, serve


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
