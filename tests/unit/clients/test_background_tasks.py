"""Tasks that cannot be started: their coroutines are closed, and the caller hears why."""

import inspect

import pytest

from oncelog.clients.background_tasks import BackgroundTasks
from oncelog.clients.errors import IllegalState
from tests.unit.broker.virtual_time import in_virtual_time


async def _work() -> None:
    raise AssertionError("it was never to begin")


@in_virtual_time
async def test_spawn_after_stop_closes_the_coroutine() -> None:
    tasks = BackgroundTasks("client")
    await tasks.stop()
    work = _work()
    with pytest.raises(IllegalState, match="client is closed: work was not started"):
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
