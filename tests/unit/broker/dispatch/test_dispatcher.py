"""Requests from frame to handler, and from a handler's outcome to the response; ``test_connection`` has the rest."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.broker.dispatch.api_handler import ApiHandler, Outcome, Shaped, handles
from oncelog.broker.dispatch.dispatcher import Dispatcher, PendingResponse
from oncelog.broker.dispatch.request import CloseConnection, ConnectionInfo, RequestContext
from oncelog.broker.dispatch.sliced_work import SlicedWork
from oncelog.broker.handlers import all_handlers
from oncelog.broker.handlers.api_versions import handle_api_versions
from oncelog.broker.handlers.produce import handle_produce
from oncelog.coordinator.promise import Promise, Undecided
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request, parse_response
from oncelog.protocol.messages.api_versions import ApiVersionsResponse
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.list_offsets import ListOffsetsRequest
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse, StopReplicaTopicState
from oncelog.protocol.schema import Message


def frame(request: Message, version: int) -> memoryview:
    return memoryview(bytearray(b"".join(encode_request(9, "tester", request, version))))[4:]


def dispatch(handler: ApiHandler[Any], request: Message, version: int) -> list[Any] | PendingResponse:
    connection = ConnectionInfo(client_host="127.0.0.1", listener_name="PLAINTEXT")
    return Dispatcher(None, [handler]).dispatch(frame(request, version), connection)  # type: ignore[arg-type]


def response_of(buffers: list[Any] | PendingResponse, response: type[Message], version: int) -> Any:
    assert isinstance(buffers, list)
    whole = b"".join(buffers)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    correlation_id, message = parse_response(response, version, memoryview(whole)[4:])
    assert correlation_id == 9
    return message


def heartbeat(outcome: Any) -> ApiHandler[HeartbeatRequest]:
    @handles(ApiKey.HEARTBEAT, versions="0-3")
    def handle_heartbeat(broker: Any, context: RequestContext, request: HeartbeatRequest) -> Outcome:
        assert context.client_id == "tester"
        if isinstance(outcome, BaseException):
            raise outcome
        result: Outcome = outcome
        return result

    return handle_heartbeat


@pytest.mark.parametrize("version", range(4))
def test_handler_that_returns_message_sends_it_as_response(version: int) -> None:
    buffers = dispatch(heartbeat(HeartbeatResponse(error_code=27)), HeartbeatRequest(group_id="g"), version)
    assert response_of(buffers, HeartbeatResponse, version).error_code == 27


def test_handler_that_returns_none_sends_no_response() -> None:
    assert dispatch(heartbeat(None), HeartbeatRequest(group_id="g"), 0) == []


async def test_handler_that_returns_completed_future_sends_its_result() -> None:
    future: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
    future.set_result(HeartbeatResponse())
    buffers = dispatch(heartbeat(future), HeartbeatRequest(group_id="g"), 0)
    assert response_of(buffers, HeartbeatResponse, 0).error_code == 0


async def test_cancelled_future_closes_the_connection() -> None:
    future: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
    pending = dispatch(heartbeat(future), HeartbeatRequest(group_id="g"), 0)
    assert isinstance(pending, PendingResponse)
    future.cancel()
    with pytest.raises(CloseConnection, match="Heartbeat was cancelled"):
        pending.finish(future)


def respond(throttle_time_ms: int) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=100 // throttle_time_ms)


def test_shaped_result_that_is_there_is_the_response() -> None:
    buffers = dispatch(heartbeat(Shaped(4, respond)), HeartbeatRequest(group_id="g"), 0)
    assert response_of(buffers, HeartbeatResponse, 0).error_code == 25


async def test_shaped_future_completes_the_response() -> None:
    promise: Promise[int] = Promise()
    pending = dispatch(heartbeat(Shaped(promise.result(), respond)), HeartbeatRequest(group_id="g"), 0)
    assert isinstance(pending, PendingResponse)
    assert isinstance(pending.awaitable, asyncio.Future)
    promise.complete(4)
    assert response_of(pending.finish(pending.awaitable), HeartbeatResponse, 0).error_code == 25


async def test_undecided_request_is_decided_in_a_coroutine() -> None:
    async def decide() -> int:
        return 4

    broker: Any = SimpleNamespace(sliced_work=SlicedWork())
    connection = ConnectionInfo(client_host="127.0.0.1", listener_name="PLAINTEXT")
    handler = heartbeat(Shaped(Undecided(decide), respond))
    pending = Dispatcher(broker, [handler]).dispatch(frame(HeartbeatRequest(group_id="g"), 0), connection)
    assert isinstance(pending, PendingResponse)
    assert asyncio.iscoroutine(pending.awaitable)
    done = asyncio.get_running_loop().create_task(pending.awaitable)
    await done
    assert response_of(pending.finish(done), HeartbeatResponse, 0).error_code == 25


async def test_coroutine_that_leaves_a_shaped_future_is_done_before_the_response() -> None:
    promise: Promise[int] = Promise()

    async def begin() -> Shaped[int]:
        return Shaped(promise.result(), respond)

    pending = dispatch(heartbeat(begin()), HeartbeatRequest(group_id="g"), 0)
    assert isinstance(pending, PendingResponse)
    assert asyncio.iscoroutine(pending.awaitable)
    left = await pending.awaitable
    assert isinstance(left, asyncio.Future)
    promise.complete(4)
    assert response_of(pending.finish(left), HeartbeatResponse, 0).error_code == 25


def test_shape_that_raises_becomes_unknown_server_error() -> None:
    buffers = dispatch(heartbeat(Shaped(0, respond)), HeartbeatRequest(group_id="g"), 0)
    assert response_of(buffers, HeartbeatResponse, 0).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_shape_of_future_that_raises_becomes_unknown_server_error() -> None:
    promise: Promise[int] = Promise()
    pending = dispatch(heartbeat(Shaped(promise.result(), respond)), HeartbeatRequest(group_id="g"), 0)
    assert isinstance(pending, PendingResponse)
    assert isinstance(pending.awaitable, asyncio.Future)
    promise.complete(0)
    buffers = pending.finish(pending.awaitable)
    assert response_of(buffers, HeartbeatResponse, 0).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_exception_in_handler_becomes_unknown_server_error() -> None:
    buffers = dispatch(heartbeat(ValueError("bug")), HeartbeatRequest(group_id="g"), 0)
    assert response_of(buffers, HeartbeatResponse, 0).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_response_that_cannot_be_encoded_becomes_unknown_server_error() -> None:
    wrong = HeartbeatResponse(error_code=2**40)
    buffers = dispatch(heartbeat(wrong), HeartbeatRequest(group_id="g"), 0)
    assert response_of(buffers, HeartbeatResponse, 0).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_exception_in_api_without_error_field_closes_the_connection() -> None:
    @handles(ApiKey.LIST_OFFSETS, versions="1-3")
    def handle_list_offsets(broker: Any, context: RequestContext, request: ListOffsetsRequest) -> Outcome:
        raise ValueError("bug")

    with pytest.raises(CloseConnection, match="ListOffsetsResponse v1 cannot carry UNKNOWN_SERVER_ERROR"):
        dispatch(handle_list_offsets, ListOffsetsRequest(), 1)


async def test_large_request_of_a_controller_is_not_decoded_for_a_client_that_may_not_send_it() -> None:
    handled: list[Message] = []

    @handles(ApiKey.STOP_REPLICA, versions="0-4")
    def handle_stop_replica(broker: Any, context: RequestContext, request: StopReplicaRequest) -> Outcome:
        handled.append(request)
        return StopReplicaResponse()

    connection = ConnectionInfo(client_host="127.0.0.1", listener_name="PLAINTEXT")
    dispatcher = Dispatcher(SimpleNamespace(sliced_work=SlicedWork()), [handle_stop_replica], max_elements=100)  # type: ignore[arg-type]
    large = StopReplicaRequest(topic_states=[StopReplicaTopicState(topic_name="t" * 20)] * 20_000)
    for may_act in (True, False):
        dispatcher.may_act = lambda context, may_act=may_act: may_act  # type: ignore[misc]
        pending = dispatcher.dispatch(frame(large, 4), connection)
        assert isinstance(pending, PendingResponse)
        if may_act:
            await pending.awaitable
        else:
            with pytest.raises(CloseConnection, match="more elements than"):
                await pending.awaitable
    assert len(handled) == 1


@pytest.mark.parametrize("length", range(12))
def test_truncated_frame_closes_the_connection(length: int) -> None:
    connection = ConnectionInfo(client_host="127.0.0.1", listener_name="PLAINTEXT")
    dispatcher = Dispatcher(None, [heartbeat(HeartbeatResponse())])  # type: ignore[arg-type]
    with pytest.raises(CloseConnection):
        dispatcher.dispatch(frame(HeartbeatRequest(group_id="g"), 0)[:length], connection)


def test_first_bytes_of_a_zookeeper_client_are_named_as_such() -> None:
    """It begins with the version of its protocol, an int32 of 0: key and version of Produce v0."""
    connection = ConnectionInfo(client_host="127.0.0.1", listener_name="PLAINTEXT")
    dispatcher = Dispatcher(None, [handle_produce])  # type: ignore[arg-type]
    with pytest.raises(CloseConnection, match=r"a produce without topics .a ZooKeeper client begins with"):
        dispatcher.dispatch(memoryview(bytes(44)), connection)


@pytest.mark.parametrize("version", [5, 6, 100, 32_767])
def test_unknown_version_of_api_versions_gets_response_of_version_0(version: int) -> None:
    """KIP-511: with UNSUPPORTED_VERSION, and the range of ApiVersions alone."""
    body = bytes([2, ord("x"), 2, ord("1"), 0])
    header = b"\x00\x12" + version.to_bytes(2, "big") + (9).to_bytes(4, "big") + b"\x00\x01c" + b"\x00"
    connection = ConnectionInfo(client_host="127.0.0.1", listener_name="PLAINTEXT")
    dispatcher = Dispatcher(None, [handle_api_versions])  # type: ignore[arg-type]
    buffers = dispatcher.dispatch(memoryview(header + body), connection)
    response = response_of(buffers, ApiVersionsResponse, 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(18, 0, 4)]
    assert dispatcher.request_counts() == {}


def test_handlers_serve_only_versions_of_their_messages() -> None:
    for handler in all_handlers():
        known = handler.request_type.versions
        assert known.first <= handler.versions.first <= handler.versions.last <= known.last, handler


def test_handlers_advertise_the_versions_they_serve() -> None:
    assert not {handler.name for handler in all_handlers() if handler.advertised != handler.versions}


def test_handlers_have_distinct_api_keys() -> None:
    keys = [handler.api_key for handler in all_handlers()]
    assert len(keys) == len(set(keys))


def test_handler_with_request_of_another_api_is_rejected() -> None:
    with pytest.raises(AssertionError, match="is not the request of HEARTBEAT"):

        @handles(ApiKey.HEARTBEAT, versions="0")
        def handle_heartbeat(broker: Any, context: RequestContext, request: ProduceRequest) -> Outcome:
            return None
