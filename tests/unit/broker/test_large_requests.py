"""A large request is decoded in slices, between which the loop runs, and then handled as any other."""

import asyncio
from typing import Any

import pytest

from oncelog.broker.dispatch.dispatcher import Dispatcher, PendingResponse
from oncelog.broker.dispatch.request import CloseConnection, ConnectionInfo
from oncelog.broker.handlers import all_handlers
from oncelog.broker.parts import Broker
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request, parse_response
from oncelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.protocol.messages.heartbeat import HeartbeatRequest
from oncelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from oncelog.protocol.schema import Message
from tests.unit.broker.handlers.administration import running_broker
from tests.unit.broker.turns import longest_turn

VERSION = 4
TOPICS = 12_000


def frame(request: Message, version: int) -> memoryview:
    return memoryview(bytearray(b"".join(encode_request(9, "tester", request, version))))[4:]


def large_request() -> OffsetForLeaderEpochRequest:
    topics = [
        OffsetForLeaderTopic(topic=f"topic-{number}", partitions=[OffsetForLeaderPartition(partition=number)])
        for number in range(TOPICS)
    ]
    return OffsetForLeaderEpochRequest(topics=topics)


def connection() -> ConnectionInfo:
    return ConnectionInfo(client_host="127.0.0.1", listener_name="PLAINTEXT")


async def finished(broker: Broker, begun: Any) -> bytes:
    """What a connection does with a request that is not answered at once."""
    assert isinstance(begun, PendingResponse)
    assert not isinstance(begun.awaitable, asyncio.Future)
    done: asyncio.Future[Any] = broker.supervisor.spawn(begun.awaitable, begun.name, on_done=lambda task: None)
    await asyncio.wait([done])
    if done.exception() is None and isinstance(done.result(), asyncio.Future):
        done = done.result()
        await asyncio.wait([done])
    return b"".join(begun.finish(done))


async def test_large_request_is_decoded_over_several_turns_and_gets_its_response() -> None:
    async with running_broker() as broker:
        dispatcher, received = Dispatcher(broker, all_handlers()), frame(large_request(), VERSION)
        assert len(received) > 256 * 1024
        await finished(
            broker, dispatcher.dispatch(received, connection())
        )  # What is compiled on first use is compiled.

        async def responded() -> bytes:
            return await finished(broker, dispatcher.dispatch(received, connection()))

        encoded, lines = await longest_turn(responded)
        _, response = parse_response(OffsetForLeaderEpochResponse, VERSION, memoryview(encoded)[4:])
        assert [topic.topic for topic in response.topics] == [f"topic-{number}" for number in range(TOPICS)]
        assert lines < 60_000  # To decode it at once takes 200,000.
        assert dispatcher.request_counts()["OffsetForLeaderEpoch", VERSION] == (2, 0)


async def test_large_request_that_is_malformed_closes_its_connection() -> None:
    async with running_broker() as broker:
        dispatcher, received = Dispatcher(broker, all_handlers()), frame(large_request(), VERSION)
        with pytest.raises(CloseConnection, match="a malformed request: OffsetForLeader"):
            await finished(broker, dispatcher.dispatch(received[:-5], connection()))
        few = Dispatcher(broker, all_handlers(), max_elements=TOPICS // 10)
        with pytest.raises(CloseConnection, match="more elements than a request of this kind may have"):
            await finished(broker, few.dispatch(received, connection()))


async def test_large_request_whose_handler_fails_gets_its_error_response() -> None:
    async with running_broker() as broker:
        names = [f"a-group-with-a-name-of-some-length-{number}" for number in range(9_000)]
        received = frame(DeleteGroupsRequest(groups_names=names), 2)
        broker.authorizer = None  # type: ignore[assignment]
        encoded = await finished(broker, Dispatcher(broker, all_handlers()).dispatch(received, connection()))
        _, response = parse_response(DeleteGroupsResponse, 2, memoryview(encoded)[4:])
        errors = {result.group_id: result.error_code for result in response.results}
        assert errors == dict.fromkeys(names, ErrorCode.UNKNOWN_SERVER_ERROR)


async def test_small_request_is_decoded_at_once() -> None:
    async with running_broker() as broker:
        begun = Dispatcher(broker, all_handlers()).dispatch(frame(HeartbeatRequest(group_id="g"), 3), connection())
        assert isinstance(begun, list)
