"""A start whose connection to the metadata store breaks."""

from collections.abc import Callable

import pytest

from oncelog.broker.start_again import start_again
from oncelog.coordinator.metadata_store.store import ConnectionLost, SessionExpired, StoreUnavailable


def failing(*errors: Exception) -> tuple[Callable[[], object], list[Exception]]:
    """A start that raises one exception after the other, and then succeeds; and what it will still raise."""
    left = list(errors)

    async def start() -> str:
        if left:
            raise left.pop(0)
        return "started"

    return start, left


async def test_start_begins_again_when_its_connection_breaks() -> None:
    start, _ = failing(ConnectionLost("reset"), SessionExpired("over"))
    assert await start_again(start) == "started"  # type: ignore[arg-type]


async def test_start_whose_connections_always_break_ends() -> None:
    start, left = failing(*(ConnectionLost(f"reset {number}") for number in range(10)))
    with pytest.raises(ConnectionLost, match="reset 4"):
        await start_again(start)  # type: ignore[arg-type]
    assert len(left) == 5


async def test_store_that_cannot_be_reached_ends_the_start_at_once() -> None:
    start, left = failing(StoreUnavailable("no ensemble"), ConnectionLost("reset"))
    with pytest.raises(StoreUnavailable, match="no ensemble"):
        await start_again(start)  # type: ignore[arg-type]
    assert len(left) == 1
