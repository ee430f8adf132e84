"""Deadlines and backoff, in virtual time."""

import asyncio
from collections.abc import Callable

from oncelog.coordinator.timers import Backoff, Deadlines
from tests.unit.coordinator.running import run


def test_deadlines_pass_in_order_unless_cancelled() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        passed: list[tuple[str, float]] = []
        deadlines = Deadlines(10)

        def note(name: str) -> Callable[[], None]:
            return lambda: passed.append((name, round(loop.time(), 3)))

        deadlines.add(note("first"))
        second = deadlines.add(note("second"))
        await asyncio.sleep(0.004)
        deadlines.add(note("third"))
        deadlines.cancel(second)
        assert len(deadlines) == 2
        await asyncio.sleep(1)
        assert passed == [("first", 0.01), ("third", 0.014)]
        deadlines.add(note("never"))
        deadlines.stop()
        await asyncio.sleep(1)
        assert len(passed) == 2

    run(scenario)


def test_deadline_callback_may_add_another() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        passed: list[float] = []
        deadlines = Deadlines(10)

        def again() -> None:
            passed.append(round(loop.time(), 3))
            if len(passed) < 4:
                deadlines.add(again)

        deadlines.add(again)
        await asyncio.sleep(1)
        assert passed == [0.01, 0.02, 0.03, 0.04]

    run(scenario)


def test_deadline_callback_that_raises_does_not_stop_the_others() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        failures: list[object] = []
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        passed: list[int] = []
        deadlines = Deadlines(10)
        deadlines.add(lambda: 1 // 0)  # type: ignore[arg-type]
        deadlines.add(lambda: passed.append(1))
        await asyncio.sleep(1)
        assert passed == [1]
        assert [type(failure) for failure in failures] == [ZeroDivisionError]

    run(scenario)


def test_backoff_doubles_up_to_its_limit() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(20, 100)
        delays = []
        for attempt in range(1, 7):
            begin, passed = loop.time(), asyncio.Event()
            backoff.add(attempt, passed.set)
            await passed.wait()
            delays.append(round(loop.time() - begin, 3))
        assert delays == [0.02, 0.04, 0.08, 0.1, 0.1, 0.1]
        backoff.add(1, passed.set)
        assert len(backoff) == 1
        backoff.stop()
        assert len(backoff) == 0

    run(scenario)
