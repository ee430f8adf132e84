"""What one client can hold of memory, and of a turn of the loop, is bounded whatever it sends or leaves unread."""

import asyncio
import gc
import resource
import weakref
from typing import Any

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.dispatch.api_handler import ApiHandler, Outcome, handles
from oncelog.broker.dispatch.request import CloseConnection, RequestContext
from oncelog.broker.network.long_requests import MOST_BYTES
from oncelog.broker.network.response_memory import LARGEST_GRANT, SMALLEST_GRANT, ResponseMemory
from oncelog.broker.network.socket_server import first_descriptor_kept_back
from oncelog.broker.network.turn_share import TURN_UNITS
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.unit.broker.network.frame_client import FrameClient, Served, frame, run, serve
from tests.unit.broker.network.test_connection import every_loop, heartbeats, settle, until


class Turns:
    """Counts the requests that begin in each turn of the loop, by connection."""

    def __init__(self) -> None:
        self.begun: list[list[int]] = []
        """The ports of the clients, one list for each turn."""
        self._open = False

    def handler(self) -> ApiHandler[HeartbeatRequest]:
        @handles(ApiKey.HEARTBEAT, versions="0-3")
        def handle_heartbeat(broker: Any, context: RequestContext, request: HeartbeatRequest) -> Outcome:
            if not self._open:
                self._open = True
                self.begun.append([])
                asyncio.get_running_loop().call_soon(self._end)
            self.begun[-1].append(context.connection.client_port)
            return HeartbeatResponse()

        return handle_heartbeat

    def _end(self) -> None:
        self._open = False


@every_loop
def test_pipelined_requests_of_one_connection_begin_in_slices(loop_name: str) -> None:
    async def scenario() -> None:
        turns = Turns()
        async with serve([turns.handler()]) as served:
            client = await served.connect()
            client.send(*heartbeats(*["x"] * 20_000))
            assert await client.correlation_ids(20_000) == list(range(1, 20_001))
        assert max(map(len, turns.begun)) <= 64

    run(loop_name, scenario)


@pytest.mark.parametrize("loop_name", ["asyncio", "uvloop"])
def test_pipelined_requests_of_many_connections_begin_in_slices_of_all_of_them(loop_name: str) -> None:
    """A client with one request does not wait for a slice of each of the others."""
    count, slices = 60, 5

    async def scenario() -> None:
        turns = Turns()
        async with serve([turns.handler()]) as served:
            clients = [await served.connect() for _ in range(count)]
            single = await served.connect()
            for client in clients:
                client.send(*heartbeats(*["x"] * 64 * slices))
            single.send(*heartbeats("single"))
            port = single.transport.get_extra_info("sockname")[1]
            for client in clients:
                assert await client.correlation_ids(64 * slices) == list(range(1, 64 * slices + 1))
        assert sum(map(len, turns.begun)) == count * 64 * slices + 1
        assert max(map(len, turns.begun)) <= TURN_UNITS + count + 1
        assert any(port in turn for turn in turns.begun[:3])

    run(loop_name, scenario)


@pytest.mark.parametrize("loop_name", ["asyncio", "uvloop"])
def test_long_requests_of_many_connections_begin_in_turns_of_their_own(loop_name: str) -> None:
    """One unit at least for each connection would be all of them in one turn."""
    count = 60

    async def scenario() -> None:
        turns = Turns()
        async with serve([turns.handler()]) as served:
            clients = [await served.connect() for _ in range(count)]
            for client in clients:
                client.send(*heartbeats(*["x" * 30_000] * 8))
            for client in clients:
                assert await client.correlation_ids(8) == list(range(1, 9))
        assert sum(map(len, turns.begun)) == count * 8
        assert max(map(len, turns.begun)) <= TURN_UNITS * 256 // 30_000 + 1

    run(loop_name, scenario)


@pytest.mark.parametrize("loop_name", ["asyncio", "uvloop"])
def test_long_requests_that_describe_are_few_at_a_time_and_delay_no_others(loop_name: str) -> None:
    topics = [MetadataRequestTopic(name=f"topic-{number:06d}") for number in range(15_000)]
    request = MetadataRequest(topics=topics)
    most_at_once = MOST_BYTES // (len(frame(1, request, 4)) - 4)
    count = 3 * most_at_once

    async def scenario() -> None:
        under_way = [0]
        most = [0]
        may_end = asyncio.Event()

        @handles(ApiKey.METADATA, versions="0-9")
        async def handle_metadata(broker: Any, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            await may_end.wait()
            under_way[0] -= 1
            return MetadataResponse()

        turns = Turns()
        async with serve([handle_metadata, turns.handler()]) as served:
            clients = [await served.connect() for _ in range(count)]
            gone = clients[most_at_once : 2 * most_at_once]
            for number, client in enumerate(clients):
                client.send((number, request, 4))
                await settle()
            await until(lambda: under_way[0] == most_at_once)
            other = await served.connect()
            other.send(*heartbeats("x"))
            assert await other.correlation_ids(1) == [1]
            for client in gone:  # They have waited first.
                client.transport.abort()
            await settle()
            may_end.set()
            for number, client in enumerate(clients):
                if client not in gone:
                    assert await client.correlation_ids(1) == [number]
        assert most[0] == most_at_once

    run(loop_name, scenario)


class _Held:
    """What a request holds while it is worked on."""


@pytest.mark.parametrize("loop_name", ["asyncio", "uvloop"])
def test_request_that_ends_its_connection_is_freed_without_a_garbage_collection(loop_name: str) -> None:
    async def scenario() -> None:
        held: list[weakref.ref[_Held]] = []

        @handles(ApiKey.METADATA, versions="0-9")
        async def handle_metadata(broker: Any, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
            decoded = _Held()
            held.append(weakref.ref(decoded))
            await asyncio.sleep(0)
            raise CloseConnection(f"its client has gone: {decoded}")

        async with serve([handle_metadata]) as served:
            for _ in range(3):
                client = await served.connect()
                client.send((1, MetadataRequest(topics=[]), 4))
                await client.lost
            await settle()
            assert len(held) == 3
            assert not any(reference() for reference in held)

    was_enabled = gc.isenabled()
    gc.disable()
    try:
        run(loop_name, scenario)
    finally:
        if was_enabled:
            gc.enable()


@every_loop
def test_frames_behind_a_spent_slice_stay_with_the_sender(loop_name: str) -> None:
    size, count = 1 << 20, 48

    async def scenario() -> None:
        received: list[int] = []

        @handles(ApiKey.PRODUCE, versions="3-9")
        def handle_produce(broker: Any, context: RequestContext, request: ProduceRequest) -> Outcome:
            received.append(served.server.traffic()["PLAINTEXT"].bytes_in)
            return ProduceResponse()

        async with serve([handle_produce]) as served:
            client = await served.connect()
            data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=bytes(size))])]
            produce = frame(1, ProduceRequest(acks=1, timeout_ms=1, topic_data=data), 9)
            client.transport.write(produce * count)
            await client.correlation_ids(count)
        ahead = [(total - len(produce) * begun) // size for begun, total in enumerate(received, 1)]
        assert len(ahead) == count
        assert max(ahead) <= 2

    run(loop_name, scenario)


class Fetches:
    """Fetches of which the first waits and each other gets ``size`` bytes at once."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.begun = 0
        self.first: asyncio.Future[FetchResponse]

    def handler(self) -> ApiHandler[FetchRequest]:
        @handles(ApiKey.FETCH, versions="4-12", in_turn=True)
        def handle_fetch(broker: Any, context: RequestContext, request: FetchRequest) -> Outcome:
            self.begun += 1
            if self.begun == 1:
                self.first = asyncio.get_running_loop().create_future()
                return self.first
            return self.response()

        return handle_fetch

    def response(self) -> FetchResponse:
        data = PartitionData(partition_index=0, records=bytes(self._size))
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])


@every_loop
def test_fetches_behind_a_long_poll_begin_after_its_response(loop_name: str) -> None:
    async def scenario() -> None:
        fetches = Fetches(1 << 20)
        async with serve([fetches.handler()]) as served:
            client = await served.connect()
            client.send(*((i, FetchRequest(), 4) for i in range(61)))
            await until(lambda: fetches.begun)
            await settle()
            assert fetches.begun == 1
            fetches.first.set_result(fetches.response())
            assert await client.correlation_ids(61) == list(range(61))

    run(loop_name, scenario)


@every_loop
def test_follower_has_one_fetch_that_overtakes_another_and_no_more(loop_name: str) -> None:
    async def scenario() -> None:
        waiting: list[asyncio.Future[FetchResponse]] = []

        @handles(ApiKey.FETCH, versions="4-12", in_turn=True)
        def handle_fetch(broker: Any, context: RequestContext, request: FetchRequest) -> Outcome:
            context.connection.is_replica_fetcher = True
            waiting.append(asyncio.get_running_loop().create_future())
            return waiting[-1]

        async with serve([handle_fetch]) as served:
            client = await served.connect()
            client.send(*((i, FetchRequest(), 4) for i in range(100)))
            await until(lambda: len(waiting) >= 2)
            await settle()
            assert len(waiting) == 2
            for index in range(100):
                await until(lambda: len(waiting) > index)  # noqa: B023
                waiting[index].set_result(FetchResponse())
            assert await client.correlation_ids(100) == list(range(100))

    run(loop_name, scenario)


@every_loop
def test_responses_that_wait_for_an_earlier_one_are_bounded_in_bytes(loop_name: str) -> None:
    async def scenario() -> None:
        begun = 0
        first: asyncio.Future[HeartbeatResponse] = asyncio.get_running_loop().create_future()

        @handles(ApiKey.HEARTBEAT, versions="0-3")
        def handle_heartbeat(broker: Any, context: RequestContext, request: HeartbeatRequest) -> Outcome:
            return first

        @handles(ApiKey.METADATA, versions="2-3")
        def handle_metadata(broker: Any, context: RequestContext, request: MetadataRequest) -> Outcome:
            nonlocal begun
            begun += 1
            return MetadataResponse(cluster_id="x" * 30_000)

        async with serve([handle_heartbeat, handle_metadata]) as served:
            client = await served.connect()
            client.send((0, HeartbeatRequest(), 0), *((i, MetadataRequest(), 2) for i in range(1, 500)))
            in_one_megabyte = -(-(1 << 20) // 30_000)
            await until(lambda: begun >= in_one_megabyte)
            await settle()
            assert begun == in_one_megabyte
            first.set_result(HeartbeatResponse())
            assert await client.correlation_ids(500) == list(range(500))

    run(loop_name, scenario)


async def _stalled(served: Served, size: int) -> FrameClient:
    client = await served.connect()
    client.transport.pause_reading()
    client.send((0, FetchRequest(), 4))
    await until(lambda: served.server.response_memory.held >= size)
    return client


@every_loop
def test_bytes_that_clients_do_not_read_are_counted_until_they_are_gone(loop_name: str) -> None:
    async def scenario() -> None:
        if loop_name == "virtual":  # Its transports take everything.
            return
        fetches = Fetches(30 << 20)
        fetches.begun = 1
        async with serve([fetches.handler()]) as served:
            memory = served.server.response_memory
            reads = await _stalled(served, 30 << 20)
            leaves = await _stalled(served, 60 << 20)
            leaves.transport.abort()
            await until(lambda: memory.held < 60 << 20)
            assert memory.held >= 30 << 20  # Kernels have taken some of that, but the transport keeps all of it.
            reads.transport.resume_reading()
            assert await reads.correlation_ids(1) == [0]
            await until(lambda: memory.held == 0)

    run(loop_name, scenario)


@every_loop
def test_connection_that_ends_leaves_its_slot_whatever_is_wrong_with_its_account(loop_name: str) -> None:
    async def scenario() -> None:
        if loop_name == "virtual":
            return
        fetches = Fetches(30 << 20)
        fetches.begun = 1
        errors: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
        async with serve([fetches.handler()]) as served:
            client = await _stalled(served, 30 << 20)
            served.server.response_memory.held = 0
            client.transport.abort()
            await until(lambda: not served.server.connection_count)
            await until(lambda: errors)

    run(loop_name, scenario)


@every_loop
def test_clients_that_never_read_are_disconnected_when_the_memory_for_responses_is_full(loop_name: str) -> None:
    async def scenario() -> None:
        if loop_name == "virtual":
            return
        fetches = Fetches(30 << 20)
        fetches.begun = 1
        config = BrokerConfig(oncelog_responses_max_bytes=60 << 20)
        async with serve([fetches.handler()], config=config) as served:
            clients = [await _stalled(served, size << 20) for size in (30, 60)]
            reader = await served.connect()
            reader.send((0, FetchRequest(), 4))
            assert await reader.correlation_ids(1) == [0]
            await until(lambda: served.server.connection_count < 3)
            assert served.server.response_memory.disconnected > 0
            assert reader.transport.is_closing() is False
            for client in clients:
                client.transport.abort()
            await until(lambda: served.server.connection_count == 1)
            assert served.server.response_memory.held == 0

    run(loop_name, scenario)


@every_loop
def test_connection_that_never_reads_its_response_is_closed_as_idle(loop_name: str) -> None:
    async def scenario() -> None:
        if loop_name == "virtual":
            return
        fetches = Fetches(30 << 20)
        fetches.begun = 1
        async with serve([fetches.handler()], config=BrokerConfig(connections_max_idle_ms=200)) as served:
            client = await _stalled(served, 10 << 20)
            client.send((1, FetchRequest(), 4), *heartbeats("never begun"))
            await until(lambda: served.server.connection_count == 0)
            assert served.server.response_memory.held == 0

    run(loop_name, scenario)


def test_grants_shrink_with_what_is_held_but_never_to_nothing() -> None:
    memory = ResponseMemory(256 << 20)
    granted = []
    for _ in range(1_000):
        granted.append(memory.grant(55 << 20))
        memory.hold(granted[-1])
    assert granted[0] == LARGEST_GRANT
    assert granted == sorted(granted, reverse=True)
    assert granted[-1] == SMALLEST_GRANT
    assert memory.held < (256 << 20) + 1_000 * SMALLEST_GRANT
    for size in granted:
        memory.release(size)
    assert memory.grant(1_000) == 1_000


@pytest.mark.parametrize("loop_name", ["asyncio", "uvloop"])
def test_connection_is_refused_when_only_descriptors_kept_for_logs_are_left(
    loop_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idle connections up to the limit of the process leave a quarter of it to segments."""
    limit = 400

    async def scenario() -> None:
        async with serve([Turns().handler()]) as served:
            clients = [await served.connect() for _ in range(limit // 2)]
            await until(lambda: any(client.lost.done() for client in clients))
            await until(lambda: sum(not client.lost.done() for client in clients) == served.server.connection_count)
            assert served.server.connection_count > 0
            assert not clients[0].lost.done()
            clients[0].send(*heartbeats("now"))
            assert await clients[0].correlation_ids(1) == [1]
            for client in clients:
                client.transport.abort()
            await until(lambda: served.server.connection_count == 0)
            again = await served.connect()
            again.send(*heartbeats("now"))
            assert await again.correlation_ids(1) == [1]

    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    run(loop_name, scenario)


@pytest.mark.parametrize(("limit", "first"), [(1024, 768), (20_000, 15_000), (1_048_576, 1_038_576)])
def test_first_descriptor_kept_back_leaves_a_quarter_or_ten_thousand(limit: int, first: int) -> None:
    assert first_descriptor_kept_back(limit) == first
