"""The group APIs on a whole broker, over the wire's encoding: the shape of every version, and who may."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from oncelog.broker.dispatch.api_handler import ApiHandler
from oncelog.broker.handlers.add_offsets_to_txn import handle_add_offsets_to_txn
from oncelog.broker.handlers.create_topics import handle_create_topics
from oncelog.broker.handlers.delete_groups import handle_delete_groups
from oncelog.broker.handlers.delete_topics import handle_delete_topics
from oncelog.broker.handlers.describe_groups import handle_describe_groups
from oncelog.broker.handlers.end_txn import handle_end_txn
from oncelog.broker.handlers.find_coordinator import handle_find_coordinator
from oncelog.broker.handlers.heartbeat import handle_heartbeat
from oncelog.broker.handlers.init_producer_id import handle_init_producer_id
from oncelog.broker.handlers.join_group import handle_join_group
from oncelog.broker.handlers.leave_group import handle_leave_group
from oncelog.broker.handlers.list_groups import handle_list_groups
from oncelog.broker.handlers.offset_commit import handle_offset_commit
from oncelog.broker.handlers.offset_delete import handle_offset_delete
from oncelog.broker.handlers.offset_fetch import handle_offset_fetch
from oncelog.broker.handlers.sync_group import handle_sync_group
from oncelog.broker.handlers.txn_offset_commit import handle_txn_offset_commit
from oncelog.broker.parts import Broker
from oncelog.broker.replication.coordinator_log import CoordinatorLog
from oncelog.broker.security.authorizer import Operation
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from oncelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from oncelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from oncelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from oncelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from oncelog.protocol.schema import ZERO_UUID, Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.handlers.administration import Denies, ask, running_broker, settle

R = TypeVar("R", bound=Message)
OK = ErrorCode.NONE
GROUP = "g"
UNKNOWN_ID = b"?" * 16

HANDLERS: tuple[tuple[ApiHandler[Any], type[Message], type[Message]], ...] = (
    (handle_delete_groups, DeleteGroupsRequest, DeleteGroupsResponse),
    (handle_describe_groups, DescribeGroupsRequest, DescribeGroupsResponse),
    (handle_heartbeat, HeartbeatRequest, HeartbeatResponse),
    (handle_join_group, JoinGroupRequest, JoinGroupResponse),
    (handle_leave_group, LeaveGroupRequest, LeaveGroupResponse),
    (handle_list_groups, ListGroupsRequest, ListGroupsResponse),
    (handle_offset_commit, OffsetCommitRequest, OffsetCommitResponse),
    (handle_offset_delete, OffsetDeleteRequest, OffsetDeleteResponse),
    (handle_offset_fetch, OffsetFetchRequest, OffsetFetchResponse),
    (handle_sync_group, SyncGroupRequest, SyncGroupResponse),
    (handle_txn_offset_commit, TxnOffsetCommitRequest, TxnOffsetCommitResponse),
)


@asynccontextmanager
async def group_broker(**settings: str) -> AsyncIterator[Broker]:
    """A broker that coordinates groups, and has the topics t and u with two partitions each."""
    async with running_broker(offsets_topic_num_partitions="1", **settings) as broker:
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in "tu"]
        await ask(broker, handle_create_topics, CreateTopicsRequest(topics=topics), CreateTopicsResponse)
        for key_type in (0, 1):
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
            await ask(broker, handle_find_coordinator, find, FindCoordinatorResponse)
        await settle()
        yield broker


async def call(broker: Broker, handler: ApiHandler[Any], request: Message, response: type[R], version: int = -1) -> R:
    """A request and its response as a client of this version would encode the one and decode the other."""
    chosen = handler.versions.last if version < 0 else version
    arrived = decode(type(request), chosen, encode(request, chosen))
    received = await ask(broker, handler, arrived, response, chosen)
    return decode(response, chosen, encode(received, chosen))


def topic_id(broker: Broker, name: str = "t") -> bytes:
    topic = broker.metadata.image.topic(name)
    assert topic is not None
    return topic.topic_id


async def join(broker: Broker, version: int, member_id: str = "", instance: str | None = None) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    return await call(broker, handle_join_group, request, JoinGroupResponse, version)


async def member(broker: Broker, version: int = 3) -> str:
    """The only member of the group's first generation."""
    joined = await join(broker, version)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = await join(broker, version, joined.member_id)
    assert joined.error_code == OK
    sync = SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
    )
    synced = await call(broker, handle_sync_group, sync, SyncGroupResponse)
    assert (synced.error_code, synced.assignment) == (OK, b"all")
    assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
    return joined.member_id


def commit_request(broker: Broker, topic: str = "t", partition: int = 0, offset: int = 5) -> OffsetCommitRequest:
    """Names its topic both ways; each version carries its own."""
    known = broker.metadata.image.topic(topic)
    return OffsetCommitRequest(
        group_id=GROUP,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=UNKNOWN_ID if known is None else known.topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=None
                    )
                ],
            )
        ],
    )


async def commit(broker: Broker, *, version: int = -1, **what: Any) -> int:
    response = await call(broker, handle_offset_commit, commit_request(broker, **what), OffsetCommitResponse, version)
    return response.topics[0].partitions[0].error_code


async def fetch(
    broker: Broker, version: int = -1, *, names: str | None = "t", group: str = GROUP, stable: bool = False
) -> tuple[int, dict[tuple[str, int], tuple[int, int]]]:
    """The group's error, and (offset, error) of partition 0 of each topic; no names ask for everything."""
    chosen = handle_offset_fetch.versions.last if version < 0 else version
    ids = {name: image.topic_id for name, image in broker.metadata.image.topics.items()}
    by_id = {topic_id: name for name, topic_id in ids.items()}
    old = new = None
    if names is not None:
        old = [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in names]
        new = [
            OffsetFetchRequestTopics(name=name, topic_id=ids.get(name, UNKNOWN_ID), partition_indexes=[0])
            for name in names
        ]
    if chosen < 8:
        request = OffsetFetchRequest(group_id=group, topics=old, require_stable=stable)
    else:
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=new)], require_stable=stable
        )
    response = await call(broker, handle_offset_fetch, request, OffsetFetchResponse, chosen)
    if chosen < 8:
        return response.error_code, {
            (topic.name, p.partition_index): (p.committed_offset, p.error_code)
            for topic in response.topics
            for p in topic.partitions
        }
    (fetched,) = response.groups
    assert fetched.group_id == group
    return fetched.error_code, {
        (by_id.get(topic.topic_id, "?") if chosen >= 10 else topic.name, p.partition_index): (
            p.committed_offset,
            p.error_code,
        )
        for topic in fetched.topics
        for p in topic.partitions
    }


async def begin(broker: Broker) -> tuple[int, int]:
    """The next transaction of the transactional id, to which the group's offsets belong."""
    init = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
    producer = await ask(broker, handle_init_producer_id, init, InitProducerIdResponse)
    assert producer.error_code == OK
    add = AddOffsetsToTxnRequest(
        transactional_id="id",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id=GROUP,
    )
    assert (await ask(broker, handle_add_offsets_to_txn, add, AddOffsetsToTxnResponse)).error_code == OK
    return producer.producer_id, producer.producer_epoch


async def end(broker: Broker, producer: tuple[int, int], *, committed: bool) -> None:
    """By protocol version 1: the epoch stays."""
    request = EndTxnRequest(
        transactional_id="id", producer_id=producer[0], producer_epoch=producer[1], committed=committed
    )
    assert (await ask(broker, handle_end_txn, request, EndTxnResponse, 3)).error_code == OK


def txn_request(producer: tuple[int, int], group: str = GROUP, topic: str = "t") -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="id",
        group_id=group,
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=9)],
            )
        ],
    )


# Membership


@pytest.mark.parametrize("version", handle_join_group.versions)
async def test_join_in_every_version(version: int) -> None:
    async with group_broker() as broker:
        first = await join(broker, version)
        if version >= 4:
            assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert first.protocol_name == (None if version >= 7 else "")
            first = await join(broker, version, first.member_id)
        assert (first.error_code, first.generation_id, first.protocol_name) == (OK, 1, "range")
        assert first.protocol_type == ("consumer" if version >= 7 else None)
        assert first.leader == first.member_id == first.members[0].member_id
        assert first.member_id.startswith("client-")


@pytest.mark.parametrize("version", [5, 8, 9])
async def test_returning_static_leader_skips_the_assignment_from_version_9(version: int) -> None:
    async with group_broker() as broker:
        first = await join(broker, version, instance="one")
        sync = SyncGroupRequest(
            group_id=GROUP, generation_id=1, member_id=first.member_id, group_instance_id="one",
            protocol_type="consumer", protocol_name="range",
        )  # fmt: skip
        await call(broker, handle_sync_group, sync, SyncGroupResponse)
        back = await join(broker, version, instance="one")
        assert back.generation_id == 1
        assert back.skip_assignment == (version >= 9)
        assert back.leader == (back.member_id if version >= 9 else first.member_id)


@pytest.mark.parametrize("version", handle_sync_group.versions)
async def test_sync_must_name_its_protocol_from_version_5_on(version: int) -> None:
    async with group_broker() as broker:
        joined = await join(broker, 3)
        sync = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=joined.member_id)
        response = await call(broker, handle_sync_group, sync, SyncGroupResponse, version)
        assert response.error_code == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL if version >= 5 else OK)


@pytest.mark.parametrize("version", handle_heartbeat.versions)
async def test_heartbeat_of_every_version_is_served(version: int) -> None:
    async with group_broker() as broker:
        known = await member(broker)
        for member_id, expected in ((known, OK), ("other", ErrorCode.UNKNOWN_MEMBER_ID)):
            beat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id)
            assert (await call(broker, handle_heartbeat, beat, HeartbeatResponse, version)).error_code == expected


@pytest.mark.parametrize("version", handle_leave_group.versions)
async def test_leaving_in_every_version(version: int) -> None:
    async with group_broker() as broker:
        known = await member(broker)
        for expected in (OK, ErrorCode.UNKNOWN_MEMBER_ID):
            members = [MemberIdentity(member_id=known, reason="done")]
            request = LeaveGroupRequest(group_id=GROUP, member_id=known, members=members if version >= 3 else [])
            response = await call(broker, handle_leave_group, request, LeaveGroupResponse, version)
            if version < 3:
                assert response.error_code == expected
            else:
                assert response.error_code == OK
                assert [(each.member_id, each.error_code) for each in response.members] == [(known, expected)]


# Looking at groups


@pytest.mark.parametrize("version", handle_describe_groups.versions)
async def test_describing_in_every_version(version: int) -> None:
    async with group_broker() as broker:
        known = await member(broker)
        request = DescribeGroupsRequest(groups=[GROUP, "none"], include_authorized_operations=version >= 3)
        response = await call(broker, handle_describe_groups, request, DescribeGroupsResponse, version)
        stable, missing = response.groups
        assert (stable.error_code, stable.group_state, stable.protocol_data) == (OK, "Stable", "range")
        (described,) = stable.members
        assert (described.member_id, described.client_id, described.client_host) == (known, "client", "/127.0.0.1")
        assert described.member_assignment == b"all"
        all_of_a_group = 3400
        assert stable.authorized_operations == (all_of_a_group if version >= 3 else -(2**31))
        assert missing.group_state == "Dead"
        assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else OK)
        assert missing.error_message == ("Group none not found." if version >= 6 else None)


@pytest.mark.parametrize("version", handle_list_groups.versions)
async def test_listing_in_every_version(version: int) -> None:
    async with group_broker() as broker:
        await member(broker)
        simple = commit_request(broker)
        simple.group_id = "simple"
        await call(broker, handle_offset_commit, simple, OffsetCommitResponse)

        async def listed(states: list[str] | None = None, types: list[str] | None = None) -> list[tuple[str, ...]]:
            request = ListGroupsRequest(states_filter=states or [], types_filter=types or [])
            response = await call(broker, handle_list_groups, request, ListGroupsResponse, version)
            assert response.error_code == OK
            return [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in response.groups]

        state = ("Stable", "Empty") if version >= 4 else ("", "")
        kind = "classic" if version >= 5 else ""
        both = [(GROUP, "consumer", state[0], kind), ("simple", "", state[1], kind)]
        assert await listed() == both
        if version >= 4:
            assert await listed(["stABLE ", "Dead"]) == both[:1]
            assert await listed(["nonsense"]) == []
        if version >= 5:
            assert await listed(types=["Classic"]) == both
            assert await listed(types=["consumer"]) == []


@pytest.mark.parametrize("version", handle_delete_groups.versions)
async def test_deleting_in_every_version(version: int) -> None:
    async with group_broker() as broker:
        await commit(broker)

        async def delete(*groups: str) -> dict[str, int]:
            request = DeleteGroupsRequest(groups_names=list(groups))
            response = await call(broker, handle_delete_groups, request, DeleteGroupsResponse, version)
            return {result.group_id: result.error_code for result in response.results}

        assert await delete(GROUP, "none") == {GROUP: OK, "none": ErrorCode.GROUP_ID_NOT_FOUND}
        await member(broker)
        assert await delete(GROUP) == {GROUP: ErrorCode.NON_EMPTY_GROUP}


# Offsets


@pytest.mark.parametrize("version", handle_offset_commit.versions)
async def test_committing_in_every_version(version: int) -> None:
    async with group_broker() as broker:
        assert await commit(broker, version=version) == OK
        assert await fetch(broker) == (OK, {("t", 0): (5, OK)})
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await commit(broker, version=version, topic="x") == unknown
        assert await commit(broker, version=version, partition=2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        request = commit_request(broker)
        request.group_id, request.member_id, request.generation_id_or_member_epoch = "none", "m", 1
        response = await call(broker, handle_offset_commit, request, OffsetCommitResponse, version)
        gone = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
        assert response.topics[0].partitions[0].error_code == gone
        assert response.topics[0].topic_id == (topic_id(broker) if version >= 10 else ZERO_UUID)


@pytest.mark.parametrize("version", handle_offset_fetch.versions)
async def test_fetching_in_every_version(version: int) -> None:
    async with group_broker() as broker:
        await commit(broker)
        assert await fetch(broker, version, names="tu") == (OK, {("t", 0): (5, OK), ("u", 0): (-1, OK)})
        expected = (-1, ErrorCode.UNKNOWN_TOPIC_ID) if version >= 10 else (-1, OK)
        assert await fetch(broker, version, names="x") == (OK, {("?" if version >= 10 else "x", 0): expected})
        assert await fetch(broker, version, group="none") == (OK, {("t", 0): (-1, OK)})
        if version >= 2:
            assert await fetch(broker, version, names=None) == (OK, {("t", 0): (5, OK)})


async def test_several_groups_are_fetched_in_one_request() -> None:
    async with group_broker() as broker:
        await commit(broker)
        groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in (GROUP, "none", GROUP)]
        response = await call(broker, handle_offset_fetch, OffsetFetchRequest(groups=groups), OffsetFetchResponse)
        assert [(group.group_id, len(group.topics)) for group in response.groups] == [(GROUP, 1), ("none", 0)]
        nothing = await call(broker, handle_offset_fetch, OffsetFetchRequest(groups=[]), OffsetFetchResponse)
        assert nothing.groups == []


ADDING_OFFSET_COMMIT = 5
"""The first version that adds its group to the transaction."""


async def txn_commit(broker: Broker, request: TxnOffsetCommitRequest, version: int = -1) -> int:
    response = await call(broker, handle_txn_offset_commit, request, TxnOffsetCommitResponse, version)
    return response.topics[0].partitions[0].error_code


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", handle_txn_offset_commit.versions)
async def test_transactional_commits_in_every_version(version: int, committed: bool) -> None:
    """B17, B71: unstable until EndTxn has its response, and decided from then on."""
    async with group_broker() as broker:
        await commit(broker)
        producer = await begin(broker)
        assert await txn_commit(broker, txn_request(producer), version) == OK
        assert await fetch(broker, stable=True) == (OK, {("t", 0): (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)})
        assert await fetch(broker) == (OK, {("t", 0): (5, OK)})
        await end(broker, producer, committed=committed)
        assert await fetch(broker, stable=True) == (OK, {("t", 0): (9 if committed else 5, OK)})


@pytest.mark.parametrize("version", range(ADDING_OFFSET_COMMIT))
async def test_commit_that_comes_after_its_transaction_is_refused(version: int) -> None:
    """B71: no marker would ever come for it. (B04: it is verified in the same step as it is appended.)"""
    async with group_broker() as broker:
        producer = await begin(broker)
        await end(broker, producer, committed=True)
        late = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
        assert await txn_commit(broker, txn_request(producer), version) == late
        assert await fetch(broker, stable=True) == (OK, {("t", 0): (-1, OK)})


async def test_commit_without_a_transaction_is_refused() -> None:
    async with group_broker() as broker:
        producer_id, epoch = await begin(broker)
        mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await txn_commit(broker, txn_request((producer_id + 1, epoch))) == mapping
        assert await txn_commit(broker, txn_request((-1, -1))) == mapping
        other = txn_request((producer_id, epoch))
        other.transactional_id = "another"
        assert await txn_commit(broker, other) == mapping


async def test_producer_with_an_older_epoch_is_fenced_from_the_offsets_too() -> None:
    for verification in ("true", "false"):
        async with group_broker(transaction_partition_verification_enable=verification) as broker:
            older = await begin(broker)
            newer = await begin(broker)
            assert await txn_commit(broker, txn_request(newer)) == OK
            assert await txn_commit(broker, txn_request(older)) == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_group_errors_are_returned_before_the_transaction_is_verified() -> None:
    async with group_broker() as broker:
        request = txn_request((7, 0))
        unknown = txn_request((7, 0), topic="x")
        assert await txn_commit(broker, unknown) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await txn_commit(broker, txn_request((7, 0), group="")) == ErrorCode.INVALID_GROUP_ID
        broker.group_coordinator.on_resigned(0)
        assert await txn_commit(broker, request) == ErrorCode.NOT_COORDINATOR


async def test_commit_is_retried_while_the_transaction_coordinator_is_unavailable() -> None:
    async with group_broker() as broker:
        producer = await begin(broker)
        index = partition_for("id", 50)
        log = broker.replica_manager.partition(TopicPartition("__transaction_state", index))
        assert log is not None
        assert log.leading is not None
        broker.transaction_coordinator.on_resigned(index)
        for version in handle_txn_offset_commit.versions:
            assert await txn_commit(broker, txn_request(producer), version) == ErrorCode.NOT_COORDINATOR
        broker.transaction_coordinator.on_elected(index, CoordinatorLog(log.leading))
        for version in handle_txn_offset_commit.versions:
            loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await txn_commit(broker, txn_request(producer), version) == loading


async def test_offset_delete_removes_committed_offsets() -> None:
    async with group_broker() as broker:
        await commit(broker)

        async def delete(group: str, topic: str, partition: int) -> tuple[int, list[int]]:
            requested = OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
            )
            request = OffsetDeleteRequest(group_id=group, topics=[requested])
            response = await call(broker, handle_offset_delete, request, OffsetDeleteResponse)
            return response.error_code, [p.error_code for each in response.topics for p in each.partitions]

        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await delete("none", "t", 0) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        assert await delete(GROUP, "t", 2) == await delete(GROUP, "x", 0) == (OK, [unknown])
        await member(broker)
        assert await delete(GROUP, "t", 0) == (OK, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
        assert (await fetch(broker))[1] == {("t", 0): (5, OK)}


async def test_offset_that_is_named_again_is_deleted_once() -> None:
    async with group_broker() as broker:
        await commit(broker)
        partition = broker.replica_manager.led_partition(("__consumer_offsets", 0))
        assert not isinstance(partition, ErrorCode)
        assert partition.log is not None
        before = partition.log.log_end_offset
        requested = [OffsetDeleteRequestPartition(partition_index=0)] * 50
        request = OffsetDeleteRequest(group_id=GROUP, topics=[OffsetDeleteRequestTopic(name="t", partitions=requested)])
        response = await call(broker, handle_offset_delete, request, OffsetDeleteResponse)
        assert [each.error_code for each in response.topics[0].partitions] == [OK] * 50
        assert partition.log.log_end_offset == before + 1
        assert (await fetch(broker))[1] == {("t", 0): (-1, OK)}


async def test_deleted_topic_takes_its_offsets_along() -> None:
    async with group_broker() as broker:
        await commit(broker, topic="t")
        await commit(broker, topic="u")
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1_000)
        await ask(broker, handle_delete_topics, request, DeleteTopicsResponse)
        await settle()
        assert await fetch(broker, 8, names=None) == (OK, {("u", 0): (5, OK)})


# Loading


@pytest.mark.parametrize("version", handle_txn_offset_commit.versions)
async def test_commit_of_an_old_producer_never_gets_coordinator_load_in_progress(version: int) -> None:
    async with group_broker() as broker:
        broker.group_coordinator._shards.owned[0].is_open = False
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await txn_commit(broker, txn_request((7, 0)), version) == loading


@pytest.mark.parametrize("version", handle_offset_fetch.versions)
async def test_errors_of_a_fetch_stand_where_the_version_has_room_for_them(version: int) -> None:
    async with group_broker() as broker:
        broker.group_coordinator._shards.owned[0].is_open = False
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        expected = (loading, {}) if version >= 2 else (OK, {("t", 0): (-1, loading)})
        assert await fetch(broker, version) == expected


# Who may


@pytest.mark.parametrize("operation", [Operation.READ, Operation.DESCRIBE, Operation.DELETE])
async def test_group_api_of_an_unauthorized_client_is_refused_first(operation: Operation) -> None:
    async with group_broker() as broker:
        await commit(broker)
        producer = await begin(broker)
        broker.authorizer = Denies({operation})
        refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
        may_read = OK if operation is not Operation.READ else refused
        may_describe = OK if operation is not Operation.DESCRIBE else refused
        may_delete = OK if operation is not Operation.DELETE else refused
        assert await commit(broker) == may_read
        assert (await join(broker, 5)).error_code == (may_read or ErrorCode.MEMBER_ID_REQUIRED)
        sync = SyncGroupRequest(group_id=GROUP, protocol_type="consumer", protocol_name="range")
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert (await call(broker, handle_sync_group, sync, SyncGroupResponse)).error_code == (may_read or unknown)
        beat = HeartbeatRequest(group_id=GROUP)
        assert (await call(broker, handle_heartbeat, beat, HeartbeatResponse)).error_code == (may_read or unknown)
        leave = LeaveGroupRequest(group_id=GROUP)
        assert (await call(broker, handle_leave_group, leave, LeaveGroupResponse)).error_code == may_read
        assert await txn_commit(broker, txn_request(producer)) == may_read
        assert (await fetch(broker))[0] == may_describe
        describe = DescribeGroupsRequest(groups=[GROUP])
        described = await call(broker, handle_describe_groups, describe, DescribeGroupsResponse)
        assert described.groups[0].error_code == may_describe
        listed = await call(broker, handle_list_groups, ListGroupsRequest(), ListGroupsResponse)
        assert len(listed.groups) == (1 if may_describe is OK else 0)
        offsets = OffsetDeleteRequest(group_id=GROUP)
        assert (await call(broker, handle_offset_delete, offsets, OffsetDeleteResponse)).error_code == may_delete
        delete = DeleteGroupsRequest(groups_names=[GROUP])
        deleted = await call(broker, handle_delete_groups, delete, DeleteGroupsResponse)
        assert deleted.results[0].error_code == may_delete


@pytest.mark.parametrize(
    ("handler", "request_type", "response_type"), HANDLERS, ids=lambda each: getattr(each, "name", "")
)
async def test_unexpected_failure_has_a_response_in_every_version(
    handler: ApiHandler[Any], request_type: type[Message], response_type: type[Message]
) -> None:
    """Requests of defaults, but for a group and a topic where the error is theirs."""
    async with group_broker() as broker:
        filled: dict[type[Message], Message] = {
            OffsetCommitRequest: commit_request(broker),
            TxnOffsetCommitRequest: txn_request((7, 0)),
            DescribeGroupsRequest: DescribeGroupsRequest(groups=[GROUP]),
            DeleteGroupsRequest: DeleteGroupsRequest(groups_names=[GROUP]),
        }
        for version in handler.versions:
            request = filled.get(request_type) or request_type()
            if request_type is OffsetFetchRequest:
                request = OffsetFetchRequest(
                    groups=[OffsetFetchRequestGroup(group_id=GROUP)],
                    topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])],
                )
            arrived = decode(request_type, version, encode(request, version))
            response = handler.error_response(arrived, version, ErrorCode.UNKNOWN_SERVER_ERROR)
            seen = decode(response_type, version, encode(response, version))
            assert repr(seen).count("error_code=-1") == 1, seen
