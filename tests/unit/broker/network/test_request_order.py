"""What a client can have known when it sent a request: the order of a connection with a round trip."""

import asyncio
from collections import deque

import pytest

from oncelog.broker.dispatch.request import ConnectionInfo
from oncelog.broker.network.frames import FrameReader
from oncelog.broker.network.request_order import ConnectionOrder
from oncelog.broker.network.response_memory import ResponseMemory
from oncelog.broker.network.response_writer import ResponseWriter
from oncelog.coordinator.transaction.connection_challenge import ConnectionChallenge, is_challenged
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from tests.unit.broker.virtual_time import in_virtual_time

PRODUCER = ProducerIdAndEpoch(1, 0)
SEQUENCE = 5
REQUEST_BYTES = 100


class DistantClient(asyncio.Transport):
    """A transport whose bytes are acknowledged one round trip after they were written."""

    def __init__(self, round_trip: float) -> None:
        super().__init__()
        self._round_trip = round_trip
        self._under_way: deque[tuple[float, int]] = deque()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._under_way.append((asyncio.get_running_loop().time() + self._round_trip, len(data)))

    def get_write_buffer_size(self) -> int:
        while self._under_way and self._under_way[0][0] <= asyncio.get_running_loop().time():
            self._under_way.popleft()
        return sum(size for _, size in self._under_way)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class Link:
    """A connection, as its order sees it, that carries a challenged request, its repetitions and other requests."""

    def __init__(self, round_trip: float) -> None:
        self.round_trip = round_trip
        info = ConnectionInfo(client_host="client", listener_name="PLAINTEXT")
        self._writer = ResponseWriter(DistantClient(round_trip), info, ResponseMemory(1 << 20))
        self._order = info.order = ConnectionOrder(
            asyncio.get_running_loop(), self._writer, FrameReader(1 << 20, bytearray(1 << 10)), deque(), info.descriptor
        )
        self._info = info
        self._owner = ConnectionChallenge()

    def _receive(self, size: int) -> None:
        order = self._order
        order.note_arriving()
        order.received_bytes += size
        order.received_at = asyncio.get_running_loop().time()
        order.received += 1
        order.note_read()

    def carry_other(self, size: int) -> None:
        self._receive(size)
        self._writer.send([b"r" * 50], 50)

    def is_refused(self) -> bool:
        """Receive the request, or its repetition, and return whether it is challenged."""
        self._receive(REQUEST_BYTES)
        if not is_challenged(self._owner, PRODUCER, SEQUENCE, self._info):
            return False
        self._writer.send([b"r" * 50], 50)
        self._order.place_in_hand(())
        return True


@pytest.mark.parametrize(("every_ms", "size", "patience"), [(1, 100, 0.06), (10, 100, 0.06), (1, 100_000, 0.26)])
@pytest.mark.parametrize("backoff_ms", [0, 20, 100])
@pytest.mark.parametrize("round_trip_ms", [1, 40, 100, 300])
@in_virtual_time
async def test_repetition_over_a_connection_that_is_never_quiet_is_admitted_in_a_bounded_time(
    round_trip_ms: int, backoff_ms: int, every_ms: int, size: int, patience: float
) -> None:
    """B107: what the client had was measured by all that was sent by then, which is never acknowledged on time."""
    link = Link(round_trip_ms / 1000)
    loop = asyncio.get_running_loop()

    is_admitted = False

    async def carry_others() -> None:
        while not is_admitted:
            link.carry_other(size)
            await asyncio.sleep(every_ms / 1000)

    async with asyncio.TaskGroup() as group:
        group.create_task(carry_others())
        await asyncio.sleep(0.0105)
        began = loop.time()
        while link.is_refused():
            await asyncio.sleep((round_trip_ms + backoff_ms) / 1000)
            assert loop.time() - began <= patience + 2 * (round_trip_ms + backoff_ms) / 1000
        is_admitted = True


@in_virtual_time
async def test_copies_that_come_before_the_response_has_arrived_are_all_refused() -> None:
    """B107"""
    link = Link(0.1)
    for _ in range(90):
        assert link.is_refused()
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.3)
    assert not link.is_refused()


@in_virtual_time
async def test_requests_in_a_record_that_had_come_in_part_count_as_sent_before_the_response() -> None:
    """B128: with TLS what has arrived cannot be read before the rest of its record has come."""
    reader = FrameReader(1 << 20, bytearray(1 << 10))
    info = ConnectionInfo(client_host="client", listener_name="SSL")
    writer = ResponseWriter(DistantClient(0.001), info, ResponseMemory(1 << 20))
    order = info.order = ConnectionOrder(asyncio.get_running_loop(), writer, reader, deque(), info.descriptor)
    counts: list[int] = []
    order.received, order.received_bytes = 1, REQUEST_BYTES
    order.when_responded(counts.append)
    writer.send([b"r" * 50], 50)
    reader.held = 300
    assert not order.is_last()
    order.place_in_hand(())
    await asyncio.sleep(0.2)
    assert not counts
    order.note_arriving()
    reader.held = 0
    order.received += 2
    order.received_bytes += 300
    order.note_read()
    await asyncio.sleep(0.5)
    assert counts == [3]
