"""Rows that come slowly: the loop goes on, and what the iterator does reaches the task."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from oncelog.spark_connector.sink.pulled_rows import PulledRows

pytestmark = pytest.mark.real_loop

_SECONDS = 60.0


async def test_loop_runs_while_rows_are_computed() -> None:
    computed = threading.Event()

    def rows() -> Iterator[int]:
        yield 1
        assert computed.wait(_SECONDS), "the loop stood still"
        yield 2

    with closing(PulledRows(rows())) as pulled:
        assert await anext(pulled) == 1
        asyncio.get_running_loop().call_later(0, computed.set)
        assert [each async for each in pulled] == [2]


async def test_error_of_the_rows_is_raised_in_the_task() -> None:
    def rows() -> Iterator[int]:
        yield 1
        raise OSError("the upstream has gone")

    with closing(PulledRows(rows())) as pulled:
        assert await anext(pulled) == 1
        with pytest.raises(OSError, match="the upstream has gone"):
            await anext(pulled)


async def test_rows_are_pulled_only_on_request() -> None:
    taken: list[int] = []

    def rows() -> Iterator[int]:
        for number in range(3):
            taken.append(number)
            yield number

    with closing(PulledRows(rows())) as pulled:
        assert await anext(pulled) == 0
    assert taken == [0]


async def test_cancelled_task_does_not_wait_for_its_rows() -> None:
    rows = _BlockedRows()
    with closing(PulledRows(rows)) as pulled:
        await _cancel_a_pull(pulled, rows)
    rows.release()


def test_rows_that_come_after_close_leave_a_closed_loop_alone() -> None:
    """An exception of the thread would be an error of this test: pytest looks for them when the thread has ended."""
    rows = _BlockedRows()

    async def pull() -> None:
        with closing(PulledRows(rows)) as pulled:
            await _cancel_a_pull(pulled, rows)

    asyncio.run(pull())
    rows.release()


async def test_error_that_comes_after_close_is_dropped() -> None:
    unhandled: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    rows = _BlockedRows(OSError("the upstream has gone"))
    with closing(PulledRows(rows)) as pulled:
        await _cancel_a_pull(pulled, rows)
    rows.release()
    await asyncio.sleep(0)
    assert unhandled == []


class _BlockedRows:
    """An iterator whose next row comes when the test releases it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.blocked, self._released = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self._thread = threading.current_thread()
        self.blocked.set()
        assert self._released.wait(_SECONDS)
        if self.error is not None:
            raise self.error
        return 1

    def release(self) -> None:
        """Wait for the thread, too: what it raised after the test would be an error of another one."""
        self._released.set()
        assert self._thread is not None
        self._thread.join(_SECONDS)
        assert not self._thread.is_alive()


async def _cancel_a_pull(pulled: PulledRows[int], rows: _BlockedRows) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(pulled.__anext__())
        assert await asyncio.to_thread(rows.blocked.wait, _SECONDS)
        task.cancel()
    assert task.cancelled()
