"""Long work: what is done at once, who has the next turn, and how work ends."""

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from oncelog.broker.dispatch.request import CloseConnection, ConnectionInfo
from oncelog.broker.dispatch.sliced_work import SLICE_UNITS, SlicedWork, new_budget
from oncelog.broker.storage.disk import File
from oncelog.broker.storage.segment_read import ReadRequest
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.schema import Buffer
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.virtual_time import in_virtual_time


def connection() -> ConnectionInfo:
    return ConnectionInfo(client_host="localhost", listener_name="PLAINTEXT")


def slices(name: str, count: int, budget: WorkBudget, done: list[str]) -> Generator[None, Any, str]:
    """Work of so many slices."""
    for _ in range(count):
        done.append(name)
        budget.left -= SLICE_UNITS
        if budget.left <= 0:
            yield
    return name


async def carried_out(work: SlicedWork, steps: Any, budget: WorkBudget) -> Any:
    outcome = work.start(steps, budget, connection())
    return await outcome if asyncio.iscoroutine(outcome) else outcome


def test_work_within_the_budget_is_done_at_once() -> None:
    def steps() -> Generator[None, Any, int]:
        yield from ()
        return 7

    assert SlicedWork().start(steps(), new_budget(), connection()) == 7


@in_virtual_time
async def test_requests_with_long_work_take_turns() -> None:
    work, done = SlicedWork(), list[str]()
    budgets = [new_budget() for _ in range(2)]
    results = await asyncio.gather(
        *(carried_out(work, slices(name, 3, budget, done), budget) for name, budget in zip("ab", budgets, strict=True))
    )
    assert results == ["a", "b"]
    assert done == ["a", "b", "a", "b", "a", "b"]


@in_virtual_time
async def test_turn_of_the_loop_does_one_slice_of_all_long_requests() -> None:
    work, done = SlicedWork(), list[str]()
    counts: list[int] = []

    async def watch() -> None:
        while len(done) < 40:
            before = len(done)
            await asyncio.sleep(0)
            counts.append(len(done) - before)

    budgets = [new_budget() for _ in range(10)]
    pieces = [work.start(slices("x", 4, budget, done), budget, connection()) for budget in budgets]
    watcher = asyncio.get_running_loop().create_task(watch())
    await asyncio.gather(*pieces)
    await watcher
    assert max(counts) == 1


@in_virtual_time
async def test_sliced_work_of_many_requests_runs_three_at_once() -> None:
    work, done = SlicedWork(), list[str]()
    budgets = [new_budget() for _ in range(9)]
    pieces = [work.run(slices(str(n), 3, budget, done), budget, connection()) for n, budget in enumerate(budgets)]
    await asyncio.gather(*pieces)
    assert done == [name for group in ("012", "345", "678") for name in 3 * group]


@in_virtual_time
async def test_work_with_a_window_that_cannot_begin_at_once_waits_for_a_place_before_its_first_slice() -> None:
    work, done = SlicedWork(), list[str]()
    budgets = [new_budget() for _ in range(20)]
    begun = [
        work.start(slices(str(number), 3, budget, done), budget, connection(), holds_window=True)
        for number, budget in enumerate(budgets)
    ]
    under_way = [0]

    async def watched(piece: Any) -> None:
        await piece
        under_way[0] = max(under_way[0], sum(0 < done.count(str(number)) < 3 for number in range(20)))

    await asyncio.gather(*map(watched, begun))
    assert under_way[0] <= 3
    assert len(done) == 60


@in_virtual_time
async def test_requests_that_begin_in_one_turn_share_one_budget() -> None:
    """A client may send many requests at once, each of which is done within its budget."""
    work, done = SlicedWork(), list[str]()

    def little(budget: WorkBudget) -> Generator[None, Any, None]:
        done.append("x")
        budget.left -= SLICE_UNITS - 1
        if budget.left <= 0:
            yield

    begun = []
    for _ in range(20):
        budget = new_budget()
        begun.append(work.start(little(budget), budget, connection()))
    assert len(done) == 4
    await asyncio.gather(*filter(None, begun))
    assert len(done) == 20
    budget = new_budget()
    assert work.start(little(budget), budget, connection()) is None  # In a later turn it is done at once again.


@in_virtual_time
async def test_small_request_among_many_long_ones_waits_for_few_slices() -> None:
    work, done = SlicedWork(), list[str]()
    loop = asyncio.get_running_loop()
    budgets = [new_budget() for _ in range(40)]
    long = [loop.create_task(carried_out(work, slices("long", 50, budget, done), budget)) for budget in budgets]
    await asyncio.sleep(0)
    while len(done) < 60:  # noqa: ASYNC110
        await asyncio.sleep(0)
    budget = new_budget()
    for _ in range(5):  # Others use up what may begin at once.
        other = new_budget()
        begun = work.start(slices("long", 50, other, done), other, connection())
        assert asyncio.iscoroutine(begun)
        long.append(loop.create_task(begun))
    before = len(done)
    small = work.start(slices("small", 0, budget, done), budget, connection())
    assert asyncio.iscoroutine(small), "it was done at once: the test does not show what it shall"
    assert await small == "small"
    assert len(done) - before <= 20
    for task in long:
        task.cancel()
    await asyncio.gather(*long, return_exceptions=True)


@in_virtual_time
async def test_work_for_a_lost_connection_ends_before_its_next_slice() -> None:
    work, done, budget, client = SlicedWork(), list[str](), new_budget(), connection()
    rest = work.start(slices("x", 9, budget, done), budget, client)
    assert asyncio.iscoroutine(rest)
    client.is_open = False
    with pytest.raises(CloseConnection):
        await rest
    assert done == ["x"]


@in_virtual_time
async def test_cancelled_work_gives_its_turn_and_place_to_others() -> None:
    work, done = SlicedWork(), list[str]()
    budgets = [new_budget() for _ in range(4)]
    pieces = [
        asyncio.get_running_loop().create_task(carried_out(work, slices(str(n), 3, budget, done), budget))
        for n, budget in enumerate(budgets)
    ]
    await asyncio.sleep(0)
    for piece in pieces[:3]:
        piece.cancel()
    assert await pieces[3] == "3"


def read_all(file: File, size: int) -> Generator[ReadRequest, Buffer, bytes | OSError]:
    try:
        data = yield ReadRequest(file, size, 0)
    except OSError as error:
        return error
    return bytes(data)


@pytest.mark.parametrize("in_memory", [True, False])
@in_virtual_time
async def test_bytes_of_a_file_are_read_off_the_loop_unless_they_are_in_memory(in_memory: bool) -> None:
    disk = SimDisk()
    file = disk.open("/file", create=True)
    file.append([b"content"])
    if not in_memory:
        disk.cold = lambda: True
    outcome = SlicedWork().start(read_all(file, 7), new_budget(), connection())
    assert asyncio.iscoroutine(outcome) is not in_memory
    assert (await outcome if asyncio.iscoroutine(outcome) else outcome) == b"content"


@in_virtual_time
async def test_failed_read_is_raised_at_the_yield_of_its_read_request() -> None:
    disk = SimDisk()
    file = disk.open("/file", create=True)
    file.append([b"content"])
    file.close()
    outcome = SlicedWork().start(read_all(file, 7), new_budget(), connection())
    assert isinstance(await outcome if asyncio.iscoroutine(outcome) else outcome, OSError)
