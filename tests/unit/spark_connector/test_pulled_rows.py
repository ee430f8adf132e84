"""Rows that come slowly: the loop goes on, and what the iterator does reaches the task."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from spark_connector.pulled_rows import PulledRows

_SECONDS = 60.0


async def test_the_loop_runs_while_rows_are_computed() -> None:
    computed = threading.Event()

    def rows() -> Iterator[int]:
        yield 1
        assert computed.wait(_SECONDS), "the loop stood still"
        yield 2

    with closing(PulledRows(rows())) as pulled:
        assert await anext(pulled) == 1
        asyncio.get_running_loop().call_later(0, computed.set)
        assert [each async for each in pulled] == [2]


async def test_what_the_rows_raise_the_task_sees() -> None:
    def rows() -> Iterator[int]:
        yield 1
        raise OSError("the upstream has gone")

    with closing(PulledRows(rows())) as pulled:
        assert await anext(pulled) == 1
        with pytest.raises(OSError, match="the upstream has gone"):
            await anext(pulled)


async def test_no_row_is_pulled_that_nobody_wants() -> None:
    taken: list[int] = []

    def rows() -> Iterator[int]:
        for number in range(3):
            taken.append(number)
            yield number

    with closing(PulledRows(rows())) as pulled:
        assert await anext(pulled) == 0
    assert taken == [0]


async def test_a_task_that_is_cancelled_does_not_wait_for_its_rows() -> None:
    blocked, release = threading.Event(), threading.Event()

    def rows() -> Iterator[int]:
        blocked.set()
        release.wait(_SECONDS)
        yield 1

    with closing(PulledRows(rows())) as pulled:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(pulled.__anext__())
            await asyncio.to_thread(blocked.wait, _SECONDS)
            task.cancel()
        assert task.cancelled()
        release.set()
