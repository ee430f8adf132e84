"""Whatever strings a request has, its response can be encoded, and so can the responses to other members of a group."""

import asyncio
import logging
from typing import Any

import pytest

from oncelog.broker.dispatch.api_handler import ApiHandler
from oncelog.broker.dispatch.dispatcher import Dispatcher, PendingResponse
from oncelog.broker.dispatch.request import CloseConnection, ConnectionInfo
from oncelog.broker.parts import Broker
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request, parse_response
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from oncelog.protocol.primitives import MAX_STRING_BYTES
from oncelog.protocol.schema import Field, Kind, Message, layout
from tests.unit.broker.handlers.administration import running_broker
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.protocol.declared import full

LONGEST = "x" * MAX_STRING_BYTES
CLIENT = ConnectionInfo(client_host="127.0.0.1", listener_name="PLAINTEXT")
ORDERS_OF_THE_CONTROLLER = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
"""Only the controller sends them, and names what exists."""


def with_longest_strings(message: Message, version: int) -> Message:
    shape = layout(type(message), version)
    for field in (*shape.regular, *shape.tagged):
        setattr(message, field.name, _longest(field, getattr(message, field.name), version))
    return message


def _longest(field: Field, value: Any, version: int) -> Any:
    if field.kind is Kind.STRING:
        return LONGEST
    if field.kind is Kind.ARRAY and value:
        assert field.element is not None
        return [_longest(field.element, element, version) for element in value[:1]]
    if isinstance(value, Message):
        return with_longest_strings(value, version)
    return value


async def outcome(dispatcher: Dispatcher, request: Message, version: int, client_id: str) -> list[Any] | None:
    """The buffers of the response; None if the connection ends or the response does not come."""
    frame = b"".join(encode_request(1, client_id, request, version))[4:]
    try:
        response = dispatcher.dispatch(memoryview(bytearray(frame)), CLIENT)
        if not isinstance(response, PendingResponse):
            return response
        awaited: asyncio.Future[Any]
        if isinstance(response.awaitable, asyncio.Future):
            awaited = response.awaitable
        else:
            awaited = asyncio.get_running_loop().create_task(response.awaitable)
        await asyncio.wait([awaited], timeout=60)
        while awaited.done() and not awaited.exception() and isinstance(awaited.result(), asyncio.Future):
            awaited = awaited.result()
            await asyncio.wait([awaited], timeout=60)
        if not awaited.done():
            awaited.cancel()
            return None
        return response.finish(awaited)
    except CloseConnection:
        return None


def served(broker: Broker) -> list[tuple[ApiHandler[Any], int]]:
    return [
        (handler, version)
        for handler in broker.handlers
        if handler.api_key not in ORDERS_OF_THE_CONTROLLER
        for version in sorted({handler.versions.first, handler.versions.last})
    ]


@in_virtual_time
async def test_requests_of_longest_strings_have_responses_that_can_be_encoded() -> None:
    async with running_broker(offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1") as broker:
        dispatcher = Dispatcher(broker, broker.handlers)
        for handler, version in served(broker):
            request = with_longest_strings(full(handler.request_type, version), version)
            await outcome(dispatcher, request, version, LONGEST)
        failures = {api: failed for api, (_, failed) in dispatcher.request_counts().items() if failed}
        assert failures == {}


def join(instance: str | None, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=1_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


@pytest.mark.parametrize(
    ("instance", "client_id", "error"),
    [
        (LONGEST, "client", ErrorCode.INVALID_REQUEST),
        ("x" * 250, "client", ErrorCode.INVALID_REQUEST),
        ("x" * 249, "client", ErrorCode.NONE),
        (None, LONGEST, ErrorCode.NONE),
        (None, "\N{FULLWIDTH LATIN SMALL LETTER X}" * 10_920, ErrorCode.NONE),
    ],
    ids=["longest instance id", "long instance id", "instance id", "longest client id", "longest client id in UTF-8"],
)
def test_member_with_long_names_leaves_its_group_whole(
    instance: str | None, client_id: str, error: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def scenario() -> None:
        async with running_broker(offsets_topic_num_partitions="1", group_initial_rebalance_delay_ms="0") as broker:
            dispatcher = Dispatcher(broker, broker.handlers)

            async def joined(request: JoinGroupRequest, name: str) -> JoinGroupResponse:
                while True:
                    frame = await outcome(dispatcher, request, 5, name)
                    assert frame is not None
                    _, response = parse_response(JoinGroupResponse, 5, memoryview(b"".join(frame)[4:]))
                    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                        request.member_id = response.member_id
                    elif response.error_code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                        return response
                    await asyncio.sleep(0.1)

            await broker.auto_topics.create(["__consumer_offsets"])
            assert (await joined(join(instance), client_id)).error_code == error
            honest = await joined(join(None), "honest")
            assert honest.error_code == ErrorCode.NONE
            assert dispatcher.request_counts()["JoinGroup", 5][1] == 0

    with caplog.at_level(logging.ERROR):
        scenario()
    assert not caplog.records
