"""What passes by itself: however long it lasts, polls return nothing and raise nothing, and then the records come."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from oncelog.clients.connection import Address
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from oncelog.protocol.messages.offset_commit import OffsetCommitRequest
from oncelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from oncelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from oncelog.protocol.schema import Message
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.consumer.scripted_group import GroupBroker, committed, subscribed
from tests.unit.clients.consumer.scripted_log import refused, respond
from tests.unit.clients.scripted_broker import Reaction, Script, ScriptedResponse, metadata

_OUTAGE_SECONDS = 100

_COORDINATOR_ERRORS = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
_LEADER_ERRORS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


def _list_offsets(error: ErrorCode) -> ListOffsetsResponse:
    failed = [ListOffsetsPartitionResponse(partition_index=index, error_code=error) for index in (0, 1)]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=failed)])


def _fetch(request: Message, error: ErrorCode) -> FetchResponse:
    assert isinstance(request, FetchRequest)
    return respond(request, [refused(error)])


def _metadata(request: Message, error: ErrorCode, addresses: Mapping[int, Address]) -> MetadataResponse:
    assert isinstance(request, MetadataRequest)
    response = metadata(addresses, {})
    response.topics = [MetadataResponseTopic(name="orders", error_code=error)] if request.topics else []
    return response


Refuse = Callable[[Message, ErrorCode], ScriptedResponse]
_REFUSALS: dict[type[Message], tuple[Refuse, tuple[ErrorCode, ...]]] = {
    FindCoordinatorRequest: (
        lambda request, error: FindCoordinatorResponse(coordinators=[Coordinator(key="group", error_code=error)]),
        _COORDINATOR_ERRORS,
    ),
    JoinGroupRequest: (lambda request, error: JoinGroupResponse(error_code=error), _COORDINATOR_ERRORS),
    SyncGroupRequest: (lambda request, error: SyncGroupResponse(error_code=error), _COORDINATOR_ERRORS),
    HeartbeatRequest: (lambda request, error: HeartbeatResponse(error_code=error), _COORDINATOR_ERRORS),
    OffsetCommitRequest: (committed, _COORDINATOR_ERRORS),
    OffsetFetchRequest: (
        lambda request, error: OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id="group", error_code=error)]
        ),
        (*_COORDINATOR_ERRORS, ErrorCode.UNSTABLE_OFFSET_COMMIT),
    ),
    ListOffsetsRequest: (lambda request, error: _list_offsets(error), _LEADER_ERRORS),
    FetchRequest: (_fetch, _LEADER_ERRORS),
}
_SILENT = (FindCoordinatorRequest, ListOffsetsRequest, FetchRequest, MetadataRequest)
"""Requests whose silence keeps the scripted broker's answers in order: no other request comes behind them."""
_CASES = [
    *((cls, error) for cls, (_, errors) in _REFUSALS.items() for error in errors),
    *((MetadataRequest, error) for error in _LEADER_ERRORS),
    *((cls, Reaction.CLOSE) for cls in (*_REFUSALS, MetadataRequest)),
    *((cls, Reaction.SILENCE) for cls in _SILENT),
]


def _outage(broker: GroupBroker, cls: type[Message], error: ErrorCode | Reaction) -> Script | ScriptedResponse:
    if isinstance(error, Reaction):
        return error
    if cls is MetadataRequest:
        return lambda request: _metadata(request, error, {1: broker.address})
    return lambda request: _REFUSALS[cls][0](request, error)


@pytest.mark.parametrize("joined", [False, True], ids=["joining", "joined"])
@pytest.mark.parametrize(("cls", "error"), _CASES)
def test_poll_raises_nothing_that_passes_by_itself(
    cls: type[Message], error: ErrorCode | Reaction, joined: bool
) -> None:
    @in_virtual_time
    async def play() -> None:
        broker = GroupBroker(batches=1)
        settings = {"enable_auto_commit": True, "max_poll_interval_ms": 20_000, "session_timeout_ms": 10_000}
        async with subscribed(broker, **settings) as consumer:
            if joined:
                assert len(await consumer.poll(5)) == 2
            usual, broker.script[cls] = broker.script[cls], _outage(broker, cls, error)
            if cls is FindCoordinatorRequest:  # Otherwise nothing makes the consumer look for it again.
                broker.responses[HeartbeatRequest] = [HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)]
            for connection in list(broker.connections):
                connection.transport.close()
            until = asyncio.get_running_loop().time() + _OUTAGE_SECONDS
            found = []
            while asyncio.get_running_loop().time() < until:
                found += await consumer.poll(1.0)
            broker.script[cls] = usual
            broker.refusals = [FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)]
            broker.batches[0] = 2
            for _ in range(40):
                found += await consumer.poll(1.0)
            assert [record.offset for record in found] == ([2, 3] if joined else [0, 1, 2, 3])

    play()
