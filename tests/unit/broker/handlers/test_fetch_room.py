"""What a fetch gets when the memory for responses is full."""

import asyncio

import pytest

from oncelog.broker.handlers.fetch import handle_fetch
from oncelog.protocol.errors import ErrorCode
from tests.unit.broker.batches import batch
from tests.unit.broker.handlers import test_follower_fetch as follower
from tests.unit.broker.handlers.test_fetch import NAMES, NEW_SESSION, cold, fetch, led, replies, still_waits, values
from tests.unit.broker.replica_side import ME, OTHER, ReplicaSide, new_connection
from tests.unit.broker.virtual_time import end_of_turn, in_virtual_time

LARGE = bytes(100_000)
WITHOUT_RACKS = 10
"""The last version whose consumers do not read from followers."""


def fill(broker: ReplicaSide) -> int:
    """Hold all of the memory. Returns how much that is."""
    size = broker.config.oncelog_responses_max_bytes
    broker.response_memory.hold(size)
    return size


@pytest.mark.parametrize("is_cold", [False, True])
@in_virtual_time
async def test_small_batches_are_read_at_once(is_cold: bool) -> None:
    broker = led()
    for _ in range(100):
        broker.append(batch(bytes(1000)))
    fill(broker)
    if is_cold:
        cold(broker).set()
    outcome = broker.call(handle_fetch, fetch((0, 0)), NAMES)
    response = await outcome if isinstance(outcome, asyncio.Future) else outcome
    assert 50 < len(values(replies(response)[0])) < 64


@pytest.mark.parametrize("is_cold", [False, True])
@in_virtual_time
async def test_large_batch_waits_for_room_and_comes_whole(is_cold: bool) -> None:
    broker = led()
    broker.append(batch(LARGE))
    held = fill(broker)
    if is_cold:
        cold(broker).set()
    response = broker.call(handle_fetch, fetch((0, 0), max_wait_ms=500), NAMES)
    await asyncio.sleep(10)
    assert await still_waits(response)
    broker.response_memory.release(held)
    assert values(replies(await response)[0]) == [LARGE]
    await end_of_turn()
    assert broker.response_memory.held == 0


LEAST = -(2**31)


@pytest.mark.parametrize("sizes", [{"partition_max_bytes": LEAST}, {"max_bytes": LEAST}, {"min_bytes": LEAST}])
@pytest.mark.parametrize("is_follower", [False, True])
@in_virtual_time
async def test_negative_sizes_count_as_none_at_all(sizes: dict[str, int], is_follower: bool) -> None:
    broker = follower.leader() if is_follower else led(2)
    if is_follower:
        broker.lead("t", 2, replicas=(ME, OTHER), epoch=1)
    for index in (0, 1):
        broker.append(batch(LARGE), index=index)
    gate = cold(broker)
    request = fetch((0, 0), (1, 0), **sizes)  # type: ignore[arg-type]
    request.replica_id = OTHER if is_follower else -1
    outcome = broker.call(handle_fetch, request, NAMES)
    assert broker.response_memory.held >= 0
    gate.set()
    response = await outcome if isinstance(outcome, asyncio.Future) else outcome
    read = sum(len(reply.records or b"") for reply in replies(response).values())
    assert read < 2 * len(LARGE) or "min_bytes" in sizes
    await end_of_turn()
    assert broker.response_memory.held == 0
    assert not broker.response_memory.turn_is_spent


@in_virtual_time
async def test_cold_partitions_that_there_is_no_room_for_are_not_read() -> None:
    broker = led(3)
    for index in range(3):
        broker.append(batch(LARGE), index=index)
    gate = cold(broker)
    outcome = broker.call(handle_fetch, fetch((0, 0), (1, 0), (2, 0), max_bytes=1), NAMES)
    assert broker.response_memory.held > 0
    gate.set()
    response = await outcome
    assert [len(values(reply)) for reply in replies(response).values()] == [1, 0, 0]
    await end_of_turn()
    assert broker.response_memory.held == 0


@in_virtual_time
async def test_large_batch_of_one_partition_keeps_no_other_waiting() -> None:
    broker = led(2)
    broker.append(batch(LARGE))
    broker.append(batch(b"small"), index=1)
    fill(broker)
    response = broker.respond(handle_fetch, fetch((0, 0), (1, 0)), NAMES)
    assert {index: values(reply) for index, reply in replies(response).items()} == {0: [], 1: [b"small"]}


@in_virtual_time
async def test_fetch_that_waits_for_records_waits_for_room_only_when_they_are_large() -> None:
    broker = led()
    fill(broker)
    small = broker.call(handle_fetch, fetch((0, 0), max_wait_ms=60_000), NAMES)
    assert await still_waits(small)
    broker.append(batch(b"small"))
    assert values(replies(await small)[0]) == [b"small"]
    large = broker.call(handle_fetch, fetch((0, 1), max_wait_ms=60_000), NAMES)
    broker.append(batch(LARGE))
    await asyncio.sleep(10)
    assert await still_waits(large)
    broker.response_memory.release(1)
    assert values(replies(await large)[0]) == [LARGE]


@in_virtual_time
async def test_fetch_that_is_cancelled_while_it_waits_for_room_leaves_nothing_behind() -> None:
    broker = led()
    broker.append(batch(LARGE))
    held = fill(broker)
    response = broker.call(handle_fetch, fetch((0, 0)), NAMES)
    response.cancel()
    await end_of_turn()
    broker.response_memory.release(held)
    await end_of_turn()
    assert broker.response_memory.held == 0


@in_virtual_time
async def test_few_connections_of_each_follower_need_not_wait() -> None:
    broker = follower.leader()
    broker.append(batch(LARGE))
    fill(broker)
    request = follower.fetch((0, 0))
    connections = [new_connection() for _ in range(6)]

    def waits(connection: object) -> bool:
        return isinstance(broker.call(handle_fetch, request, 17, connection=connection), asyncio.Future)

    assert [waits(connection) for connection in connections] == [False] * 4 + [True] * 2
    assert [waits(connection) for connection in connections[:4]] == [False] * 4
    connections[1].is_open = False
    assert not waits(connections[5])
    assert waits(connections[4])


@in_virtual_time
async def test_follower_with_the_epoch_of_its_registration_takes_a_place_that_others_claim() -> None:
    """Connections without that epoch may have what is left, until the follower comes."""
    broker = follower.leader(registered_epochs={OTHER: 7})
    broker.append(batch(LARGE))
    fill(broker)
    claiming, true = [new_connection() for _ in range(5)], [new_connection() for _ in range(5)]

    def waits(connection: object, epoch: int) -> bool:
        request = follower.fetch((0, 0), epoch=epoch)
        return isinstance(broker.call(handle_fetch, request, 17, connection=connection), asyncio.Future)

    assert [waits(connection, -1) for connection in claiming] == [False] * 4 + [True]
    assert not waits(true[0], 7)
    assert [waits(connection, -1) for connection in claiming] == [True, False, False, False, True]
    assert [connection.is_replica_fetcher for connection in claiming] == [False, True, True, True, False]
    assert not waits(true[0], 7)
    assert [waits(connection, 7) for connection in true] == [False] * 4 + [True]
    assert [waits(connection, -1) for connection in claiming] == [True] * 5


@pytest.mark.parametrize("epoch", [6, 8, 1 << 62])
@in_virtual_time
async def test_connection_with_another_epoch_than_the_registered_one_waits_as_a_consumer(epoch: int) -> None:
    broker = follower.leader(registered_epochs={OTHER: 7})
    connection = new_connection()
    broker.call(handle_fetch, follower.fetch((0, 0), epoch=epoch), 17, connection=connection)
    assert not connection.is_replica_fetcher


@in_virtual_time
async def test_place_of_a_former_registration_is_free_for_the_present_one() -> None:
    broker = follower.leader(registered_epochs={OTHER: 7})
    former, present = [new_connection() for _ in range(4)], new_connection()
    for connection in former:
        broker.call(handle_fetch, follower.fetch((0, 0), epoch=7), 17, connection=connection)
    broker.registered_epochs[OTHER] = 8
    broker.lead("t", replicas=(ME, OTHER), epoch=1)
    broker.call(handle_fetch, follower.fetch((0, 0), epoch=8), 17, connection=present)
    assert present.is_replica_fetcher


@in_virtual_time
async def test_connection_that_names_a_broker_which_is_not_there_waits_as_a_consumer() -> None:
    broker = follower.leader()
    broker.lead("t", replicas=(ME, OTHER, 77), epoch=1)
    broker.append(batch(LARGE))
    fill(broker)
    connection = new_connection()
    broker.call(handle_fetch, follower.fetch((0, 0), replica_id=77), 17, connection=connection)
    assert not connection.is_replica_fetcher


@in_virtual_time
async def test_room_that_comes_while_a_cold_batch_is_read_is_noticed() -> None:
    broker = led()
    broker.append(batch(LARGE))
    held = fill(broker)
    gate = cold(broker)
    response = broker.call(handle_fetch, fetch((0, 0), max_wait_ms=500), NAMES)
    await end_of_turn()
    broker.response_memory.release(held)
    gate.set()
    assert values(replies(await asyncio.wait_for(response, 10))[0]) == [LARGE]


@pytest.mark.parametrize("with_session", [False, True])
@in_virtual_time
async def test_cold_first_batch_counts_in_full_while_it_is_read_and_until_it_is_handed_over(with_session: bool) -> None:
    """It is read whatever its size, although little is granted."""
    broker, value = led(2), bytes(500_000)
    broker.append(batch(value))
    broker.append(batch(b"small"), index=1)
    memory = broker.response_memory
    fill(broker)
    memory.release(1)
    held, gate = memory.held, cold(broker)
    session = {"session": (0, NEW_SESSION)} if with_session else {}
    outcome = broker.call(handle_fetch, fetch((0, 0), (1, 0), max_wait_ms=500, **session), NAMES)
    outcome.add_done_callback(lambda _: counted.append(memory.held - held))
    await end_of_turn()
    counted = [memory.held - held]
    gate.set()
    response = await asyncio.wait_for(outcome, 10)
    sizes = [len(reply.records or b"") for reply in replies(response).values()]
    assert sizes[0] > len(value)
    assert counted[0] >= sizes[0]
    assert counted[1:] == [sum(sizes)]
    await end_of_turn()
    assert memory.held == held


@in_virtual_time
async def test_cold_fetch_counts_what_it_has_read_and_not_what_it_might_have() -> None:
    broker = led()
    for _ in range(10):
        broker.append(batch(bytes(1000)))
    memory, gate = broker.response_memory, cold(broker)
    outcome = broker.call(handle_fetch, fetch((0, 0), partition_max_bytes=2500, max_wait_ms=500), NAMES)
    outcome.add_done_callback(lambda _: counted.append(memory.held))
    await end_of_turn()
    counted = [memory.held]
    gate.set()
    response = await asyncio.wait_for(outcome, 10)
    assert counted[0] >= 2500
    assert counted[1:] == [len(replies(response)[0].records or b"")]


@in_virtual_time
async def test_small_batch_behind_a_large_cold_one_is_read() -> None:
    broker = led(2)
    broker.append(batch(LARGE))
    broker.append(batch(b"small"), index=1)
    fill(broker)
    begun = await broker.call(handle_fetch, fetch((0, 1), session=(0, NEW_SESSION), max_wait_ms=1), NAMES)
    cold(broker).set()
    response = broker.call(handle_fetch, fetch((0, 0), (1, 0), session=(begun.session_id, 1), max_wait_ms=500), NAMES)
    assert values(replies(await asyncio.wait_for(response, 10))[1]) == [b"small"]


@in_virtual_time
async def test_small_batch_that_comes_while_a_fetch_waits_for_room_ends_the_wait() -> None:
    broker = led(2)
    broker.append(batch(LARGE))
    fill(broker)
    response = broker.call(handle_fetch, fetch((0, 0), (1, 0), max_wait_ms=500), NAMES)
    assert await still_waits(response)
    broker.append(batch(b"small"), index=1)
    assert values(replies(await asyncio.wait_for(response, 1))[1]) == [b"small"]


@in_virtual_time
async def test_lost_leadership_ends_the_wait_for_room() -> None:
    broker = ReplicaSide()
    broker.lead(replicas=(ME, OTHER), isr=(ME,))
    broker.append(batch(LARGE))
    fill(broker)
    response = broker.call(handle_fetch, fetch((0, 0), max_wait_ms=500), WITHOUT_RACKS)
    assert await still_waits(response)
    broker.lead(epoch=1, leader=OTHER, replicas=(ME, OTHER))
    reply = replies(await asyncio.wait_for(response, 1))[0]
    assert reply.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_batch_above_the_maximum_of_its_partition_is_small_all_the_same() -> None:
    broker = led()
    broker.append(batch(bytes(200)))
    fill(broker)
    response = broker.respond(handle_fetch, fetch((0, 0), partition_max_bytes=100), NAMES)
    assert values(replies(response)[0]) == [bytes(200)]


@in_virtual_time
async def test_consumer_of_a_busy_small_partition_gets_its_large_batch_in_turn() -> None:
    """While others queue for the room that is released."""
    broker = led(2)
    broker.append(batch(LARGE))
    fill(broker)
    memory, loop = broker.response_memory, asyncio.get_running_loop()

    async def consume_large() -> None:
        connection = new_connection()
        while True:
            outcome = broker.call(handle_fetch, fetch((0, 0), max_wait_ms=500), NAMES, connection=connection)
            if isinstance(outcome, asyncio.Future):
                await outcome
            memory.hold(len(LARGE))
            loop.call_later(1, memory.release, len(LARGE))

    others = [loop.create_task(consume_large()) for _ in range(50)]
    await asyncio.sleep(1)
    memory.release(len(LARGE))
    sizes = list[int]()
    for offset in range(100):
        broker.append(batch(b"small"), index=1)
        outcome = broker.call(handle_fetch, fetch((0, 0), (1, offset), max_wait_ms=500), NAMES)
        response = await outcome if isinstance(outcome, asyncio.Future) else outcome
        sizes.append(len(values(replies(response)[0])))
        if sizes[-1]:
            break
        await asyncio.sleep(0.3)
    for other in others:
        other.cancel()
    assert sizes[-1] == 1
