"""What fetches read in one turn of the loop is bounded, however many of them are due at once."""

import asyncio

import pytest

from oncelog.broker.handlers.fetch import handle_fetch
from oncelog.broker.network.response_memory import LEAST_READ_BYTES, TURN_BYTES
from oncelog.protocol.errors import ErrorCode
from tests.unit.broker.batches import batch
from tests.unit.broker.handlers.test_fetch import NAMES, NEW_SESSION, cold, fetch, led, replies, values
from tests.unit.broker.replica_side import OnlyTopics, ReplicaSide, new_connection
from tests.unit.broker.turns import longest_turn
from tests.unit.broker.virtual_time import end_of_turn, in_virtual_time

FETCHES = 30
SIZE = (1 << 20) - 1000
A_TURN = TURN_BYTES // SIZE + 1
"""The last fetch of a turn begins while less than the bound was read."""
MOST_TURNS = 10 * FETCHES
READS_A_TURN = TURN_BYTES // LEAST_READ_BYTES
WAIT_FOR_ROOM_SECONDS = 5.0
MOST_LINES = 60_000


def large_batch(broker: ReplicaSide) -> None:
    broker.append(batch(bytes(SIZE)))


async def finished_in_each_turn(responses: list["asyncio.Future[object]"]) -> list[int]:
    """How many of the fetches ended in each turn of the loop from now on, until all have."""
    counts = []
    before = sum(response.done() for response in responses)
    for _ in range(MOST_TURNS):
        await asyncio.sleep(0)  # One turn.
        now = sum(response.done() for response in responses)
        counts.append(now - before)
        before = now
        if now == len(responses):
            break
    assert before == len(responses)
    return counts


@in_virtual_time
async def test_append_that_wakes_many_fetches_has_them_read_over_several_turns() -> None:
    broker = led()
    request = fetch((0, 0), max_wait_ms=60_000)
    responses = [broker.call(handle_fetch, request, NAMES) for _ in range(FETCHES)]
    await end_of_turn()
    large_batch(broker)
    assert max(await finished_in_each_turn(responses)) <= A_TURN
    await assert_responded(broker, responses)


async def assert_responded(broker: ReplicaSide, responses: list["asyncio.Future[object]"]) -> None:
    for response in responses:
        assert values(replies(await response)[0]) == [bytes(SIZE)]  # type: ignore[arg-type]
    await end_of_turn()
    assert broker.response_memory.held == 0


def waiting_for_room(broker: ReplicaSide, count: int) -> list["asyncio.Future[object]"]:
    """Fetches of a large batch that wait for the same time, because there is no room."""
    large_batch(broker)
    broker.response_memory.hold(broker.config.oncelog_responses_max_bytes)
    return [broker.call(handle_fetch, fetch((0, 0)), NAMES, connection=new_connection()) for _ in range(count)]


@in_virtual_time
async def test_fetches_whose_wait_for_room_ends_at_the_same_time_read_over_several_turns() -> None:
    broker = led()
    memory, loop = broker.response_memory, asyncio.get_running_loop()
    loop.call_later(WAIT_FOR_ROOM_SECONDS, memory.release, broker.config.oncelog_responses_max_bytes)
    responses = waiting_for_room(broker, FETCHES)
    await asyncio.sleep(WAIT_FOR_ROOM_SECONDS)  # It returns in the turn after the one in which they are due.
    assert sum(response.done() for response in responses) <= 2 * A_TURN
    assert max(await finished_in_each_turn(responses)) <= A_TURN
    await assert_responded(broker, responses)


@in_virtual_time
async def test_cold_reads_that_end_in_one_turn_and_left_large_batches_read_those_over_several() -> None:
    broker = led()
    gate = cold(broker)
    responses = waiting_for_room(broker, FETCHES)
    await end_of_turn()
    broker.response_memory.release(broker.config.oncelog_responses_max_bytes)
    broker.disk.cold = lambda: False
    gate.set()
    assert max(await finished_in_each_turn(responses)) <= A_TURN
    await assert_responded(broker, responses)


@in_virtual_time
async def test_fetches_that_find_nothing_they_can_have_look_over_several_turns() -> None:
    """Each look costs the time of some tens of kilobytes."""
    broker = led()
    reads = 0

    def count() -> bool:
        nonlocal reads
        reads += 1
        return False

    broker.disk.cold = count
    responses = waiting_for_room(broker, 3 * READS_A_TURN)
    most = before = reads
    for _ in range(MOST_TURNS):
        most, before = max(most, reads - before), reads
        await asyncio.sleep(0)  # One turn.
    assert reads == len(responses)
    assert most <= READS_A_TURN
    assert not any(response.done() for response in responses)


@in_virtual_time
async def test_small_append_that_wakes_a_thousand_fetches_has_them_read_over_several_turns() -> None:
    broker = led()
    request = fetch((0, 0), max_wait_ms=60_000)
    responses = [broker.call(handle_fetch, request, NAMES) for _ in range(1_000)]
    for _ in range(MOST_TURNS):
        await asyncio.sleep(0)
    assert not any(response.done() for response in responses)
    broker.append(batch(b"a"))
    assert max(await finished_in_each_turn(responses)) <= READS_A_TURN


@pytest.mark.parametrize("min_bytes", [1, SIZE])
@in_virtual_time
async def test_many_fetches_that_come_in_one_turn_read_over_several(min_bytes: int) -> None:
    broker = led()
    large_batch(broker)
    request = fetch((0, 0), max_wait_ms=60_000, min_bytes=min_bytes)
    responses = [broker.call(handle_fetch, request, NAMES) for _ in range(FETCHES)]
    late = [response for response in responses if isinstance(response, asyncio.Future)]
    assert FETCHES - len(late) <= A_TURN
    assert max(await finished_in_each_turn(late)) <= A_TURN
    assert asyncio.get_running_loop().time() == 0


@pytest.mark.parametrize("may_read", [True, False])
@pytest.mark.parametrize("replica_id", [-1, 1])
@in_virtual_time
async def test_fetch_of_very_many_partitions_that_cannot_be_read_takes_short_turns(
    may_read: bool, replica_id: int
) -> None:
    """Only its client decides how many these are. In one turn they would be a million lines."""
    broker = led()
    broker.append(batch(b"a"))
    if replica_id >= 0 or not may_read:
        broker.authorizer = OnlyTopics(*(["t"] if may_read else []))
    request = fetch(*[(index, 0) for index in range(20_000)], max_wait_ms=60_000)
    request.replica_id = replica_id
    response, lines = await longest_turn(lambda: broker.call(handle_fetch, request, NAMES))
    assert lines < MOST_LINES
    assert asyncio.get_running_loop().time() == 0
    assert response.session_id == 0
    got = [reply for topic in response.responses for reply in topic.partitions]
    assert sorted(reply.partition_index for reply in got) == list(range(20_000))
    if may_read and replica_id < 0:
        (first,) = [reply for reply in got if not reply.error_code]
        assert values(first) == [b"a"]
        assert {reply.error_code for reply in got} == {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    else:
        assert {reply.error_code for reply in got} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@in_virtual_time
async def test_long_fetch_of_which_everything_can_be_read_waits_and_gets_a_session() -> None:
    broker = led(1_500)
    request = fetch(*[(index, 0) for index in range(1_500)], max_wait_ms=60_000, min_bytes=1)
    request.session_epoch = NEW_SESSION
    waiting = await broker.call(handle_fetch, request, NAMES)
    await end_of_turn()
    await end_of_turn()
    assert not waiting.done()
    broker.append(batch(b"a"), index=7)
    response = await waiting
    assert [values(reply) for topic in response.responses for reply in topic.partitions if reply.records] == [[b"a"]]
    assert response.session_id != 0


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
