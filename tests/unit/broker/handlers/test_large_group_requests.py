"""Requests about groups that are long enough to be divided are handled as short ones are, item by item."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from oncelog.broker.handlers.add_partitions_to_txn import handle_add_partitions_to_txn
from oncelog.broker.handlers.create_topics import handle_create_topics
from oncelog.broker.handlers.delete_groups import handle_delete_groups
from oncelog.broker.handlers.find_coordinator import handle_find_coordinator
from oncelog.broker.handlers.init_producer_id import handle_init_producer_id
from oncelog.broker.handlers.leave_group import handle_leave_group
from oncelog.broker.handlers.offset_commit import handle_offset_commit
from oncelog.broker.handlers.offset_delete import handle_offset_delete
from oncelog.broker.handlers.txn_offset_commit import handle_txn_offset_commit
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
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
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.unit.broker.handlers.administration import Denies, ask, running_broker

OK = ErrorCode.NONE
KNOWN, NAMED = 1_200, 1_500
"""Partitions of the topic, and those that the requests name."""
EXPECTED = [OK] * KNOWN + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (NAMED - KNOWN)


@asynccontextmanager
async def with_topic() -> AsyncIterator[Broker]:
    settings = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}
    async with running_broker(**settings) as broker:
        topic = CreatableTopic(name="t", num_partitions=KNOWN, replication_factor=1)
        creation = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
        await ask(broker, handle_create_topics, creation, CreateTopicsResponse)
        for key_type in (0, 1):
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"])
            await ask(broker, handle_find_coordinator, find, FindCoordinatorResponse)
        yield broker


async def commit(broker: Broker, group: str = "g", version: int = 8) -> list[int]:
    partitions = [OffsetCommitRequestPartition(partition_index=i, committed_offset=i) for i in range(NAMED)]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])
    response = await ask(broker, handle_offset_commit, request, OffsetCommitResponse, version)
    return [partition.error_code for partition in response.topics[0].partitions]


async def delete(broker: Broker, group: str = "g", topic: str = "t") -> OffsetDeleteResponse:
    partitions = [OffsetDeleteRequestPartition(partition_index=i) for i in [*range(NAMED), 0]]
    request = OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)])
    return await ask(broker, handle_offset_delete, request, OffsetDeleteResponse, 0)


def committed(broker: Broker, group: str = "g") -> dict[int, int]:
    offsets = broker.group_coordinator._shards.owned[0].offsets.committed(group)
    return {partition.partition: stored.committed.offset for partition, stored in offsets.items()}


async def test_offset_commit_of_many_partitions_commits_those_that_exist() -> None:
    async with with_topic() as broker:
        assert await commit(broker) == EXPECTED
        assert committed(broker) == {index: index for index in range(KNOWN)}
        broker.authorizer = Denies([Operation.READ])
        assert set(await commit(broker)) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}


async def test_transactional_commit_of_many_partitions_commits_those_that_exist() -> None:
    async with with_topic() as broker:
        initial = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        producer = await ask(broker, handle_init_producer_id, initial, InitProducerIdResponse, version=4)
        partitions = [TxnOffsetCommitRequestPartition(partition_index=i, committed_offset=i) for i in range(NAMED)]
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)],
        )
        response = await ask(broker, handle_txn_offset_commit, request, TxnOffsetCommitResponse, 5)
        assert [partition.error_code for partition in response.topics[0].partitions] == EXPECTED
        offsets = broker.group_coordinator._shards.owned[0].offsets
        assert committed(broker) == {}
        assert {partition.partition for partition in offsets.unstable("g")} == set(range(KNOWN))
        broker.authorizer = Denies([Operation.READ])
        response = await ask(broker, handle_txn_offset_commit, request, TxnOffsetCommitResponse, 5)
        errors = {partition.error_code for partition in response.topics[0].partitions}
        assert errors == {ErrorCode.GROUP_AUTHORIZATION_FAILED}


async def test_many_partitions_are_added_to_a_transaction_all_or_none() -> None:
    async with with_topic() as broker:
        initial = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        producer = await ask(broker, handle_init_producer_id, initial, InitProducerIdResponse, version=4)

        async def add(count: int, epoch: int = producer.producer_epoch) -> list[int]:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(range(count)))],
            )
            response = await ask(broker, handle_add_partitions_to_txn, request, AddPartitionsToTxnResponse, 1)
            results = response.results_by_topic_v3_and_below[0].results_by_partition
            return [result.partition_error_code for result in results]

        def added() -> int:
            return len(broker.transaction_coordinator.describe("x").partitions)  # type: ignore[union-attr]

        refused = [ErrorCode.OPERATION_NOT_ATTEMPTED] * KNOWN
        assert await add(NAMED) == refused + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (NAMED - KNOWN)
        assert added() == 0
        assert await add(KNOWN) == [OK] * KNOWN
        assert added() == KNOWN
        assert set(await add(KNOWN, epoch=7)) == {ErrorCode.INVALID_PRODUCER_EPOCH}, "version 1 knows no other word"
        broker.authorizer = Denies([Operation.WRITE])
        assert set(await add(KNOWN)) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


async def test_offset_delete_of_many_partitions_deletes_those_that_exist() -> None:
    async with with_topic() as broker:
        await commit(broker)
        response = await delete(broker)
        assert response.error_code == OK
        assert [partition.error_code for partition in response.topics[0].partitions] == [*EXPECTED, OK]
        assert committed(broker) == {}
        assert (await delete(broker, "nobody")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await commit(broker)
        assert (await delete(broker, "nobody", topic="u")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_delete_groups_of_many_names_deletes_those_that_exist() -> None:
    async with with_topic() as broker:
        names = [f"g{number}" for number in range(1_000)]
        for name in names[::200]:
            await commit(broker, name)
        request = DeleteGroupsRequest(groups_names=[*names, names[0]])
        response = await ask(broker, handle_delete_groups, request, DeleteGroupsResponse, 2)
        assert {result.group_id: result.error_code for result in response.results} == {
            name: OK if number % 200 == 0 else ErrorCode.GROUP_ID_NOT_FOUND for number, name in enumerate(names)
        }
        assert len(response.results) == len(names)
        assert not any(committed(broker, name) for name in names)
        broker.authorizer = Denies([Operation.DELETE])
        response = await ask(broker, handle_delete_groups, request, DeleteGroupsResponse, 2)
        assert {result.error_code for result in response.results} == {ErrorCode.GROUP_AUTHORIZATION_FAILED}


async def test_leave_group_of_many_members_has_a_result_for_each() -> None:
    async with with_topic() as broker:
        await commit(broker)
        members = [MemberIdentity(member_id=f"m{number}") for number in range(1_000)]
        request = LeaveGroupRequest(group_id="g", members=members)
        response = await ask(broker, handle_leave_group, request, LeaveGroupResponse, 5)
        assert [(member.member_id, member.error_code) for member in response.members] == [
            (member.member_id, ErrorCode.UNKNOWN_MEMBER_ID) for member in members
        ]
        request.group_id = ""
        response = await ask(broker, handle_leave_group, request, LeaveGroupResponse, 5)
        assert (response.error_code, response.members) == (ErrorCode.INVALID_GROUP_ID, [])
