"""Clients and event loops: each belongs to one, and says so outside of it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from threading import Thread
from typing import Any

import pytest

from oncelog import Admin, Consumer, Producer
from oncelog.clients.errors import IllegalState, ProducerClosed
from oncelog.clients.own_loop import OwnLoop
from oncelog.protocol.topic_partition import TopicPartition
from tests.simulation.virtual_loop import VirtualLoop
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


async def _started_producer(stage: Stage) -> Producer:
    for broker in stage.brokers:
        await broker.start()
    producer = stage.producer()
    await producer.start()
    await (await producer.send(TOPIC, b""))
    return producer


async def _as_coroutine(call: Callable[[], object]) -> object:
    result = call()
    return await result if isinstance(result, Awaitable) else result


PRODUCER_CALLS: list[Callable[[Producer], object]] = [
    lambda producer: producer.send(TOPIC, b""),
    lambda producer: producer.send("a topic that is not known yet", b""),
    lambda producer: producer.send_nowait(TOPIC, b""),
    lambda producer: producer.begin_transaction(),
]


@pytest.mark.parametrize("call", PRODUCER_CALLS)
def test_producer_in_another_thread_raises_illegal_state(call: Callable[[Producer], object]) -> None:
    """A batch is open, to which a record could be appended."""
    raised: list[Exception] = []

    def use(producer: Producer) -> None:
        with _virtual_runner() as other, pytest.raises(IllegalState, match="from another thread use") as info:
            other.run(_as_coroutine(lambda: call(producer)))
        raised.append(info.value)

    async def use_in_thread() -> None:
        async with stage.producing(linger_ms=60_000) as producer:
            await producer.send(TOPIC, b"")
            thread = Thread(target=use, args=(producer,))
            thread.start()
            thread.join()

    stage = Stage(partitions=1)
    with _virtual_runner() as own:
        own.run(use_in_thread())
    assert len(raised) == 1
    assert stage.values() == [b""]


@pytest.mark.parametrize("call", PRODUCER_CALLS)
def test_started_producer_in_another_event_loop_raises_illegal_state(call: Callable[[Producer], object]) -> None:
    """Its own loop is alive, and does not run."""
    stage = Stage()
    with _virtual_runner() as own, _virtual_runner() as other:
        producer = own.run(_started_producer(stage))
        with pytest.raises(IllegalState, match="this Producer belongs to another event loop"):
            other.run(_as_coroutine(lambda: call(producer)))
        own.run(producer.close())
        stage.broker.stop()


def test_send_waiting_behind_other_calls_in_another_event_loop_raises_illegal_state() -> None:
    stage = Stage()
    with _virtual_runner() as own, _virtual_runner() as other:
        producer = own.run(_started_producer(stage))
        waiting = own.get_loop().create_task(producer.send("a topic that does not exist", b""))
        own.run(asyncio.sleep(0.1))
        with pytest.raises(IllegalState, match="this Producer belongs to another event loop"):
            other.run(producer.send("a topic that does not exist", b""))
        waiting.cancel()
        own.run(producer.close())
        stage.broker.stop()


def test_send_nowait_outside_of_an_event_loop_raises_illegal_state() -> None:
    stage = Stage()
    with _virtual_runner() as own:
        producer = own.run(_started_producer(stage))
        with pytest.raises(IllegalState, match="no event loop is running"):
            producer.send_nowait(TOPIC, b"")
        own.run(producer.close())
        with pytest.raises(ProducerClosed):
            producer.send_nowait(TOPIC, b"")
        stage.broker.stop()


def _virtual_runner() -> asyncio.Runner:
    return asyncio.Runner(loop_factory=lambda: VirtualLoop(Random(0)))


PARTITION = TopicPartition("t", 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.commit(),
        lambda consumer: consumer.unsubscribe(),
        lambda consumer: consumer.subscribe(["t"]),
        lambda consumer: consumer.assign([PARTITION]),
        lambda consumer: consumer.seek(PARTITION, 0),
        lambda consumer: consumer.seek_to_beginning(),
        lambda consumer: consumer.seek_to_end(),
        lambda consumer: consumer.pause([]),
        lambda consumer: consumer.resume([]),
        lambda consumer: anext(consumer),
        lambda consumer: aiter(consumer),
    ],
)
def test_started_consumer_in_another_event_loop_raises_illegal_state(call: Callable[[Consumer], object]) -> None:
    stage = Stage()

    async def start() -> Consumer:
        await stage.broker.start()
        consumer = Consumer(stage.address, group_id="g")
        await consumer.start()
        return consumer

    with _virtual_runner() as own, _virtual_runner() as other:
        consumer = own.run(start())
        with pytest.raises(IllegalState, match="this Consumer belongs to another event loop"):
            other.run(_as_coroutine(lambda: call(consumer)))
        own.run(consumer.close())
        stage.broker.stop()


def test_consumer_is_subscribed_before_any_event_loop_runs() -> None:
    consumer = Consumer("localhost:9092", group_id="g")
    consumer.subscribe(["t"])
    assert consumer.subscription == {"t"}


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
