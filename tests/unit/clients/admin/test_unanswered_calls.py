"""What a call of an administrator says where a broker does not respond to one of its requests. In virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from random import Random
from typing import Any, Final
from uuid import UUID

import pytest

from oncelog.clients.admin.admin import Admin
from oncelog.clients.admin.configs import ConfigChange, Operation, Resource, ResourceType
from oncelog.clients.admin.features import FeatureUpdate
from oncelog.clients.admin.groups import MemberToRemove
from oncelog.clients.admin.topics import NewTopic
from oncelog.clients.admin.transaction_abort import WhichTransaction
from oncelog.clients.admin.txn_markers import AbortMarker
from oncelog.clients.errors import (
    BrokerRefused,
    ClientError,
    ConnectionLost,
    OperationTimedOut,
    Refusal,
    RequestTimedOut,
)
from oncelog.clients.partition_results import PartitionResults
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_configs import AlterConfigsRequest
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest
from oncelog.protocol.messages.create_topics import CreateTopicsRequest
from oncelog.protocol.messages.delete_groups import DeleteGroupsRequest
from oncelog.protocol.messages.delete_records import DeleteRecordsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog.protocol.messages.describe_cluster import DescribeClusterRequest
from oncelog.protocol.messages.describe_configs import DescribeConfigsRequest
from oncelog.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from oncelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from oncelog.protocol.messages.describe_producers import DescribeProducersRequest
from oncelog.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.protocol.messages.fetch import FetchRequest
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.leave_group import LeaveGroupRequest
from oncelog.protocol.messages.list_groups import ListGroupsRequest
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from oncelog.protocol.messages.list_transactions import ListTransactionsRequest
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.messages.offset_commit import OffsetCommitRequest
from oncelog.protocol.messages.offset_delete import OffsetDeleteRequest
from oncelog.protocol.messages.offset_fetch import OffsetFetchRequest
from oncelog.protocol.messages.update_features import UpdateFeaturesRequest
from oncelog.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from oncelog.protocol.schema import Message
from tests.simulation.virtual_loop import VirtualLoop
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.admin.coordinator_scripts import NOW_MS, ORDERS, Scene, producer, transaction
from tests.unit.clients.scripted_broker import (
    Reaction,
    Script,
    ScriptedBroker,
    ScriptedResponse,
    metadata,
    requested_only,
)

_SECONDS: Final = 2.0
_TOPIC: Final = Resource(type=ResourceType.TOPIC, name="orders")
_CHANGE: Final = ConfigChange(name="retention.ms", operation=Operation.SET, value="1")
_MEMBER: Final = MemberToRemove(member_id="m")
_WHICH: Final = WhichTransaction(start_offset=10)
_MARKER: Final = AbortMarker(topic_partition=ORDERS, producer_id=7, producer_epoch=3, coordinator_epoch=2)
_UPDATES: Final = {"transaction.version": FeatureUpdate(level=2)}

Call = Callable[[Admin], Awaitable[Any]]

CALLS: Final[Mapping[str, tuple[Call, list[type[Message]]]]] = {
    "describe_cluster": (lambda admin: admin.describe_cluster(), [DescribeClusterRequest]),
    "describe_log_dirs": (lambda admin: admin.describe_log_dirs(), [DescribeLogDirsRequest, MetadataRequest]),
    "update_features": (lambda admin: admin.update_features(_UPDATES), [UpdateFeaturesRequest]),
    "list_topics": (lambda admin: admin.list_topics(), [MetadataRequest]),
    "describe_topics": (lambda admin: admin.describe_topics(["orders"]), [MetadataRequest]),
    "describe_topic_pages": (lambda admin: admin.describe_topic_pages(["orders"]), [DescribeTopicPartitionsRequest]),
    "create_topics": (
        lambda admin: admin.create_topics([NewTopic(name="new", partitions=1)]),
        [CreateTopicsRequest, MetadataRequest],
    ),
    "delete_topics": (lambda admin: admin.delete_topics(["orders"]), [DeleteTopicsRequest]),
    "delete_topics_by_id": (lambda admin: admin.delete_topics_by_id([UUID(int=9)]), [DeleteTopicsRequest]),
    "create_partitions": (lambda admin: admin.create_partitions({"orders": 3}), [CreatePartitionsRequest]),
    "delete_records": (lambda admin: admin.delete_records({ORDERS: 0}), [DeleteRecordsRequest, MetadataRequest]),
    "list_offsets": (lambda admin: admin.list_offsets({ORDERS: -1}), [ListOffsetsRequest]),
    "describe_configs": (lambda admin: admin.describe_configs({_TOPIC: None}), [DescribeConfigsRequest]),
    "alter_configs": (lambda admin: admin.alter_configs({_TOPIC: [_CHANGE]}), [IncrementalAlterConfigsRequest]),
    "replace_configs": (lambda admin: admin.replace_configs({_TOPIC: {}}), [AlterConfigsRequest]),
    "list_groups": (lambda admin: admin.list_groups(), [ListGroupsRequest]),
    "describe_groups": (lambda admin: admin.describe_groups(["g"]), [DescribeGroupsRequest, FindCoordinatorRequest]),
    "delete_groups": (lambda admin: admin.delete_groups(["g"]), [DeleteGroupsRequest]),
    "remove_members": (lambda admin: admin.remove_members("g", [_MEMBER]), [LeaveGroupRequest]),
    "remove_all_members": (lambda admin: admin.remove_all_members("g"), [DescribeGroupsRequest, LeaveGroupRequest]),
    "committed_offsets": (lambda admin: admin.committed_offsets("g"), [OffsetFetchRequest, FindCoordinatorRequest]),
    "committed_offsets_of_groups": (
        lambda admin: admin.committed_offsets_of_groups({"g": None}),
        [OffsetFetchRequest],
    ),
    "alter_group_offsets": (lambda admin: admin.alter_group_offsets("g", {ORDERS: 1}), [OffsetCommitRequest]),
    "delete_group_offsets": (lambda admin: admin.delete_group_offsets("g", [ORDERS]), [OffsetDeleteRequest]),
    "describe_producers": (lambda admin: admin.describe_producers([ORDERS]), [DescribeProducersRequest]),
    "describe_producers of a broker": (
        lambda admin: admin.describe_producers([ORDERS], broker_id=1),
        [DescribeProducersRequest],
    ),
    "list_transactions": (lambda admin: admin.list_transactions(), [ListTransactionsRequest]),
    "describe_transactions": (lambda admin: admin.describe_transactions(["billing"]), [DescribeTransactionsRequest]),
    "fence_producers": (
        lambda admin: admin.fence_producers(["billing"]),
        [DescribeTransactionsRequest, InitProducerIdRequest],
    ),
    "force_terminate_transaction": (
        lambda admin: admin.force_terminate_transaction("billing"),
        [FindCoordinatorRequest, DescribeTransactionsRequest, InitProducerIdRequest],
    ),
    "find_hanging_transactions": (
        lambda admin: admin.find_hanging_transactions([ORDERS], now_ms=NOW_MS),
        [DescribeProducersRequest, ListTransactionsRequest, DescribeTransactionsRequest],
    ),
    "prepare_abort": (
        lambda admin: admin.prepare_abort(ORDERS, _WHICH),
        [MetadataRequest, DescribeProducersRequest, ListTransactionsRequest, DescribeTransactionsRequest],
    ),
    "abort_transaction": (lambda admin: admin.abort_transaction(_MARKER), [WriteTxnMarkersRequest]),
    "transaction_history": (
        lambda admin: admin.transaction_history("billing"),
        [MetadataRequest, ListOffsetsRequest, FetchRequest],
    ),
}
_CASES: Final = [(name, unanswered) for name, (_, requests) in CALLS.items() for unanswered in requests]


def broker_without(unanswered: type[Message], reaction: Reaction, late_seconds: float = 0.0) -> ScriptedBroker:
    """A broker that tells what the calls ask first, and nothing to requests of this class."""
    broker = Scene(open_transactions=[producer()], says=transaction(ORDERS)).broker
    classes = {request for _, requests in CALLS.values() for request in requests}
    broker.script |= dict.fromkeys(classes - broker.script.keys(), reaction)
    leaders = {"orders": [1], "__transaction_state": [1], "__consumer_offsets": [1]}
    broker.script |= {
        MetadataRequest: lambda request: requested_only(metadata({1: broker.address}, leaders))(request),
        ListOffsetsRequest: _end,
        DescribeGroupsRequest: _group,
    }
    if late_seconds:
        broker.script = {cls: _late(broker, script, late_seconds) for cls, script in broker.script.items()}
    broker.script[unanswered] = reaction
    return broker


def _late(broker: ScriptedBroker, script: Script | ScriptedResponse, seconds: float) -> Script:
    def hold(request: Message) -> ScriptedResponse:
        asyncio.get_running_loop().call_later(seconds, broker.release, script)
        return Reaction.HOLD

    return hold


def _end(request: Message) -> ListOffsetsResponse:
    assert isinstance(request, ListOffsetsRequest)
    (topic,) = request.topics
    (requested,) = topic.partitions
    offset = 0 if requested.timestamp == -2 else 5
    partition = ListOffsetsPartitionResponse(partition_index=requested.partition_index, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=[partition])])


def _group(request: Message) -> DescribeGroupsResponse:
    member = DescribedGroupMember(member_id="m", client_id="c", client_host="/h")
    return DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", group_state="Stable", members=[member])])


def reasons(outcome: object) -> Iterator[str]:
    """What an outcome says of why there is no response."""
    if isinstance(outcome, ClientError):
        assert not isinstance(outcome, BrokerRefused), "no broker has said anything"
        yield str(outcome)
    elif isinstance(outcome, PartitionResults):
        assert set(outcome.failed.values()) == {ErrorCode.NETWORK_EXCEPTION}
        yield from (str(error) for error in outcome.causes.values())
        yield from map(str, outcome.refusals.values())
    elif isinstance(outcome, Refusal):
        assert outcome.error is ErrorCode.NETWORK_EXCEPTION
        yield str(outcome)
    else:
        values = outcome if isinstance(outcome, Mapping) else getattr(outcome, "failed", None)
        assert values, f"{outcome} says nothing"
        for value in values.values():
            yield from reasons(value)


async def outcome_of(call: Call, broker: ScriptedBroker) -> object:
    loop = asyncio.get_running_loop()
    address = await broker.start()
    began = loop.time()
    async with Admin(str(address), rng=Random(1), default_api_timeout_ms=int(_SECONDS * 1000)) as admin:
        try:
            return await call(admin)
        except ClientError as error:
            return error
        finally:
            assert loop.time() - began <= _SECONDS + 0.5
            broker.stop()


@pytest.mark.parametrize("late_seconds", [0.0, 0.04, 0.09, 0.15])
@pytest.mark.parametrize(("name", "unanswered"), _CASES, ids=lambda each: getattr(each, "__name__", each))
def test_request_without_response_is_named_with_the_address(
    name: str, unanswered: type[Message], late_seconds: float
) -> None:
    """Its earlier requests get their responses so late that the time of one attempt ends before or after the call's."""

    @in_virtual_time
    async def play() -> None:
        broker = broker_without(unanswered, Reaction.SILENCE, late_seconds)
        outcome = await outcome_of(CALLS[name][0], broker)
        for reason in reasons(outcome):
            assert str(broker.address) in reason
            assert f"no response to {unanswered.__name__.removesuffix('Request')}" in reason
        if isinstance(outcome, ClientError):
            assert isinstance(outcome, RequestTimedOut | OperationTimedOut)

    play()


@pytest.mark.parametrize(("name", "unanswered"), _CASES, ids=lambda each: getattr(each, "__name__", each))
def test_request_is_named_also_where_the_loop_is_late_for_all_deadlines(name: str, unanswered: type[Message]) -> None:
    """The attempt's time-out ends the connection, and in the same turn of the loop the call is ended."""

    @in_virtual_time
    async def play() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.call_later(_SECONDS - 0.05, loop.advance, 0.3)
        broker = broker_without(unanswered, Reaction.SILENCE)
        for reason in reasons(await outcome_of(CALLS[name][0], broker)):
            assert str(broker.address) in reason
            assert f"no response to {unanswered.__name__.removesuffix('Request')}" in reason

    play()


@pytest.mark.parametrize(("name", "unanswered"), _CASES, ids=lambda each: getattr(each, "__name__", each))
def test_connection_that_ends_instead_of_a_response_is_named_by_its_address(
    name: str, unanswered: type[Message]
) -> None:
    @in_virtual_time
    async def play() -> None:
        broker = broker_without(unanswered, Reaction.CLOSE)
        outcome = await outcome_of(CALLS[name][0], broker)
        for reason in reasons(outcome):
            assert str(broker.address) in reason
        if isinstance(outcome, ClientError):
            assert isinstance(outcome, ConnectionLost | OperationTimedOut)

    play()
