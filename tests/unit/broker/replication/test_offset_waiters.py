from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.broker.replication.offset_waiters import OffsetWaiters
from oncelog.protocol.errors import ErrorCode


def note(calls: list[tuple[str, ErrorCode]], name: str) -> Callable[[ErrorCode], None]:
    return lambda error: calls.append((name, error))


def test_waiters_are_called_in_the_order_of_offsets_then_of_arrival() -> None:
    waiters, calls = OffsetWaiters(), list[tuple[str, ErrorCode]]()
    for offset, name in [(5, "c"), (3, "a"), (5, "d"), (4, "b"), (9, "z")]:
        waiters.add(offset, note(calls, name))
    waiters.release(5)
    assert calls == [(name, ErrorCode.NONE) for name in "abcd"]
    assert len(waiters) == 1


def test_callback_may_add_a_waiter() -> None:
    waiters, calls = OffsetWaiters(), list[tuple[str, ErrorCode]]()

    def again(error: ErrorCode) -> None:
        waiters.add(2, note(calls, "due"))
        waiters.add(7, note(calls, "later"))

    waiters.add(1, again)
    waiters.release(2)
    assert calls == [("due", ErrorCode.NONE)]
    waiters.release(7)
    assert calls[1:] == [("later", ErrorCode.NONE)]


def test_failure_reaches_present_waiters_and_no_later_ones() -> None:
    waiters, calls = OffsetWaiters(), list[tuple[str, ErrorCode]]()
    waiters.add(8, note(calls, "b"))
    waiters.add(3, lambda error: waiters.add(4, note(calls, "new")))
    waiters.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert calls == [("b", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    waiters.release(4)
    assert calls[1:] == [("new", ErrorCode.NONE)]


def test_forgotten_waiter_is_not_called() -> None:
    waiters, calls = OffsetWaiters(), list[tuple[str, ErrorCode]]()
    gone, stays = note(calls, "gone"), note(calls, "stays")
    waiters.add(1, gone)
    waiters.add(2, stays)
    waiters.forget(gone)
    waiters.release(9)
    assert calls == [("stays", ErrorCode.NONE)]


@given(st.lists(st.one_of(st.integers(0, 20), st.integers(0, 20).map(lambda end: ("reached", end))), max_size=40))
def test_waiters_are_called_once_when_due(steps: list[int | tuple[str, int]]) -> None:
    waiters = OffsetWaiters()
    called: list[int] = []
    waiting: list[int] = []
    for step in steps:
        if isinstance(step, int):
            waiting.append(step)
            waiters.add(step, lambda error, offset=step: called.append(offset))  # type: ignore[misc]
        else:
            due = sorted(offset for offset in waiting if offset <= step[1])
            waiting = [offset for offset in waiting if offset > step[1]]
            called.clear()
            waiters.release(step[1])
            assert called == due
    assert len(waiters) == len(waiting)


def test_callback_that_fails_all_waiters_leaves_none_called_twice() -> None:
    waiters, calls = OffsetWaiters(), list[tuple[str, ErrorCode]]()
    waiters.add(1, lambda error: waiters.fail(ErrorCode.KAFKA_STORAGE_ERROR))
    waiters.add(2, note(calls, "second"))
    waiters.release(2)
    assert calls == [("second", ErrorCode.KAFKA_STORAGE_ERROR)]


def test_waiters_whose_callbacks_release_again_are_called_in_order_one_after_the_other() -> None:
    """A coordinator alone in its ISR: each decision of thousands appends, which is replicated at once."""
    waiters, called = OffsetWaiters(), list[int]()

    def append(offset: int, error: ErrorCode) -> None:
        called.append(offset)
        waiters.release(5_000 + len(called))

    for offset in range(5_000):
        waiters.add(offset, partial(append, offset))
    waiters.add(5_001, partial(append, 5_001))
    waiters.add(20_000, partial(append, 20_000))
    waiters.release(0)
    assert called == [*range(5_000), 5_001]
    assert len(waiters) == 1


def fail(error: ErrorCode) -> None:
    raise ValueError("unforeseen")


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_exception_of_a_waiter_comes_after_the_others_were_called(error: ErrorCode) -> None:
    """B101: the high watermark may not move again for long, and a leadership ends once."""
    waiters, calls = OffsetWaiters(), list[tuple[str, ErrorCode]]()
    for offset, callback in enumerate([note(calls, "a"), fail, note(calls, "b"), fail, note(calls, "c"), fail]):
        waiters.add(offset, callback)
    with pytest.raises(ValueError, match="unforeseen"):
        waiters.fail(error) if error else waiters.release(5)
    assert calls == [(name, error) for name in "abc"]
    assert len(waiters) == 0


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_waiters_are_all_called_however_many_of_them_raise(error: ErrorCode) -> None:
    """What one waiter meets unforeseen all may meet; a leader may have thousands."""
    waiters, calls = OffsetWaiters(), list[tuple[str, ErrorCode]]()
    for offset in range(5_000):
        waiters.add(offset, fail)
    waiters.add(5_000, note(calls, "last"))
    with pytest.raises(ValueError, match="unforeseen"):
        waiters.fail(error) if error else waiters.release(5_000)
    assert calls == [("last", error)]
    waiters.add(1, note(calls, "next"))
    waiters.release(1)
    assert calls[1:] == [("next", ErrorCode.NONE)]
