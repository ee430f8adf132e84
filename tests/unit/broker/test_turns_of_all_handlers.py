"""No request keeps the event loop for long, of whatever API: each array of each request, full of the same or of others.

What is named exists and is large: a topic, a group and a transactional id of one name, with thousands of producers,
offsets and partitions. What is done in one turn of the loop is counted, the encoding of the response included.
"""

import asyncio
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

import pytest

from oncelog.broker.dispatch.api_handler import ApiHandler
from oncelog.broker.dispatch.request import ConnectionInfo, RequestContext
from oncelog.broker.handlers import all_handlers, response_room
from oncelog.broker.handlers.add_partitions_to_txn import handle_add_partitions_to_txn
from oncelog.broker.handlers.create_topics import handle_create_topics
from oncelog.broker.handlers.describe_groups import handle_describe_groups
from oncelog.broker.handlers.describe_producers import handle_describe_producers
from oncelog.broker.handlers.describe_transactions import handle_describe_transactions
from oncelog.broker.handlers.find_coordinator import handle_find_coordinator
from oncelog.broker.handlers.init_producer_id import handle_init_producer_id
from oncelog.broker.handlers.offset_commit import handle_offset_commit
from oncelog.broker.handlers.offset_fetch import handle_offset_fetch
from oncelog.broker.parts import Broker
from oncelog.broker.security.acl_authorizer import AclAuthorizer
from oncelog.broker.storage.partition_log import AppendOrigin
from oncelog.protocol.acl import (
    AccessControlEntry,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.compiler import encoder
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_response
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from oncelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from oncelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from oncelog.protocol.schema import Field, Kind, Message, layout
from oncelog.protocol.sliced_encoder import sliced_encoder
from tests.unit.broker.batches import batch, with_header
from tests.unit.broker.handlers.administration import ask, running_broker
from tests.unit.broker.outcomes import without_shape
from tests.unit.broker.turns import longest_turn

NAME: Final = "t"
ELEMENTS: Final = 3_000
MOST_LINES: Final = 60_000
"""What a request may do at once for so many elements, or in a slice: 4 ms, and 15 ms for 10,000 elements."""
ELSEWHERE: Final = {ApiKey.PRODUCE, ApiKey.FETCH}
"""Their work is with records, and has tests of its own (``test_hostile_batches``, ``test_fetch_turns``)."""

SETTINGS: Final[dict[str, Any]] = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}

HANDLERS: Final = [handler for handler in all_handlers() if handler.api_key not in ELSEWHERE]


def long_requests(cls: type[Message], version: int) -> Iterator[tuple[str, Message]]:
    """For each array of a request, however deep: the request with that one full of the same, and of others."""
    for path in array_paths(cls, version):
        for varied in (False, True):
            yield ".".join(path) + (" (others)" if varied else " (the same)"), filled(cls, version, path, varied)


def array_paths(cls: type[Message], version: int) -> Iterator[tuple[str, ...]]:
    for field in layout(cls, version).regular:
        if field.kind is Kind.ARRAY:
            assert field.element is not None
            yield (field.name,)
            if field.element.struct is not None:
                yield from ((field.name, *rest) for rest in array_paths(field.element.struct, version))


def filled(cls: type[Message], version: int, path: tuple[str, ...], varied: bool, number: int = 0) -> Message:
    """An instance in which the array at ``path`` has many elements; other arrays have one, which is what exists."""
    values: dict[str, Any] = {}
    for field in layout(cls, version).regular:
        if field.kind is Kind.ARRAY and field.name == path[:1][0] if path else False:
            values[field.name] = elements(field, version, path[1:], varied)
        elif field.kind is Kind.ARRAY and field.default_factory is list:
            values[field.name] = [element(field, version, (), False, 0)]
        elif not path and field.kind in (Kind.STRING, Kind.INT32):
            values[field.name] = scalar(field, number)
        elif field.kind is Kind.STRING and "protocol" not in field.name and "member" not in field.name:
            values[field.name] = NAME
    return cls(**values)


def elements(field: Field, version: int, rest: tuple[str, ...], varied: bool) -> list[Any]:
    if rest:
        return [element(field, version, rest, varied, 0)]
    return [element(field, version, (), varied, number if varied else 0) for number in range(ELEMENTS)]


def element(field: Field, version: int, path: tuple[str, ...], varied: bool, number: int) -> Any:
    assert field.element is not None
    if field.element.struct is not None:
        return filled(field.element.struct, version, path, varied, number)
    return scalar(field.element, number)


def scalar(field: Field, number: int) -> Any:
    if field.kind is Kind.STRING:
        return f"{NAME}{number}" if number else NAME
    return b"\0" * 16 if field.kind is Kind.UUID else number % 120 if field.kind is Kind.INT8 else number


async def carried_out(broker: Broker, handler: ApiHandler[Any], request: Message, version: int) -> None:
    """What dispatch does with a request that it has decoded."""
    connection = ConnectionInfo(client_host="127.0.0.1", listener_name="PLAINTEXT")
    outcome = without_shape(handler(broker, RequestContext(version, 1, "client", connection), request))
    if asyncio.iscoroutine(outcome):
        outcome = await outcome
        if isinstance(outcome, Message):
            await broker.sliced_work.encode(1, outcome, version, connection)
            return
    if isinstance(outcome, asyncio.Future):
        outcome = await outcome
    if isinstance(outcome, Message):
        encode_response(1, outcome, version)


def compile_encoders(request_type: type[Message], version: int) -> None:
    """So that no request is the first for which they are compiled."""
    name = request_type.__name__.removesuffix("Request") + "Response"
    response_type: type[Message] = getattr(sys.modules[request_type.__module__], name)
    encoder(response_type, version)
    sliced_encoder(response_type, version)


async def fill(broker: Broker) -> None:
    """Create the topic, the group and the transaction, and let a partition know many producers."""
    topic = CreatableTopic(name=NAME, num_partitions=120, replication_factor=1)
    await ask(
        broker, handle_create_topics, CreateTopicsRequest(topics=[topic], timeout_ms=60_000), CreateTopicsResponse
    )
    for key_type in (0, 1):
        find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[NAME])
        await ask(broker, handle_find_coordinator, find, FindCoordinatorResponse)
    offsets = [OffsetCommitRequestPartition(partition_index=i, committed_offset=1) for i in range(120)]
    commit = OffsetCommitRequest(group_id=NAME, topics=[OffsetCommitRequestTopic(name=NAME, partitions=offsets)])
    await ask(broker, handle_offset_commit, commit, OffsetCommitResponse, version=8)
    initial = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
    producer = await ask(broker, handle_init_producer_id, initial, InitProducerIdResponse, version=4)
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=NAME,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=NAME, partitions=list(range(120)))],
    )
    await ask(broker, handle_add_partitions_to_txn, add, AddPartitionsToTxnResponse, version=3)
    for index in range(2):
        partition = broker.replica_manager.led_partition((NAME, index))
        for producer_id in range(2_000):
            records, header = with_header(batch(producer_id=10_000 + producer_id, epoch=0, sequence=0))
            partition.append(records, header, origin=AppendOrigin.CLIENT, required_acks=1)  # type: ignore[union-attr]


async def turns_too_long(broker: Broker, handler: ApiHandler[Any], versions: Iterable[int]) -> dict[str, int]:
    """Lines of the longest turn of each request that has one which is too long."""
    too_long = {}
    for version in versions:
        compile_encoders(handler.request_type, version)
        for what, request in long_requests(handler.request_type, version):
            _, lines = await longest_turn(partial(carried_out, broker, handler, request, version))
            if lines > MOST_LINES:
                too_long[f"version {version}, {what}"] = lines
    return too_long


def limiting_lists() -> AclAuthorizer:
    """Everybody may do everything with the named, and may describe, but not create, what has another name."""
    entries = {
        pattern: frozenset({AccessControlEntry("User:*", "*", operation, AclPermissionType.ALLOW)})
        for type_ in (AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID)
        for pattern, operation in (
            (ResourcePattern(type_, NAME, PatternType.LITERAL), AclOperation.ALL),
            (ResourcePattern(type_, NAME, PatternType.PREFIXED), AclOperation.DESCRIBE),
        )
    }
    authorizer = AclAuthorizer(frozenset())
    authorizer.change(entries)
    return authorizer


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.name)
async def test_turns_of_a_long_request_are_short(handler: ApiHandler[Any]) -> None:
    async with running_broker(auto_create_topics_enable="false", **SETTINGS) as broker:
        await fill(broker)
        assert await turns_too_long(broker, handler, {handler.versions.first, handler.versions.last}) == {}


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.name)
async def test_turns_of_a_long_request_with_access_control_are_short(handler: ApiHandler[Any]) -> None:
    async with running_broker(**SETTINGS) as broker:
        await fill(broker)
        broker.authorizer = limiting_lists()
        assert await turns_too_long(broker, handler, {handler.versions.last}) == {}


async def test_response_describes_what_has_room_and_returns_retriable_errors_for_the_rest(monkeypatch: Any) -> None:
    """Each of three partitions with 2,000 producers would make 80 KB, in a response with room for one of them."""
    monkeypatch.setattr(response_room, "LARGEST_RESPONSE", 1)
    async with running_broker() as broker:
        await fill(broker)
        request = DescribeProducersRequest(topics=[TopicRequest(name=NAME, partition_indexes=[1, 0, 1, 0])] * 2)
        response = await ask(broker, handle_describe_producers, request, DescribeProducersResponse)
        assert [
            (partition.partition_index, partition.error_code, len(partition.active_producers))
            for topic in response.topics
            for partition in topic.partitions
        ] == [(1, ErrorCode.NONE, 2_000), (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)]
        groups = DescribeGroupsRequest(groups=[NAME, "u", NAME])
        described = await ask(broker, handle_describe_groups, groups, DescribeGroupsResponse)
        assert [group.group_id for group in described.groups] == [NAME, "u"]
        requested = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in (NAME, "u", NAME)]
        fetched = await ask(broker, handle_offset_fetch, OffsetFetchRequest(groups=requested), OffsetFetchResponse)
        assert [
            (group.group_id, group.error_code, sum(len(t.partitions) for t in group.topics)) for group in fetched.groups
        ] == [
            (NAME, ErrorCode.NONE, 120),
            ("u", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0),
        ]
        ids = DescribeTransactionsRequest(transactional_ids=[NAME, "u", NAME])
        transactions = await ask(broker, handle_describe_transactions, ids, DescribeTransactionsResponse)
        assert [(state.transactional_id, state.error_code) for state in transactions.transaction_states] == [
            (NAME, ErrorCode.NONE),
            ("u", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ]
