"""Who reads when the memory for responses is full, and which clients are disconnected to make room."""

import asyncio

import pytest

from oncelog.broker.network.response_memory import (
    LONGEST_RESPONSE_SECONDS,
    PATIENCE_SECONDS,
    Reading,
    ResponseMemory,
    is_too_slow,
)
from tests.unit.broker.virtual_time import in_virtual_time

LIMIT = 10 << 20
ROUND_SECONDS = PATIENCE_SECONDS + 0.5


class Client:
    """A client that holds bytes of the memory; a live one reads some of them whenever it is looked at."""

    def __init__(self, memory: ResponseMemory, size: int, *, reads: int = 0) -> None:
        self._memory = memory
        self._reads = reads
        self._since = self._last_read = asyncio.get_running_loop().time()
        self._read = 0
        self.unread_bytes = size
        self.is_connected = True
        memory.hold(size)
        memory.add_slow(self)

    def note_reading(self) -> Reading:
        if self._reads:
            self._memory.release(self._reads)
            self._read += self._reads
            self.unread_bytes -= self._reads
            self._last_read = asyncio.get_running_loop().time()
        return Reading(self._since, self._last_read, self._read, self.unread_bytes, self.unread_bytes)

    def abort(self) -> None:
        self.is_connected = False
        self._memory.remove_slow(self)
        asyncio.get_running_loop().call_soon(self._memory.release, self.unread_bytes)


class Fetch:
    """A fetch of a batch of one mebibyte, which waits for room."""

    def __init__(self, memory: ResponseMemory, order: list["Fetch"], *, has_read: bool = False) -> None:
        self._memory = memory
        self._order = order
        self._has_read = has_read
        self.read()

    def read(self) -> None:
        if self._memory.is_full:
            self._memory.await_room(self.read, has_read=self._has_read)
        else:
            self._order.append(self)
            self._memory.spend(1 << 20)

    def cancel(self) -> None:
        self._memory.forget(self.read)


@in_virtual_time
async def test_fetch_waits_for_room_and_silent_clients_are_disconnected() -> None:
    memory, read = ResponseMemory(LIMIT), list[Fetch]()
    clients = [Client(memory, 1 << 20) for _ in range(9)]
    Fetch(memory, read)
    assert len(read) == 1
    clients.append(Client(memory, 1 << 20))
    waiting = [Fetch(memory, read, has_read=True) for _ in range(3)]
    assert len(read) == 1
    await asyncio.sleep(PATIENCE_SECONDS / 2)
    assert len(read) == 1
    assert all(client.is_connected for client in clients)
    await asyncio.sleep(PATIENCE_SECONDS)
    assert read[1:] == waiting
    assert [client.is_connected for client in clients] == [False] * 5 + [True] * 5
    assert memory.disconnected == 5


@in_virtual_time
async def test_clients_that_read_are_never_disconnected() -> None:
    memory = ResponseMemory(LIMIT)
    slow = [Client(memory, 2 << 20, reads=64 << 10) for _ in range(4)]
    silent = Client(memory, 4 << 20)
    await asyncio.sleep(4 * PATIENCE_SECONDS)
    assert all(client.is_connected for client in slow)
    assert not silent.is_connected


@in_virtual_time
async def test_clients_that_hardly_read_are_disconnected_when_the_memory_is_full() -> None:
    memory, read = ResponseMemory(LIMIT), list[Fetch]()
    crawling = [Client(memory, 2 << 20, reads=1) for _ in range(5)]
    memory.hold(1000)
    Fetch(memory, read)
    await asyncio.sleep(PATIENCE_SECONDS + 1)
    assert all(client.is_connected for client in crawling)
    await asyncio.sleep(5)
    assert len(read) == 1
    assert [client.is_connected for client in crawling].count(False) == 3


@in_virtual_time
async def test_clients_that_do_not_read_stay_while_there_is_room() -> None:
    memory = ResponseMemory(LIMIT)
    client = Client(memory, LIMIT - 1)
    await asyncio.sleep(100 * PATIENCE_SECONDS)
    assert client.is_connected


@in_virtual_time
async def test_silent_clients_are_disconnected_although_little_is_released_now_and_then() -> None:
    memory, read = ResponseMemory(LIMIT), list[Fetch]()
    silent = Client(memory, LIMIT - 1)

    def hold() -> None:
        memory.hold(1)
        for _ in range(3):
            Fetch(memory, read)
        asyncio.get_running_loop().call_later(0.01, memory.release, 1)

    for delay in range(100):
        asyncio.get_running_loop().call_later(0.05 * delay, hold)
    await asyncio.sleep(2 * PATIENCE_SECONDS)
    assert not silent.is_connected


@in_virtual_time
async def test_newcomer_does_not_wait_behind_a_thousand_that_never_read() -> None:
    """Each of them fills a tenth of the memory when its turn comes, and comes again when it was disconnected."""
    memory, honest = ResponseMemory(LIMIT), list[Fetch]()

    class Attacker(Client):
        def __init__(self) -> None:
            self._fetch()

        def _fetch(self) -> None:
            if memory.is_full:
                memory.await_room(self._fetch, has_read=False)
            else:
                super().__init__(memory, 1 << 20)

        def abort(self) -> None:
            super().abort()
            asyncio.get_running_loop().call_later(0.1, self._fetch)

    for _ in range(1000):
        Attacker()
    await asyncio.sleep(0)
    Fetch(memory, honest)
    assert not honest
    await asyncio.sleep(2 * ROUND_SECONDS)
    assert len(honest) == 1


@in_virtual_time
async def test_clients_that_have_read_and_newcomers_read_in_turn() -> None:
    memory, read = ResponseMemory(LIMIT), list[Fetch]()
    memory.hold(LIMIT)
    readers = [Fetch(memory, read, has_read=True) for _ in range(3)]
    newcomers = [Fetch(memory, read) for _ in range(3)]
    assert not read
    memory.release(1)
    await asyncio.sleep(0.01)
    assert read == [readers[0], newcomers[2], readers[1], newcomers[1], readers[2], newcomers[0]]


@in_virtual_time
async def test_fetch_that_is_cancelled_waits_no_more() -> None:
    memory, read = ResponseMemory(LIMIT), list[Fetch]()
    memory.hold(LIMIT)
    kept, cancelled = Fetch(memory, read), Fetch(memory, read)
    cancelled.cancel()
    memory.release(1)
    await asyncio.sleep(0.01)
    assert read == [kept]


@pytest.mark.parametrize("pace", [80_000, 200_000, 1_000_000])
def test_client_that_reads_at_an_honest_pace_is_not_too_slow(pace: int) -> None:
    size = 4 << 20
    for tenths in range(10 * size // pace):
        now = tenths / 10
        read = pace * tenths // 10 // 65_536 * 65_536  # As the kernel reports it.
        last_read = read / pace
        assert not is_too_slow(Reading(0.0, last_read, read, size - read, held=0), now), now


def test_client_that_would_need_longer_than_a_minute_is_too_slow_after_some_seconds() -> None:
    size = 4 << 20
    pace = size / LONGEST_RESPONSE_SECONDS / 2
    assert not is_too_slow(Reading(0.0, 3.9, int(3.9 * pace), size - int(3.9 * pace), held=0), 4.0)
    assert is_too_slow(Reading(0.0, 6.0, int(6.0 * pace), size - int(6.0 * pace), held=0), 6.0)
