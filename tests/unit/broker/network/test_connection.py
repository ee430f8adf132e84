"""Connections keep order and limits, on uvloop, on stock asyncio and in virtual time."""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.dispatch.api_handler import ApiHandler, Later, Outcome, handles
from oncelog.broker.dispatch.request import CloseConnection, ConnectionInfo, RequestContext
from oncelog.broker.network.frames import FrameReader, new_scratch
from oncelog.broker.network.request_order import QUIET_SECONDS, ConnectionOrder
from oncelog.broker.network.response_memory import ResponseMemory
from oncelog.broker.network.response_writer import ResponseWriter
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.unit.broker.network.frame_client import LOOPS, frame, run, serve
from tests.unit.broker.virtual_time import in_virtual_time

every_loop = pytest.mark.parametrize("loop_name", LOOPS)


class Script:
    """What each heartbeat does, by its group id; and in which order they began."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.futures: dict[str, asyncio.Future[HeartbeatResponse | None]] = {}
        self.gates: dict[str, asyncio.Event] = {}

    def handler(self) -> ApiHandler[HeartbeatRequest]:
        @handles(ApiKey.HEARTBEAT, versions="0-3")
        def handle_heartbeat(broker: Any, context: RequestContext, request: HeartbeatRequest) -> Outcome:
            return self._outcome(request.group_id)

        return handle_heartbeat

    def _outcome(self, group: str) -> Outcome:
        if group.startswith("gated"):
            self.gates[group] = asyncio.Event()
            return self._gated(group)
        self.begun.append(group)
        match group.split("-")[0]:
            case "later":
                self.futures[group] = asyncio.get_running_loop().create_future()
                return self.futures[group]
            case "silent":
                return None
            case "broken":
                raise ValueError("a bug")
            case "close":
                raise CloseConnection("the handler said so")
        return HeartbeatResponse()

    def _gated(self, group: str) -> Coroutine[Any, Any, HeartbeatResponse | Later]:
        async def wait() -> HeartbeatResponse | Later:
            await self.gates[group].wait()
            self.begun.append(group)
            if not group.endswith("later"):
                return HeartbeatResponse()
            self.futures[group] = asyncio.get_running_loop().create_future()
            return self.futures[group]

        return wait()


def heartbeats(*groups: str, first: int = 1) -> list[tuple[int, HeartbeatRequest, int]]:
    return [(first + index, HeartbeatRequest(group_id=group), 0) for index, group in enumerate(groups)]


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until something holds; the scenario's own limit ends it otherwise."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def settle() -> None:
    """Let happen what can happen."""
    for _ in range(20):
        await asyncio.sleep(0.001)


@every_loop
def test_pipelined_requests_get_responses_in_order(loop_name: str) -> None:
    async def scenario() -> None:
        script = Script()
        async with serve([script.handler()]) as served:
            client = await served.connect()
            client.send(*heartbeats(*(f"now-{i}" for i in range(500))))
            assert await client.correlation_ids(500) == list(range(1, 501))
            assert script.begun == [f"now-{i}" for i in range(500)]

    run(loop_name, scenario)


@every_loop
def test_response_that_is_ready_early_waits_for_earlier_ones(loop_name: str) -> None:
    async def scenario() -> None:
        script = Script()
        async with serve([script.handler()]) as served:
            client = await served.connect()
            client.send(*heartbeats("later-1", "now", "later-2", "now"))
            await until(lambda: len(script.begun) == 4)
            script.futures["later-2"].set_result(HeartbeatResponse())
            await settle()
            assert client.frames == []
            script.futures["later-1"].set_result(HeartbeatResponse())
            assert await client.correlation_ids(4) == [1, 2, 3, 4]

    run(loop_name, scenario)


@every_loop
def test_request_without_response_takes_no_slot(loop_name: str) -> None:
    async def scenario() -> None:
        script = Script()
        async with serve([script.handler()]) as served:
            client = await served.connect()
            client.send(*heartbeats("silent", "now", "later", "silent", "now"))
            await until(lambda: "later" in script.futures)
            script.futures["later"].set_result(None)
            assert await client.correlation_ids(2) == [2, 5]

    run(loop_name, scenario)


@every_loop
def test_five_produces_of_which_the_first_waits_are_appended_in_order(loop_name: str) -> None:
    """B85: a produce that waits for its verification is never overtaken by a later request of its connection."""
    appended: list[int] = []

    async def scenario() -> None:
        verified = asyncio.Event()

        @handles(ApiKey.PRODUCE, versions="3-11", advertised="0-11")
        def handle_produce(broker: Any, context: RequestContext, request: ProduceRequest) -> Outcome:
            if not verified.is_set() and not appended:
                return verify_then_append(request)
            return replicate(request)

        async def verify_then_append(request: ProduceRequest) -> ProduceResponse:
            await verified.wait()
            return append(request)

        def replicate(request: ProduceRequest) -> "asyncio.Future[ProduceResponse]":
            future = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.001, future.set_result, append(request))
            return future

        def append(request: ProduceRequest) -> ProduceResponse:
            index = request.topic_data[0].partition_data[0].index
            appended.append(index)
            partition = PartitionProduceResponse(index=index, base_offset=len(appended) - 1)
            return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])

        async with serve([handle_produce]) as served:
            client = await served.connect()
            client.send(*((i, produce(i), 9) for i in range(5)))
            await until(lambda: len(served.supervisor) == 1)
            await settle()
            assert appended == []
            verified.set()
            assert await client.correlation_ids(5) == [0, 1, 2, 3, 4]
            assert appended == [0, 1, 2, 3, 4]

    run(loop_name, scenario)


def produce(index: int) -> ProduceRequest:
    data = PartitionProduceData(index=index, records=bytes(70))
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])])


@every_loop
def test_coroutine_that_returns_future_lets_later_requests_begin(loop_name: str) -> None:
    async def scenario() -> None:
        script = Script()
        async with serve([script.handler()]) as served:
            client = await served.connect()
            client.send(*heartbeats("gated-later", "now", "now"))
            await until(lambda: "gated-later" in script.gates)
            await settle()
            assert script.begun == []
            script.gates["gated-later"].set()
            await until(lambda: len(script.begun) == 3)
            assert client.frames == []
            script.futures["gated-later"].set_result(HeartbeatResponse())
            assert await client.correlation_ids(3) == [1, 2, 3]

    run(loop_name, scenario)


@every_loop
def test_exception_in_handler_is_a_response_and_connection_continues(
    loop_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        script = Script()
        async with serve([script.handler()]) as served:
            client = await served.connect()
            client.send(*heartbeats("broken", "later", "gated", "now"))
            await until(lambda: "gated" in script.gates)
            script.futures["later"].set_exception(ValueError("another bug"))
            script.gates["gated"].set()
            assert await client.correlation_ids(4) == [1, 2, 3, 4]
            assert [int.from_bytes(frame[4:6], "big", signed=True) for frame in client.frames] == [-1, -1, 0, 0]
            assert served.dispatcher.request_counts() == {("Heartbeat", 0): (4, 2)}

    run(loop_name, scenario)
    assert "a bug" in caplog.text
    assert "another bug" in caplog.text


@every_loop
def test_malformed_request_closes_connection_after_earlier_responses(
    loop_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        script = Script()
        async with serve([script.handler()]) as served:
            client, other = await served.connect(), await served.connect()
            client.send(*heartbeats("later", "now"))
            await until(lambda: "later" in script.futures)
            client.transport.write((12).to_bytes(4, "big") + bytes([0, 12, 0, 0, 0, 0, 0, 9, 0, 99, 0, 0]))
            await until(lambda: "malformed" in caplog.text)
            script.futures["later"].set_result(HeartbeatResponse())
            await client.lost
            assert await client.correlation_ids(2) == [1, 2]
            other.send(*heartbeats("now"))
            assert await other.correlation_ids(1) == [1]

    with caplog.at_level(logging.WARNING):
        run(loop_name, scenario)
    assert caplog.text.count("Closing the connection") == 1


@every_loop
@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_frame_with_bad_size_is_refused_before_it_is_received(loop_name: str, size: int) -> None:
    """B77: nothing is allocated for bytes that have not come."""

    async def scenario() -> None:
        script = Script()
        config = BrokerConfig(socket_request_max_bytes=1000)
        async with serve([script.handler()], config=config) as served:
            client = await served.connect()
            client.transport.write(size.to_bytes(4, "big", signed=True))
            await client.lost

    run(loop_name, scenario)


@every_loop
def test_requests_before_a_bad_size_get_their_responses(loop_name: str) -> None:
    async def scenario() -> None:
        script = Script()
        async with serve([script.handler()]) as served:
            client = await served.connect()
            requests = [frame(*request) for request in heartbeats("now", "gated", "after")]
            client.transport.write(b"".join([*requests, b"\xff" * 4, requests[0]]))
            await until(lambda: script.gates)
            await settle()
            assert not client.lost.done()
            script.gates["gated"].set()
            await client.lost
            assert await client.correlation_ids(3) == [1, 2, 3]
            assert script.begun == ["now", "gated", "after"]

    run(loop_name, scenario)


@every_loop
@pytest.mark.parametrize(("api_key", "version"), [(12, 4), (12, -1), (1000, 0), (-5, 0)])
def test_unknown_api_or_version_closes_the_connection(loop_name: str, api_key: int, version: int) -> None:
    async def scenario() -> None:
        script = Script()
        async with serve([script.handler()]) as served:
            client = await served.connect()
            body = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + bytes(8)
            client.transport.write(len(body).to_bytes(4, "big") + body)
            await client.lost
            assert script.begun == []

    run(loop_name, scenario)


@every_loop
def test_handler_that_raises_close_connection_closes_it(loop_name: str) -> None:
    async def scenario() -> None:
        script = Script()
        async with serve([script.handler()]) as served:
            client = await served.connect()
            client.send(*heartbeats("now", "close", "now"))
            await client.lost
            assert await client.correlation_ids(1) == [1]
            assert script.begun == ["now", "close"]

    run(loop_name, scenario)


@every_loop
def test_requests_beyond_the_limit_stay_unread_until_responses_are_sent(loop_name: str) -> None:
    async def scenario() -> None:
        script = Script()
        config = BrokerConfig(oncelog_connection_max_inflight_requests=10)
        async with serve([script.handler()], config=config) as served:
            client = await served.connect()
            total = 20_000
            request_bytes = 0
            for i in range(total):
                requests = heartbeats(f"later-{i:030}", first=i)
                client.send(*requests)
                request_bytes += 60
            await until(lambda: len(script.begun) >= 10)
            await settle()
            read = len(script.begun)
            assert read < total / 2
            for i in range(total):
                await until(partial(script.futures.__contains__, f"later-{i:030}"))
                script.futures[f"later-{i:030}"].set_result(None)
            assert len(script.begun) == total

    run(loop_name, scenario)


@every_loop
def test_bytes_beyond_the_limit_stay_unread_but_one_request_is_always_read(loop_name: str) -> None:
    async def scenario() -> None:
        script = Script()
        config = BrokerConfig(oncelog_connection_max_inflight_bytes=1)
        async with serve([script.handler()], config=config) as served:
            client = await served.connect()
            for i in range(3):
                client.send(*heartbeats(f"later-{i}-{'x' * 30_000}", first=i))
                client.send(*heartbeats(f"later-{i}b-{'x' * 30_000}", first=i))
                client.send(*heartbeats(f"later-{i}c-{'x' * 30_000}", first=i))
            await until(lambda: script.begun)
            await settle()
            assert len(script.begun) < 9
            while len(script.begun) < 9:
                for future in list(script.futures.values()):
                    if not future.done():
                        future.set_result(None)
                await asyncio.sleep(0.001)

    run(loop_name, scenario)


@every_loop
def test_client_that_does_not_read_responses_has_no_further_request_begun(loop_name: str) -> None:
    async def scenario() -> None:
        begun = 0

        @handles(ApiKey.PRODUCE, versions="3-11")
        def handle_produce(broker: Any, context: RequestContext, request: ProduceRequest) -> Outcome:
            nonlocal begun
            begun += 1
            return ProduceResponse(responses=[TopicProduceResponse(name="x" * 30_000) for _ in range(30)])

        async with serve([handle_produce]) as served:
            client = await served.connect()
            client.transport.pause_reading()
            client.send(*((i, produce(i), 9) for i in range(100)))
            await until(lambda: begun)
            await settle()
            assert begun < 100
            client.transport.resume_reading()
            assert await client.correlation_ids(100) == list(range(100))

    run(loop_name, scenario)


@every_loop
def test_large_frame_between_small_ones_arrives_whole(loop_name: str) -> None:
    async def scenario() -> None:
        sizes: list[int] = []

        @handles(ApiKey.PRODUCE, versions="3-11")
        def handle_produce(broker: Any, context: RequestContext, request: ProduceRequest) -> Outcome:
            records = request.topic_data[0].partition_data[0].records
            assert isinstance(records, memoryview)
            assert not records.readonly
            assert bytes(records) == pattern(len(records))
            sizes.append(len(records))
            return ProduceResponse()

        def pattern(size: int) -> bytes:
            return (bytes(range(251)) * (size // 251 + 1))[:size]

        def large(size: int) -> ProduceRequest:
            data = PartitionProduceData(index=0, records=pattern(size))
            return ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[data])])

        wanted = [1, 100, 65_000, 65_536, 70_000, 3_000_000, 1, 5_500_000, 1_048_576, 2]
        async with serve([handle_produce]) as served:
            client = await served.connect()
            client.send(*((i, large(size), 9) for i, size in enumerate(wanted)))
            assert await client.correlation_ids(len(wanted)) == list(range(len(wanted)))
            assert sizes == wanted

    run(loop_name, scenario)


@every_loop
def test_client_that_sends_byte_by_byte_is_served(loop_name: str) -> None:
    async def scenario() -> None:
        script = Script()
        async with serve([script.handler()]) as served:
            client = await served.connect()
            for byte in b"".join(frame(*request) for request in heartbeats("now", "now", "now")):
                client.transport.write(bytes([byte]))
                await asyncio.sleep(0)
            assert await client.correlation_ids(3) == [1, 2, 3]

    run(loop_name, scenario)


@every_loop
def test_client_that_disconnects_releases_all_it_held(loop_name: str) -> None:
    """B76: what a lost connection held is released on every path."""

    async def scenario() -> None:
        script = Script()
        async with serve([script.handler()]) as served:
            client = await served.connect()
            client.send(*heartbeats("later", "gated", "now"))
            await until(lambda: "gated" in script.gates)
            client.transport.abort()
            await until(lambda: served.server.connection_count == 0)
            assert script.futures["later"].cancelled()
            script.gates["gated"].set()
            await until(lambda: len(served.supervisor) == 0)
            assert script.begun == ["later", "gated"]

    run(loop_name, scenario)


@every_loop
def test_connections_beyond_the_limits_are_closed(loop_name: str) -> None:
    async def scenario() -> None:
        script = Script()
        config = BrokerConfig(max_connections=2)
        async with serve([script.handler()], config=config) as served:
            first, second = await served.connect(), await served.connect()
            await until(lambda: served.server.connection_count == 2)
            third = await served.connect()
            await third.lost
            first.transport.close()
            await until(lambda: served.server.connection_count == 1)
            fourth = await served.connect()
            for client in (second, fourth):
                client.send(*heartbeats("now"))
                assert await client.correlation_ids(1) == [1]

    run(loop_name, scenario)


@every_loop
def test_limit_per_address_has_exceptions_by_address(loop_name: str) -> None:
    async def scenario() -> None:
        script = Script()
        config = BrokerConfig(max_connections_per_ip=100, max_connections_per_ip_overrides="10.0.0.1:7, 127.0.0.1:1")
        async with serve([script.handler()], config=config) as served:
            await served.connect()
            await until(lambda: served.server.connection_count == 1)
            second = await served.connect()
            await second.lost

    run(loop_name, scenario)


def test_future_of_coroutine_on_lost_connection_is_cancelled() -> None:
    async def scenario() -> None:
        script = Script()
        async with serve([script.handler()]) as served:
            client = await served.connect()
            client.send(*heartbeats("gated-later"))
            await until(lambda: script.gates)
            client.transport.abort()
            await until(lambda: served.server.connection_count == 0)
            script.gates["gated-later"].set()
            await until(lambda: script.futures)
            await settle()
            assert script.futures["gated-later"].cancelled()

    run("virtual", scenario)


def test_malformed_request_closes_connection_while_others_wait() -> None:
    async def scenario() -> None:
        script = Script()
        async with serve([script.handler()], config=BrokerConfig(connections_max_idle_ms=2_000)) as served:
            client = await served.connect()
            client.send(*heartbeats("later"))
            client.transport.write(b"\xff" * 4)
            await client.lost
            assert 2.0 <= asyncio.get_running_loop().time() <= 2.5
            assert script.futures["later"].cancelled()

    run("virtual", scenario)


def test_idle_connections_are_closed_and_waiting_ones_are_not() -> None:
    async def scenario() -> None:
        script = Script()
        config = BrokerConfig(connections_max_idle_ms=2_000)
        async with serve([script.handler()], config=config) as served:
            idle, waiting = await served.connect(), await served.connect()
            idle.send(*heartbeats("now"))
            waiting.send(*heartbeats("later"))
            await idle.lost
            assert 2.0 <= asyncio.get_running_loop().time() <= 2.5
            assert not waiting.lost.done()
            script.futures["later"].set_result(HeartbeatResponse())
            assert await waiting.correlation_ids(1) == [1]
            await waiting.lost

    run("virtual", scenario)


@every_loop
def test_stop_sends_no_response_and_closes_every_connection(loop_name: str) -> None:
    """B78: stopping is bounded, whatever clients wait for."""

    async def scenario() -> None:
        script = Script()
        async with serve([script.handler()]) as served:
            client, reader = await served.connect(), await served.connect()
            client.send(*heartbeats("later", "gated", "now"))
            reader.send(*heartbeats("now"))
            await until(lambda: "gated" in script.gates)
            await reader.correlation_ids(1)
            await served.server.stop()
            await client.lost
            await reader.lost
            assert served.server.connection_count == 0
            with pytest.raises(ConnectionRefusedError):
                await served.connect()

    run(loop_name, scenario)


class NotesOrder:
    """Handlers of heartbeats that note the place of each request, and how many had come when its response left."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.received: dict[str, int] = {}
        self.later: asyncio.Future[HeartbeatResponse] | None = None

    def handler(self) -> ApiHandler[HeartbeatRequest]:
        @handles(ApiKey.HEARTBEAT, versions="0-3")
        def handle_heartbeat(broker: Any, context: RequestContext, request: HeartbeatRequest) -> Outcome:
            group, connection = request.group_id, context.connection
            self.numbers[group] = connection.request_number()
            connection.when_responded(partial(self.received.__setitem__, group))
            if group == "later":
                self.later = asyncio.get_running_loop().create_future()
                return self.later
            if group == "coroutine":
                return self.respond_later(connection)
            return HeartbeatResponse()

        return handle_heartbeat

    async def respond_later(self, connection: ConnectionInfo) -> asyncio.Future[HeartbeatResponse]:
        connection.when_responded(partial(self.received.__setitem__, "in coroutine"))
        self.later = asyncio.get_running_loop().create_future()
        return self.later


@every_loop
def test_requests_are_numbered_and_responses_that_arrived_are_noted(loop_name: str) -> None:
    """B107: what was received before a response had arrived cannot have been sent because of it."""

    async def scenario() -> None:
        notes = NotesOrder()
        async with serve([notes.handler()]) as served:
            client = await served.connect()
            client.send(*heartbeats("first", "second"))
            await client.correlation_ids(2)
            client.send(*heartbeats("third", first=3))  # Perhaps too soon for the broker to know that the two arrived.
            await until(lambda: "third" in notes.received)
            client.send(*heartbeats("fourth", first=4))
            await until(lambda: "fourth" in notes.received)
            assert notes.numbers == {"first": 1, "second": 2, "third": 3, "fourth": 4}
            seen = notes.received
            assert (seen["first"], seen["second"]) in ((2, 2), (3, 3))
            assert (seen["third"], seen["fourth"]) in ((3, 4), (4, 4))

    run(loop_name, scenario)


@every_loop
def test_response_behind_one_that_is_awaited_is_not_noted(loop_name: str) -> None:
    async def scenario() -> None:
        notes = NotesOrder()
        async with serve([notes.handler()]) as served:
            client = await served.connect()
            client.send(*heartbeats("later", "behind"))
            await until(lambda: "behind" in notes.numbers)
            client.send(*heartbeats("third", first=3))
            await until(lambda: "third" in notes.numbers)
            await settle()
            assert notes.received == {}
            assert notes.later is not None
            notes.later.set_result(HeartbeatResponse())
            await client.correlation_ids(3)
            await until(lambda: "behind" in notes.received)
            assert notes.received["behind"] == notes.received["later"] == 3

    run(loop_name, scenario)


@every_loop
def test_response_of_a_coroutine_is_noted_when_it_is_known(loop_name: str) -> None:
    async def scenario() -> None:
        notes = NotesOrder()
        async with serve([notes.handler()]) as served:
            client = await served.connect()
            client.send(*heartbeats("coroutine"))
            await until(lambda: notes.later is not None)
            client.send(*heartbeats("second", first=2))
            await until(lambda: "second" in notes.numbers)
            await settle()
            assert notes.received == {}
            assert notes.later is not None
            notes.later.set_result(HeartbeatResponse())
            await client.correlation_ids(2)
            await until(lambda: "second" in notes.received)
            assert notes.received["coroutine"] == notes.received["in coroutine"] == 2

    run(loop_name, scenario)


class SocketTransport(asyncio.Transport):
    """The kernel takes everything at once."""

    def __init__(self, sending: socket.socket) -> None:
        super().__init__()
        self._socket = sending

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._socket.sendall(data)


class OrderOfPair:
    """The order of a connection between two sockets, over which one response is sent."""

    def __init__(self, ours: socket.socket) -> None:
        self.reader = FrameReader(100, new_scratch())
        info = ConnectionInfo(client_host="client", client_port=1, listener_name="PLAINTEXT")
        info.descriptor = ours.fileno()
        self.noted: list[int] = []
        writer = ResponseWriter(SocketTransport(ours), info, ResponseMemory(1 << 20))
        self.order = ConnectionOrder(asyncio.get_running_loop(), writer, self.reader, deque(), ours.fileno())
        self.order.received = 1
        self.order.when_responded(self.noted.append)
        self.order.place_in_hand(())
        writer.send([b"response"], len(b"response"))

    def read(self, size: int) -> None:
        """Read bytes that end a request, as a connection does."""
        self.order.note_arriving()
        self.order.received_at = asyncio.get_running_loop().time()
        self.order.received += 1
        self.order.received_bytes += size
        self.order.note_read()


async def test_requests_in_the_socket_after_patience_were_sent_before() -> None:
    """B107: copies of a late request that have arrived, and that the broker has not read yet."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"2 requests")
        pair = OrderOfPair(ours)
        theirs.recv(100)
        await until(lambda: pair.order.settling or pair.noted)
        for part in (4, 6):
            assert pair.noted == []
            pair.read(part)
        assert pair.noted == [3]


@in_virtual_time
async def test_response_that_has_not_arrived_is_not_noted() -> None:
    """B107: while it is under way, so may be copies of the request."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pair = OrderOfPair(ours)
        await asyncio.sleep(2 * QUIET_SECONDS)
        for _ in range(3):
            pair.read(10)
            assert pair.noted == []
        theirs.recv(100)
        pair.read(10)
        assert pair.noted == [1]


@in_virtual_time
async def test_response_after_another_one_has_its_own_pause() -> None:
    """B107: copies that take longer to serve than the pause after the first response."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pair = OrderOfPair(ours)
        theirs.recv(100)
        loop = asyncio.get_running_loop()
        await asyncio.sleep(QUIET_SECONDS / 2)
        second: list[float] = []
        quiet_from = loop.time() + QUIET_SECONDS
        pair.order.when_responded(lambda received: second.append(loop.time()))
        pair.order.place_in_hand(())
        await until(lambda: second)
        assert pair.noted == [1]
        assert second[0] >= quiet_from


@in_virtual_time
async def test_connection_that_is_not_quiet_is_noted_nevertheless() -> None:
    """B107: copies of a late request with megabytes between them, and a live client that never rests."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pair = OrderOfPair(ours)
        theirs.recv(100)
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not pair.noted:
            assert loop.time() < began + 5
            pair.read(10)
            await asyncio.sleep(QUIET_SECONDS / 2)
        assert loop.time() >= began + 0.05
        assert pair.noted[0] > 0.05 / QUIET_SECONDS


async def test_connection_with_half_a_request_is_not_quiet() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pair = OrderOfPair(ours)
        theirs.recv(100)
        pair.reader.get_buffer()[:8] = (50).to_bytes(4, "big") + b"part"
        pair.reader.buffer_updated(8)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await until(lambda: pair.noted)
        assert pair.noted == [2]
        assert loop.time() >= began + 0.05
