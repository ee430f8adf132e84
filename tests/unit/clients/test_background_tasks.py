"""Tasks that cannot be started: their coroutines are closed, and the caller hears why."""

import asyncio
import inspect

import pytest

from oncelog.clients.background_tasks import BackgroundTasks
from oncelog.clients.errors import ClientClosed
from tests.unit.broker.virtual_time import in_virtual_time


async def _work() -> None:
    raise AssertionError("it was never to begin")


@in_virtual_time
async def test_spawn_after_stop_closes_the_coroutine() -> None:
    tasks = BackgroundTasks("client")
    await tasks.stop()
    work = _work()
    with pytest.raises(ClientClosed, match="client is closed: work was not started"):
        tasks.spawn(work, "work")
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


def test_spawn_without_running_loop_closes_the_coroutine() -> None:
    """A call that its loop has abandoned is closed later, outside of any loop; its ``finally`` blocks spawn."""
    work = _work()
    try:
        with pytest.raises(RuntimeError, match="no running event loop"):
            BackgroundTasks("client").spawn(work, "work")
        assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED
    finally:
        work.close()


@in_virtual_time
async def test_kept_task_that_fails_is_reported_and_started_again() -> None:
    failures: list[BaseException] = []
    runs: list[float] = []

    async def run() -> None:
        runs.append(asyncio.get_running_loop().time())
        if len(runs) < 3:
            raise MemoryError("injected")

    tasks = BackgroundTasks("client", failures.append)
    began = asyncio.get_running_loop().time()
    kept = tasks.keep_running(run, "work")
    await asyncio.sleep(5)
    assert kept.has_ended
    assert [round(time - began) for time in runs] == [0, 1, 2]
    assert [str(failure) for failure in failures] == ["injected"] * 2


@in_virtual_time
async def test_kept_task_that_fails_is_not_started_again_after_stop() -> None:
    runs: list[None] = []

    async def run() -> None:
        runs.append(None)
        raise MemoryError("injected")

    tasks = BackgroundTasks("client")
    kept = tasks.keep_running(run, "work")
    await asyncio.sleep(0.5)
    await tasks.stop()
    await asyncio.sleep(5)
    assert (len(runs), kept.has_ended) == (1, True)
