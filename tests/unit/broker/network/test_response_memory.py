"""Fetches wait when the memory for responses is full, and clients that do not read make room."""

import asyncio

from broker.network.response_memory import PATIENCE_SECONDS, ResponseMemory
from tests.unit.broker.virtual_time import in_virtual_time

LIMIT = 10 << 20


class Client:
    """A client that holds bytes of the memory; a live one reads some of them whenever it is looked at."""

    def __init__(self, memory: ResponseMemory, size: int, *, reads: bool = False) -> None:
        self._memory = memory
        self._reads = reads
        self.unread_bytes = size
        self.unread_since = asyncio.get_running_loop().time()
        self.is_connected = True
        memory.hold(size)
        memory.add_slow(self)

    def note_reading(self) -> None:
        if self._reads:
            self._memory.release(1)
            self.unread_bytes -= 1
            self.unread_since = asyncio.get_running_loop().time()

    def abort(self) -> None:
        self.is_connected = False
        self._memory.remove_slow(self)
        asyncio.get_running_loop().call_soon(self._memory.release, self.unread_bytes)


class Fetch:
    """A fetch of one mebibyte that may have to wait."""

    def __init__(self, memory: ResponseMemory, order: list["Fetch"], *, for_follower: bool = False) -> None:
        self._memory = memory
        self._order = order
        if not memory.postpone(self.read, for_follower=for_follower):
            self.read()

    def read(self) -> None:
        self._order.append(self)
        self._memory.spend(1 << 20)


@in_virtual_time
async def test_fetch_waits_for_room_and_silent_clients_are_disconnected() -> None:
    memory, read = ResponseMemory(LIMIT), list[Fetch]()
    clients = [Client(memory, 1 << 20) for _ in range(9)]
    Fetch(memory, read)
    assert len(read) == 1
    clients.append(Client(memory, 1 << 20))
    waiting = [Fetch(memory, read) for _ in range(3)]
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
    slow = [Client(memory, 2 << 20, reads=True) for _ in range(4)]
    silent = Client(memory, 4 << 20)
    await asyncio.sleep(10 * PATIENCE_SECONDS)
    assert all(client.is_connected for client in slow)
    assert not silent.is_connected


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
async def test_fetches_of_followers_do_not_wait_for_room() -> None:
    memory, read = ResponseMemory(LIMIT), list[Fetch]()
    memory.hold(LIMIT)
    Fetch(memory, read)
    assert not read
    Fetch(memory, read, for_follower=True)
    assert len(read) == 1


@in_virtual_time
async def test_fetches_that_wait_read_in_order_when_something_is_released() -> None:
    memory, read = ResponseMemory(LIMIT), list[Fetch]()
    memory.hold(LIMIT)
    waiting = [Fetch(memory, read) for _ in range(30)]
    memory.release(1)
    waiting.append(Fetch(memory, read))
    assert not read
    await asyncio.sleep(0.01)
    assert read == waiting
