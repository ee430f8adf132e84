"""One piece of work at a time, in order."""

import asyncio
from functools import partial

import pytest

from oncelog.coordinator.controller.event_queue import EventQueue, QueueEnded
from tests.unit.broker.virtual_time import end_of_turn, in_virtual_time


def fail(error: BaseException) -> None:
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

    responds = await asyncio.gather(*(queue.clients.request(partial(work, number)) for number in range(20)))
    assert responds == order == list(range(20))
    task.cancel()


async def test_requests_that_await_nothing_leave_the_loop_a_turn_between_them() -> None:
    queue, loop = EventQueue(), asyncio.get_running_loop()
    turns = [0]

    def count() -> None:
        turns[0] += 1
        if turns[0] < 1_000:
            loop.call_soon(count)

    async def work() -> int:
        return turns[0]

    requested = [loop.create_task(queue.clients.request(work)) for _ in range(50)]
    await asyncio.sleep(0)
    count()
    task = loop.create_task(queue.run(fail))
    seen = await asyncio.gather(*requested)
    assert sorted(set(seen)) == seen, "two requests were served in one turn of the loop"
    task.cancel()


async def test_event_put_twice_runs_once() -> None:
    queue, ran = EventQueue(), []

    async def work() -> None:
        ran.append(1)

    for _ in range(5):
        queue.cluster.put("look", work)
    task = asyncio.get_running_loop().create_task(queue.run(fail))
    await queue.clients.request(lambda: asyncio.sleep(0))
    assert ran == [1]
    queue.cluster.put("look", work)
    await queue.clients.request(lambda: asyncio.sleep(0))
    assert ran == [1, 1]
    task.cancel()


async def test_clear_events_drops_events_and_keeps_requests() -> None:
    queue, ran = EventQueue(), []

    async def work() -> None:
        ran.append(1)

    queue.cluster.put("look", work)
    requested = asyncio.get_running_loop().create_task(queue.clients.request(lambda: asyncio.sleep(0, "done")))
    await asyncio.sleep(0)
    queue.cluster.clear_events()
    task = asyncio.get_running_loop().create_task(queue.run(fail))
    assert await requested == "done"
    assert ran == []
    task.cancel()


async def test_error_of_work_goes_to_the_caller_and_to_on_failure() -> None:
    queue = EventQueue()
    failures: list[BaseException] = []
    task = asyncio.get_running_loop().create_task(queue.run(failures.append))

    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await queue.clients.request(work)
    queue.cluster.put("fails", work)
    await queue.clients.request(lambda: asyncio.sleep(0))
    assert len(failures) == 2
    task.cancel()


async def test_work_goes_on_when_its_caller_is_cancelled() -> None:
    queue, done = EventQueue(), asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0)
        done.set()

    loop = asyncio.get_running_loop()
    asker = loop.create_task(queue.clients.request(work))
    await asyncio.sleep(0)
    asker.cancel()
    task = loop.create_task(queue.run(fail))
    await done.wait()
    task.cancel()


async def test_stopped_queue_cancels_its_requests() -> None:
    queue, loop = EventQueue(), asyncio.get_running_loop()
    running = loop.create_task(queue.clients.request(lambda: asyncio.Event().wait()))
    waiting = loop.create_task(queue.clients.request(lambda: asyncio.sleep(0)))
    task = loop.create_task(queue.run(fail))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    results = await asyncio.gather(running, waiting, task, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 3


@in_virtual_time
async def test_deadline_drops_queued_work_and_lets_running_work_finish() -> None:
    queue, ran, may_end = EventQueue(), list[int](), asyncio.Event()
    loop = asyncio.get_running_loop()
    task = loop.create_task(queue.run(fail))

    async def work(number: int) -> None:
        await may_end.wait()
        ran.append(number)

    until = loop.time() + 1.0
    requested = [queue.clients.request(partial(work, number), until) for number in range(3)]
    outcomes = await asyncio.gather(*requested, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [TimeoutError] * 3
    assert loop.time() == pytest.approx(until)
    may_end.set()
    await queue.clients.request(partial(work, 3), loop.time() + 1.0)
    assert ran == [0, 3]
    task.cancel()


async def test_event_put_behind_many_requests_of_clients_runs_before_them() -> None:
    queue, loop, order = EventQueue(), asyncio.get_running_loop(), list[str]()

    async def work(name: str) -> None:
        await asyncio.sleep(0)
        order.append(name)

    creations = [loop.create_task(queue.clients.request(partial(work, "creation"))) for _ in range(50)]
    await asyncio.sleep(0)
    queue.cluster.put("brokers changed", partial(work, "election"))
    alteration = loop.create_task(queue.cluster.request(partial(work, "ISR")))
    await asyncio.sleep(0)
    task = loop.create_task(queue.run(fail))
    await asyncio.gather(alteration, *creations)
    assert order == ["election", "ISR", *["creation"] * 50]
    task.cancel()


async def test_request_of_client_runs_while_events_follow_each_other_without_end() -> None:
    queue, loop = EventQueue(), asyncio.get_running_loop()

    async def put_next() -> None:
        queue.cluster.put("next", put_next)

    await put_next()
    request = loop.create_task(queue.clients.request(lambda: asyncio.sleep(0, "done")))
    task = loop.create_task(queue.run(fail))
    assert await request == "done"
    task.cancel()


async def test_work_that_is_cancelled_from_within_fails_alone() -> None:
    queue, failures = EventQueue(), list[BaseException]()
    task = asyncio.get_running_loop().create_task(queue.run(failures.append))

    async def work() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    queue.cluster.put("cancelled", work)
    assert await queue.clients.request(lambda: asyncio.sleep(0, "done")) == "done"
    assert [type(failure) for failure in failures] == [asyncio.CancelledError]
    task.cancel()


MOST_REQUESTS = 1_000


async def fill(queue: EventQueue, count: int, ran: list[int]) -> list[asyncio.Task[None]]:
    """Begin requests of clients, and let each get as far as it may."""

    async def work(number: int) -> None:
        ran.append(number)

    loop = asyncio.get_running_loop()
    callers = [loop.create_task(queue.clients.request(partial(work, number))) for number in range(count)]
    await end_of_turn()
    return callers


@in_virtual_time
async def test_work_of_cancelled_callers_keeps_its_place_until_it_runs() -> None:
    """B102"""
    queue, ran = EventQueue(), list[int]()
    callers = await fill(queue, MOST_REQUESTS + 1, ran)
    for caller in callers[:-1]:
        caller.cancel()
    await end_of_turn()
    assert len(queue.clients) == MOST_REQUESTS
    task = asyncio.get_running_loop().create_task(queue.run(fail))
    await callers[-1]
    assert ran == list(range(MOST_REQUESTS + 1))
    task.cancel()


@in_virtual_time
async def test_place_of_a_request_that_timed_out_is_free_at_once() -> None:
    queue, loop = EventQueue(), asyncio.get_running_loop()
    until = loop.time() + 1.0
    requested = [queue.clients.request(lambda: asyncio.sleep(0), until) for _ in range(MOST_REQUESTS)]
    outcomes = await asyncio.gather(*requested, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {TimeoutError}
    await fill(queue, MOST_REQUESTS + 1, [])
    assert len(queue.clients) == MOST_REQUESTS


@in_virtual_time
async def test_request_to_a_queue_that_has_ended_raises_until_it_runs_again() -> None:
    """B102"""
    queue, loop = EventQueue(), asyncio.get_running_loop()
    callers = await fill(queue, MOST_REQUESTS + 2, [])
    running = loop.create_task(queue.cluster.request(lambda: asyncio.Event().wait()))
    await end_of_turn()
    task = loop.create_task(queue.run(fail))
    await end_of_turn()
    task.cancel()
    outcomes = await asyncio.gather(running, *callers, return_exceptions=True)
    assert [type(each) for each in outcomes] == [asyncio.CancelledError] * (1 + MOST_REQUESTS) + [QueueEnded] * 2
    with pytest.raises(QueueEnded):
        await queue.cluster.request(lambda: asyncio.sleep(0))
    task = loop.create_task(queue.run(fail))
    await asyncio.sleep(0)
    assert await queue.cluster.request(lambda: asyncio.sleep(0, "done")) == "done"
    task.cancel()
