"""Clients and event loops: each belongs to one, and says so outside of it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from oncelog import Admin, Consumer, Producer
from oncelog.clients.errors import IllegalState, ProducerClosed
from oncelog.clients.own_loop import OwnLoop
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.producer.producing_brokers import TOPIC, Stage


def test_producer_outside_of_an_event_loop_says_how_to_run_one() -> None:
    with pytest.raises(IllegalState, match=r"use `async with Producer\(\.\.\.\)` in a coroutine.*asyncio\.run"):
        Producer("localhost:9092")


async def _owned() -> OwnLoop:
    own_loop = OwnLoop("Consumer")
    own_loop.require()
    own_loop.require()
    return own_loop


def test_client_of_one_event_loop_refuses_another() -> None:
    own_loop = asyncio.run(_owned())

    async def use() -> None:
        own_loop.require()

    with pytest.raises(IllegalState, match=r"this Consumer belongs to another event loop: create and close one inside"):
        asyncio.run(use())


CALLS: list[tuple[type, Callable[[Any], Coroutine[Any, Any, object]]]] = [
    (Producer, lambda producer: producer.start()),
    (Producer, lambda producer: producer.flush()),
    (Producer, lambda producer: producer.send("t", b"")),
    (Producer, lambda producer: producer.init_transactions()),
    (Producer, lambda producer: producer.close()),
    (Consumer, lambda consumer: consumer.start()),
    (Consumer, lambda consumer: consumer.poll()),
    (Consumer, lambda consumer: consumer.end_offsets([])),
    (Consumer, lambda consumer: consumer.close()),
    (Admin, lambda admin: admin.list_topics()),
    (Admin, lambda admin: admin.close()),
]


@pytest.mark.parametrize(("kind", "call"), CALLS)
def test_call_in_another_event_loop_raises_illegal_state(
    kind: Callable[[str], Any], call: Callable[[Any], Coroutine[Any, Any, object]]
) -> None:
    async def make() -> Any:
        client = kind("localhost:1")
        client._own_loop.require()
        return client

    client = asyncio.run(make())
    with pytest.raises(IllegalState, match="belongs to another event loop"):
        asyncio.run(call(client))


@in_virtual_time
async def test_producer_whose_sender_was_cancelled_accepts_no_record() -> None:
    """As where ``asyncio.run`` ends before the producer is closed: it cancels all tasks."""
    async with Stage().producing() as producer:
        assert producer._sending is not None
        producer._sending.cancel()
        await asyncio.wait([producer._sending])
        with pytest.raises(ProducerClosed, match=r"cancelled before close\(\)"):
            await producer.send(TOPIC, b"")
        with pytest.raises(ProducerClosed, match=r"cancelled before close\(\)"):
            await producer.partitions_for(TOPIC)
