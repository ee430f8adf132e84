"""Closing a client leaves nothing behind, whichever await it is cancelled at, and whatever is called beside it."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from oncelog.clients.admin.admin import Admin
from oncelog.clients.consumer.consumer_errors import ConsumerClosed
from oncelog.clients.errors import ProducerClosed
from oncelog.clients.producer import Producer, ProducerConfig
from tests.chaos.cancellation import CancelledAt
from tests.integration.group_members import new_consumer, produce
from tests.scenarios.stage import Stage, scenario
from tests.simulation.simulated_broker import PORT
from tests.simulation.virtual_loop import SimProcess

_MOST_AWAITS = 40
_BOOTSTRAP = f"127.0.0.1:{PORT}"


def _new_producer(**settings: Any) -> Producer:
    return Producer(ProducerConfig(bootstrap=_BOOTSTRAP, **settings), rng=Random(1), wall_clock=lambda: 1)


async def _producer(stage: Stage) -> Any:
    producer = _new_producer(transactional_id="id")
    await producer.start()
    await producer.init_transactions()
    producer.begin_transaction()
    await (await producer.send("orders", b"value"))
    return producer


async def _consumer(stage: Stage) -> Any:
    consumer = new_consumer(stage, group_id="group", enable_auto_commit=True)
    await consumer.start()
    consumer.subscribe(["orders"])
    while not consumer.assignment:
        await consumer.poll(0.1)
    await consumer.poll(0.1)
    return consumer


async def _admin(stage: Stage) -> Any:
    admin = Admin(_BOOTSTRAP, rng=Random(1))
    await admin.list_topics()
    return admin


@pytest.mark.parametrize("new_client", [_producer, _consumer, _admin])
def test_close_that_is_cancelled_at_any_await_leaves_nothing_open(
    new_client: Callable[[Stage], Awaitable[Any]],
) -> None:
    @scenario(settings={"group.initial.rebalance.delay.ms": "0"}, seeds=[1])
    async def play(stage: Stage) -> None:
        partitions = await stage.create_topic("orders")
        await produce(stage, partitions, 1)
        for step in range(1, _MOST_AWAITS):
            if not await _close_cancelled_at(stage, step, new_client):
                return
        raise AssertionError("close awaits too often")

    play()


async def _close_cancelled_at(stage: Stage, step: int, new_client: Callable[[Stage], Awaitable[Any]]) -> bool:
    """Whether ``close`` awaits so often."""
    process = SimProcess(stage.loop, f"client-{step}")
    client = await process.run(new_client(stage))
    cancelled: list[int] = []
    task = process.run(_await(CancelledAt(client.close(), step, lambda: cancelled.append(step))))
    await asyncio.wait([task])
    await asyncio.sleep(1)  # For the other ends of the connections.
    assert not [known.get_name() for known in process.tasks if not known.done()]
    assert not [each for each in stage.loop.network._transports if each.process is process], f"cancelled at {step}"
    return bool(cancelled)


async def _await(what: CancelledAt) -> Any:
    return await what


@scenario()
async def test_consumer_that_is_closed_refuses_what_would_open_it_again(stage: Stage) -> None:
    consumer = new_consumer(stage, group_id="group")
    await consumer.close()
    with pytest.raises(ConsumerClosed):
        await consumer.start()
    with pytest.raises(ConsumerClosed):
        consumer.subscribe(["orders"])
    with pytest.raises(ConsumerClosed):
        consumer.assign([])
    with pytest.raises(ConsumerClosed):
        await consumer.unsubscribe()


@scenario()
async def test_client_that_is_closed_while_it_starts_does_not_start(stage: Stage) -> None:
    for client in (new_consumer(stage, group_id="group"), _new_producer()):
        for awaits in range(12):
            process = SimProcess(stage.loop, "client")
            starting = process.run(client.start())
            for _ in range(awaits):
                await asyncio.sleep(0.0005)
            await process.run(client.close(1))
            await asyncio.wait([starting])
            await asyncio.sleep(1)
            assert not [known.get_name() for known in process.tasks if not known.done()]
            assert not [each for each in stage.loop.network._transports if each.process is process]
            client = _new_producer() if isinstance(client, Producer) else new_consumer(stage, group_id="group")
    producer = _new_producer()
    await producer.close()
    with pytest.raises(ProducerClosed):
        await producer.start()


@scenario()
async def test_client_that_two_tasks_start_runs_once(stage: Stage) -> None:
    for client in (new_consumer(stage, group_id="group"), _new_producer()):
        process = SimProcess(stage.loop, "client")
        starting = [process.run(client.start()) for _ in range(3)]
        outcomes = await asyncio.gather(*starting, return_exceptions=True)
        assert None in outcomes
        names = [task.get_name() for task in process.tasks if not task.done()]
        assert len(names) == len(set(names)), names
        await process.run(client.close())
        await asyncio.sleep(1)
        assert not [known.get_name() for known in process.tasks if not known.done()]
