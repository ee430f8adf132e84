"""Results that are there and results that come later."""

import asyncio

import pytest

from oncelog.coordinator.promise import Promise, Undecided, map_response, value_of
from tests.unit.coordinator.running import run


def test_promise_with_value_needs_no_loop() -> None:
    promise: Promise[int] = Promise()
    promise.complete(1)
    promise.complete(2)
    assert promise.value == 1
    assert promise.result() == 1
    assert map_response(promise.result(), str) == "1"


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
        response = map_response(promise.result(), str)
        assert isinstance(response, asyncio.Future)
        promise.complete(1)
        promise.complete(2)
        assert await response == "1"

    run(scenario)


def test_response_to_closed_connection_is_dropped() -> None:
    async def scenario() -> None:
        promise: Promise[int] = Promise()
        response = map_response(promise.result(), str)
        assert isinstance(response, asyncio.Future)
        response.cancel()
        promise.complete(1)
        await asyncio.sleep(0)
        assert response.cancelled()

    run(scenario)


def test_undecided_request_is_a_coroutine() -> None:
    async def decide() -> int:
        return 1

    async def scenario() -> None:
        response = map_response(Undecided(decide), str)
        assert asyncio.iscoroutine(response)
        assert await response == "1"
        assert await value_of(Undecided(decide)) == 1

    run(scenario)


def test_shape_that_raises_ends_in_the_future_of_the_response() -> None:
    async def scenario() -> None:
        promise: Promise[int] = Promise()
        response = map_response(promise.result(), lambda value: 1 // value)
        assert isinstance(response, asyncio.Future)
        promise.complete(0)
        with pytest.raises(ZeroDivisionError):
            await response

    run(scenario)
