"""One piece of work at a time, in order."""

import asyncio
from functools import partial

import pytest

from oncelog.coordinator.controller.event_queue import EventQueue
from tests.unit.broker.virtual_time import in_virtual_time


def fail(error: Exception) -> None:
    raise AssertionError from error


async def test_requests_run_in_order_and_never_overlap() -> None:
    queue, running, order = EventQueue(), [0], []
    task = asyncio.get_running_loop().create_task(queue.run(fail))

    async def work(number: int) -> int:
        running[0] += 1
        assert running[0] == 1
        await asyncio.sleep(0)
        order.append(number)
        running[0] -= 1
        return number

    answers = await asyncio.gather(*(queue.request(partial(work, number)) for number in range(20)))
    assert answers == order == list(range(20))
    task.cancel()


async def test_requests_that_wait_for_nothing_leave_the_loop_a_turn_between_them() -> None:
    queue, loop = EventQueue(), asyncio.get_running_loop()
    turns = [0]

    def count() -> None:
        turns[0] += 1
        if turns[0] < 1_000:
            loop.call_soon(count)

    async def work() -> int:
        return turns[0]

    asked = [loop.create_task(queue.request(work)) for _ in range(50)]
    await asyncio.sleep(0)
    count()
    task = loop.create_task(queue.run(fail))
    seen = await asyncio.gather(*asked)
    assert sorted(set(seen)) == seen, "two requests were served in one turn of the loop"
    task.cancel()


async def test_a_hint_is_kept_once() -> None:
    queue, ran = EventQueue(), []

    async def work() -> None:
        ran.append(1)

    for _ in range(5):
        queue.hint("look", work)
    task = asyncio.get_running_loop().create_task(queue.run(fail))
    await queue.request(lambda: asyncio.sleep(0))
    assert ran == [1]
    queue.hint("look", work)
    await queue.request(lambda: asyncio.sleep(0))
    assert ran == [1, 1]
    task.cancel()


async def test_hints_can_be_forgotten_and_requests_cannot() -> None:
    queue, ran = EventQueue(), []

    async def work() -> None:
        ran.append(1)

    queue.hint("look", work)
    asked = asyncio.get_running_loop().create_task(queue.request(lambda: asyncio.sleep(0, "done")))
    await asyncio.sleep(0)
    queue.forget_hints()
    task = asyncio.get_running_loop().create_task(queue.run(fail))
    assert await asked == "done"
    assert ran == []
    task.cancel()


async def test_failures_go_to_the_asker_and_to_the_owner() -> None:
    queue = EventQueue()
    failures: list[Exception] = []
    task = asyncio.get_running_loop().create_task(queue.run(failures.append))

    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await queue.request(work)
    queue.hint("fails", work)
    await queue.request(lambda: asyncio.sleep(0))
    assert len(failures) == 2
    task.cancel()


async def test_work_goes_on_when_its_asker_gives_up() -> None:
    queue, done = EventQueue(), asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0)
        done.set()

    loop = asyncio.get_running_loop()
    asker = loop.create_task(queue.request(work))
    await asyncio.sleep(0)
    asker.cancel()
    task = loop.create_task(queue.run(fail))
    await done.wait()
    task.cancel()


async def test_whoever_waits_when_the_queue_stops_is_released() -> None:
    queue, loop = EventQueue(), asyncio.get_running_loop()
    running = loop.create_task(queue.request(lambda: asyncio.Event().wait()))
    waiting = loop.create_task(queue.request(lambda: asyncio.sleep(0)))
    task = loop.create_task(queue.run(fail))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    results = await asyncio.gather(running, waiting, task, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 3


@in_virtual_time
async def test_at_its_deadline_work_that_has_begun_goes_on_and_other_work_is_dropped() -> None:
    queue, ran, may_end = EventQueue(), list[int](), asyncio.Event()
    loop = asyncio.get_running_loop()
    task = loop.create_task(queue.run(fail))

    async def work(number: int) -> None:
        await may_end.wait()
        ran.append(number)

    until = loop.time() + 1.0
    asked = [queue.request(partial(work, number), until) for number in range(3)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [TimeoutError] * 3
    assert loop.time() == pytest.approx(until)
    may_end.set()
    await queue.request(partial(work, 3), loop.time() + 1.0)
    assert ran == [0, 3]
    task.cancel()
