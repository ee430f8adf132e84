"""The supervisor stops what it spawned and loses no exception."""

import asyncio
import inspect
import logging
from itertools import pairwise

import pytest

from oncelog.broker.process.supervisor import Failing, Supervisor
from tests.unit.broker.virtual_time import in_virtual_time


async def test_stop_cancels_every_task_and_waits_for_its_end() -> None:
    supervisor = Supervisor()
    ended: list[str] = []

    async def forever(name: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(name)

    supervisor.spawn(forever("first"), "first")
    supervisor.spawn(forever("second"), "second")
    await asyncio.sleep(0)
    await supervisor.stop()
    assert ended == ["first", "second"]
    assert len(supervisor) == 0


async def test_failed_task_is_logged_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("broken")

    supervisor = Supervisor()
    with caplog.at_level(logging.ERROR), pytest.raises(ValueError, match="broken"):
        await supervisor.spawn(fail(), "retention")
    assert "retention" in caplog.text
    assert "broken" in caplog.text


async def test_spawn_after_stop_starts_no_task() -> None:
    async def never() -> None:
        raise AssertionError("must not run")

    supervisor = Supervisor()
    await supervisor.stop()
    with pytest.raises(RuntimeError, match="stopping"):
        supervisor.spawn(never(), "late")


def test_spawn_without_running_loop_closes_the_coroutine() -> None:
    async def never() -> None:
        raise AssertionError("must not run")

    work = never()
    try:
        with pytest.raises(RuntimeError, match="no running event loop"):
            Supervisor().spawn(work, "late")
        assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED
    finally:
        work.close()


@in_virtual_time
async def test_supervised_work_is_begun_again_after_each_exception_later_each_time() -> None:
    supervisor, begun = Supervisor(), []

    async def work() -> None:
        begun.append(asyncio.get_running_loop().time())
        if len(begun) < 5:
            raise ValueError("broken")

    await supervisor.supervise(work, "isr")
    pauses = [later - earlier for earlier, later in pairwise(begun)]
    assert pauses == pytest.approx([0.5, 1.0, 2.0, 4.0])
    assert supervisor.failures == {"isr": 4}
    assert not supervisor.failing


@in_virtual_time
async def test_supervised_work_that_runs_long_enough_after_a_failure_does_not_count_as_failing() -> None:
    supervisor, begun = Supervisor(), []

    async def work() -> None:
        begun.append(0)
        if len(begun) == 1:
            raise ValueError("broken")
        await asyncio.get_running_loop().create_future()

    supervisor.supervise(work, "isr")
    await asyncio.sleep(1)
    assert supervisor.failing["isr"] == Failing(1, "ValueError: broken")
    await asyncio.sleep(120)
    assert not supervisor.failing
    await supervisor.stop()


@in_virtual_time
async def test_work_that_is_retried_is_counted_from_its_first_failure_and_ends_with_its_success() -> None:
    supervisor, begun = Supervisor(), []

    async def work() -> None:
        begun.append(asyncio.get_running_loop().time())
        if len(begun) < 3:
            raise OSError(5, "Input/output error")

    task = supervisor.retry(work, "load")
    assert not supervisor.failures
    await asyncio.sleep(0.1)
    assert supervisor.failing["load"].attempts == 1
    await task
    assert begun == pytest.approx([0.0, 0.5, 1.5])
    assert supervisor.failures == {"load": 2}
    assert not supervisor.failing


@in_virtual_time
async def test_work_that_is_retried_is_not_failing_any_more_once_it_is_cancelled() -> None:
    supervisor, begun = Supervisor(), []

    async def work() -> None:
        begun.append(0)
        raise OSError(5, "Input/output error")

    task = supervisor.retry(work, "load")
    await asyncio.sleep(10)
    assert "load" in supervisor.failing
    task.cancel()
    await asyncio.sleep(100)
    assert not supervisor.failing
    assert len(begun) == 5
    assert not len(supervisor)


@in_virtual_time
async def test_repeated_work_keeps_its_interval_and_comes_sooner_after_an_exception() -> None:
    supervisor, begun = Supervisor(), []

    async def act() -> None:
        begun.append(asyncio.get_running_loop().time())
        if len(begun) == 2:
            raise OSError(28, "No space left on device")

    supervisor.repeat(act, "checkpoint", 60.0)
    await asyncio.sleep(200)
    assert begun == pytest.approx([60.0, 120.0, 120.5, 180.5])
    await supervisor.stop()


@in_virtual_time
async def test_repeated_work_whose_interval_is_changed_is_due_by_the_new_one() -> None:
    supervisor, begun = Supervisor(), []

    async def act() -> None:
        begun.append(asyncio.get_running_loop().time())

    interval = supervisor.repeat(act, "cleaner", 3600.0)
    await asyncio.sleep(100)
    interval.change(300.0)
    await asyncio.sleep(400)
    assert begun == pytest.approx([300.0])
    interval.change(50.0)
    await asyncio.sleep(1)
    assert begun == pytest.approx([300.0, 500.0])
    await supervisor.stop()
