"""Results that are there and results that come later."""

import asyncio

from oncelog.coordinator.promise import Promise, Undecided, value_of
from tests.unit.coordinator.running import run


def test_promise_with_value_needs_no_loop() -> None:
    promise: Promise[int] = Promise()
    promise.complete(1)
    promise.complete(2)
    assert promise.value == 1
    assert promise.result() == 1


def test_promise_calls_back_once_in_order() -> None:
    seen: list[tuple[str, int]] = []
    promise: Promise[int] = Promise()
    promise.then(lambda value: seen.append(("first", value)))
    promise.then(lambda value: seen.append(("second", value)))
    assert seen == []
    promise.complete(1)
    promise.complete(2)
    promise.then(lambda value: seen.append(("late", value)))
    assert seen == [("first", 1), ("second", 1), ("late", 1)]


def test_promise_without_value_returns_future() -> None:
    async def scenario() -> None:
        promise: Promise[int] = Promise()
        response = promise.result()
        assert isinstance(response, asyncio.Future)
        promise.complete(1)
        promise.complete(2)
        assert await response == 1

    run(scenario)


def test_response_to_closed_connection_is_dropped() -> None:
    async def scenario() -> None:
        promise: Promise[int] = Promise()
        response = promise.result()
        assert isinstance(response, asyncio.Future)
        response.cancel()
        promise.complete(1)
        await asyncio.sleep(0)
        assert response.cancelled()

    run(scenario)


def test_value_of_undecided_request_is_its_decision() -> None:
    async def decide() -> int:
        return 1

    async def scenario() -> None:
        assert await value_of(Undecided(decide)) == 1

    run(scenario)
