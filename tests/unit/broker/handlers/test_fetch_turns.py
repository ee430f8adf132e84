"""What fetches read in one turn of the loop is bounded, however many of them are due at once."""

import asyncio

import pytest

from broker.handlers.fetch import handle_fetch
from broker.network.response_memory import TURN_BYTES
from tests.unit.broker.batches import batch
from tests.unit.broker.handlers.test_fetch import NAMES, fetch, led, values
from tests.unit.broker.replica_side import ReplicaSide
from tests.unit.broker.virtual_time import end_of_turn, in_virtual_time

FETCHES = 30
SIZE = (1 << 20) - 1000
A_TURN = TURN_BYTES // SIZE + 1
"""The last fetch of a turn begins while less than the bound was read."""
MOST_TURNS = 10 * FETCHES


def large_batch(broker: ReplicaSide) -> None:
    broker.append(batch(bytes(SIZE)))


async def finished_in_each_turn(answers: list["asyncio.Future[object]"]) -> list[int]:
    """How many of the fetches ended in each turn of the loop, until all have."""
    counts, before = [], 0
    for _ in range(MOST_TURNS):
        await asyncio.sleep(0)  # One turn.
        now = sum(answer.done() for answer in answers)
        counts.append(now - before)
        before = now
        if now == len(answers):
            break
    assert before == len(answers)
    return counts


@in_virtual_time
async def test_append_that_wakes_many_fetches_has_them_read_over_several_turns() -> None:
    broker = led()
    request = fetch((0, 0), max_wait_ms=60_000)
    answers = [broker.call(handle_fetch, request, NAMES) for _ in range(FETCHES)]
    await end_of_turn()
    large_batch(broker)
    assert max(await finished_in_each_turn(answers)) <= A_TURN
    for answer in answers:
        assert values(answer.result().responses[0].partitions[0]) == [bytes(SIZE)]
    await end_of_turn()
    assert broker.response_memory.held == 0


@pytest.mark.parametrize("min_bytes", [1, SIZE])
@in_virtual_time
async def test_many_fetches_that_come_in_one_turn_read_over_several(min_bytes: int) -> None:
    broker = led()
    large_batch(broker)
    request = fetch((0, 0), max_wait_ms=60_000, min_bytes=min_bytes)
    answers = [broker.call(handle_fetch, request, NAMES) for _ in range(FETCHES)]
    late = [answer for answer in answers if isinstance(answer, asyncio.Future)]
    assert FETCHES - len(late) <= A_TURN
    assert max(await finished_in_each_turn(late)) <= A_TURN
    assert asyncio.get_running_loop().time() == 0


@in_virtual_time
async def test_fetch_that_begins_late_still_waits_for_enough_bytes() -> None:
    broker = led(2)
    large_batch(broker)
    for _ in range(A_TURN):
        broker.call(handle_fetch, fetch((0, 0)), NAMES)
    late = broker.call(handle_fetch, fetch((1, 0), max_wait_ms=60_000), NAMES)
    assert isinstance(late, asyncio.Future)
    await finished_in_each_turn([])
    await end_of_turn()
    assert not late.done()
    broker.append(batch(b"a"), index=1)
    assert values((await late).responses[0].partitions[0]) == [b"a"]


@in_virtual_time
async def test_fetch_that_is_cancelled_before_it_begins_leaves_nothing_behind() -> None:
    broker = led()
    large_batch(broker)
    for _ in range(A_TURN):
        broker.call(handle_fetch, fetch((0, 0)), NAMES)
    late = broker.call(handle_fetch, fetch((0, 0)), NAMES)
    late.cancel()
    await end_of_turn()
    await end_of_turn()
    assert late.cancelled()
    assert broker.response_memory.held == 0
