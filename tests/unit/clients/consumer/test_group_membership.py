"""A member and a coordinator that is told what to say: every error, on the wire."""

import asyncio
import re

import pytest

from oncelog.clients.consumer import ConsumerGroupMetadata, OffsetAndMetadata
from oncelog.clients.consumer.consumer_errors import AssignmentFailed, InstanceFenced, RebalanceInProgress
from oncelog.clients.consumer.embedded_protocol import decode_assignment, decode_subscription, encode_assignment
from oncelog.clients.errors import BrokerRefused, CommitFailed, OperationTimedOut, VersionNotSupported
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from oncelog.protocol.messages.leave_group import LeaveGroupRequest
from oncelog.protocol.messages.offset_commit import OffsetCommitRequest
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from oncelog.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from oncelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from oncelog.protocol.schema import Message, Versions
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.consumer.fetched import ORDERS
from tests.unit.clients.consumer.scripted_group import MEMBER, GroupBroker, Noting, committed, subscribed
from tests.unit.clients.consumer.scripted_log import ScriptedMetadata, connected, ends
from tests.unit.clients.scripted_broker import Reaction

OTHER = TopicPartition("orders", 1)


# Joining


@in_virtual_time
async def test_leader_joins_and_assigns_all_members() -> None:
    broker, listener = GroupBroker(), Noting()
    async with subscribed(broker, listener, client_rack="r1") as consumer:
        records = await consumer.poll(5)
        assert [record.offset for record in records] == [0, 1]
        assert consumer.group_metadata() == ConsumerGroupMetadata(group_id="group", generation_id=1, member_id=MEMBER)
        first, second = broker.joins()
        assert (first.member_id, second.member_id) == ("", MEMBER)
        assert (second.session_timeout_ms, second.rebalance_timeout_ms) == (45_000, 300_000)
        (protocol,) = second.protocols
        assert (second.protocol_type, protocol.name) == ("consumer", "cooperative-sticky")
        subscription = decode_subscription(protocol.metadata, None)
        assert (subscription.topics, subscription.owned, subscription.generation_id) == ({"orders"}, (), -1)
        (sync,) = broker.seen(SyncGroupRequest)
        assert isinstance(sync, SyncGroupRequest)
        (assigned,) = sync.assignments
        assert (sync.generation_id, sync.member_id, assigned.member_id) == (1, MEMBER, MEMBER)
        assert decode_assignment(assigned.assignment) == [ORDERS, OTHER]
        assert listener.reported == [("assigned", [ORDERS])]
    (left,) = broker.seen(LeaveGroupRequest)
    assert isinstance(left, LeaveGroupRequest)
    assert [(member.member_id, member.reason) for member in left.members] == [(MEMBER, "the consumer is being closed")]
    assert listener.reported == [("assigned", [ORDERS]), ("revoked", [ORDERS])]


@in_virtual_time
async def test_follower_sends_no_assignments() -> None:
    broker = GroupBroker(leads=False)
    async with subscribed(broker) as consumer:
        await consumer.poll(5)
        (sync,) = broker.seen(SyncGroupRequest)
        assert isinstance(sync, SyncGroupRequest)
        assert sync.assignments == []


@pytest.mark.parametrize(
    ("cls", "response"),
    [
        (JoinGroupRequest, JoinGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)),
        (JoinGroupRequest, JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)),
        (JoinGroupRequest, JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)),
        (JoinGroupRequest, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)),
        (JoinGroupRequest, Reaction.CLOSE),
        (SyncGroupRequest, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)),
        (SyncGroupRequest, SyncGroupResponse(error_code=ErrorCode.ILLEGAL_GENERATION)),
        (SyncGroupRequest, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)),
        (SyncGroupRequest, SyncGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)),
        (SyncGroupRequest, Reaction.CLOSE),
    ],
)
def test_rebalance_survives_retriable_errors(cls: type, response: object) -> None:
    @in_virtual_time
    async def play() -> None:
        broker = GroupBroker()
        broker.responses[cls] = [response, response]  # type: ignore[list-item]
        async with subscribed(broker) as consumer:
            assert len(await consumer.poll(10)) == 2

    play()


@in_virtual_time
async def test_member_id_is_kept_while_the_coordinator_may_know_it() -> None:
    broker = GroupBroker()
    broker.responses[SyncGroupRequest] = [
        SyncGroupResponse(error_code=ErrorCode.ILLEGAL_GENERATION),
        SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    async with subscribed(broker) as consumer:
        await consumer.poll(10)
    assert [join.member_id for join in broker.joins()] == ["", MEMBER, MEMBER, "", MEMBER]


@in_virtual_time
async def test_another_coordinator_is_looked_for_where_the_first_says_so() -> None:
    broker = GroupBroker()
    broker.responses[JoinGroupRequest] = [JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)]
    async with subscribed(broker) as consumer:
        await consumer.poll(10)
        requested = [type(r) for r in broker.requests if isinstance(r, FindCoordinatorRequest | JoinGroupRequest)]
        assert requested[:3] == [FindCoordinatorRequest, JoinGroupRequest, FindCoordinatorRequest]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_join_refused_for_good_raises_and_can_be_polled_again(error: ErrorCode) -> None:
    @in_virtual_time
    async def play() -> None:
        broker = GroupBroker()
        broker.responses[JoinGroupRequest] = [JoinGroupResponse(error_code=error)]
        async with subscribed(broker) as consumer:
            with pytest.raises(BrokerRefused, match=f"group group: {error.name}"):
                await consumer.poll(10)
            assert len(await consumer.poll(10)) == 2

    play()


@in_virtual_time
async def test_assignment_that_cannot_be_decoded_raises() -> None:
    broker = GroupBroker(leads=False)
    broker.responses[SyncGroupRequest] = [SyncGroupResponse(protocol_type="consumer", assignment=b"")]
    async with subscribed(broker) as consumer:
        with pytest.raises(AssignmentFailed):
            await consumer.poll(10)


@in_virtual_time
async def test_assignment_for_another_subscription_is_not_applied() -> None:
    """The subscription may have changed while the group was rebalanced."""
    broker, listener = GroupBroker(), Noting()
    clicks = encode_assignment([TopicPartition("clicks", 0)])
    broker.responses[SyncGroupRequest] = [SyncGroupResponse(protocol_type="consumer", assignment=clicks)]
    async with subscribed(broker, listener) as consumer:
        await consumer.poll(10)
        assert listener.reported == [("assigned", [ORDERS])]
        assert consumer.group_metadata().generation_id == 2


@in_virtual_time
async def test_static_members_need_a_broker_that_knows_them() -> None:
    broker = GroupBroker()
    broker.versions = {ApiKey.JOIN_GROUP: Versions(0, 4)}
    async with subscribed(broker, group_instance_id="me") as consumer:
        with pytest.raises(VersionNotSupported):
            await consumer.poll(10)


@in_virtual_time
async def test_static_member_closed_does_not_leave() -> None:
    broker, listener = GroupBroker(), Noting()
    async with subscribed(broker, listener, group_instance_id="me") as consumer:
        await consumer.poll(10)
        assert {join.group_instance_id for join in broker.joins()} == {"me"}
    assert not broker.seen(LeaveGroupRequest)
    assert listener.reported[-1] == ("revoked", [ORDERS])


@in_virtual_time
async def test_static_leader_that_came_back_assigns_nothing() -> None:
    broker = GroupBroker()
    async with subscribed(broker, group_instance_id="me") as consumer:

        def known(request: JoinGroupRequest) -> JoinGroupResponse:
            response = broker._join(JoinGroupRequest(member_id=MEMBER, protocols=request.protocols))
            response.skip_assignment = True
            return response

        broker.responses[JoinGroupRequest] = [known]  # type: ignore[list-item]
        await consumer.poll(10)
        (sync,) = broker.seen(SyncGroupRequest)
        assert isinstance(sync, SyncGroupRequest)
        assert sync.assignments == []
        assert consumer.assignment == {ORDERS}


# Heartbeats


@in_virtual_time
async def test_heartbeats_go_on_beside_the_application() -> None:
    broker = GroupBroker()
    async with subscribed(broker) as consumer:
        await consumer.poll(5)
        await asyncio.sleep(31)
        beats = broker.seen(HeartbeatRequest)
        assert len(beats) == 10
        (beat, *_) = beats
        assert isinstance(beat, HeartbeatRequest)
        assert (beat.group_id, beat.generation_id, beat.member_id) == ("group", 1, MEMBER)


@pytest.mark.parametrize(
    ("error", "reported", "next_member_id"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, [], MEMBER),
        (ErrorCode.ILLEGAL_GENERATION, [("lost", [ORDERS])], MEMBER),
        (ErrorCode.UNKNOWN_MEMBER_ID, [("lost", [ORDERS])], ""),
    ],
)
def test_heartbeat_error_of_the_group_leads_to_a_rejoin(
    error: ErrorCode, reported: list[tuple[str, list[TopicPartition]]], next_member_id: str
) -> None:
    @in_virtual_time
    async def play() -> None:
        broker, listener = GroupBroker(), Noting()
        async with subscribed(broker, listener) as consumer:
            await consumer.poll(5)
            broker.responses[HeartbeatRequest] = [HeartbeatResponse(error_code=error)]
            await asyncio.sleep(4)
            assert len(broker.joins()) == 2  # Only poll joins.
            await consumer.poll(5)
            assert broker.joins()[2].member_id == next_member_id
            assigned = [("assigned", [ORDERS] if reported else [])]
            assert listener.reported == [("assigned", [ORDERS]), *reported, *assigned]
            subscription = decode_subscription(broker.joins()[2].protocols[0].metadata, None)
            assert subscription.owned == (() if reported else (ORDERS,))
            assert subscription.generation_id == (-1 if reported else 1)

    play()


@in_virtual_time
async def test_heartbeat_with_a_fenced_instance_ends_the_member() -> None:
    broker, listener = GroupBroker(), Noting()
    async with subscribed(broker, listener, group_instance_id="me") as consumer:
        await consumer.poll(5)
        broker.responses[HeartbeatRequest] = [HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)]
        await asyncio.sleep(4)
        for _ in range(2):
            with pytest.raises(InstanceFenced, match="me has joined group group a second time"):
                await consumer.poll(5)
        with pytest.raises(InstanceFenced):
            await consumer.commit({ORDERS: OffsetAndMetadata(1)})
        beats = len(broker.seen(HeartbeatRequest))
        await asyncio.sleep(30)
        assert len(broker.seen(HeartbeatRequest)) == beats


@in_virtual_time
async def test_heartbeats_that_fail_are_repeated_soon_and_a_silent_coordinator_is_looked_for_again() -> None:
    broker = GroupBroker()
    async with subscribed(broker, session_timeout_ms=6_000) as consumer:
        await consumer.poll(5)
        broker.responses[HeartbeatRequest] = [HeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)] * 3
        found = len(broker.seen(FindCoordinatorRequest))
        await asyncio.sleep(3.5)
        assert len(broker.seen(HeartbeatRequest)) >= 3
        broker.responses[HeartbeatRequest] = [Reaction.SILENCE]
        await asyncio.sleep(12)
        assert len(broker.seen(FindCoordinatorRequest)) > found
        assert len(await consumer.poll(1)) == 0
        assert len(broker.joins()) == 2


@in_virtual_time
async def test_coordinator_that_fails_for_a_session_is_looked_up_again() -> None:
    broker = GroupBroker()
    async with subscribed(broker, session_timeout_ms=6_000) as consumer:
        await consumer.poll(5)
        failing = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        broker.responses[HeartbeatRequest] = [failing] * 1_000
        found = len(broker.seen(FindCoordinatorRequest))
        await asyncio.sleep(5)
        assert len(broker.seen(FindCoordinatorRequest)) == found
        await asyncio.sleep(5)
        assert len(broker.seen(FindCoordinatorRequest)) > found


@in_virtual_time
async def test_generation_lost_while_joining_is_not_joined() -> None:
    """The heartbeat was on its way when the rebalance began; the group has gone on without this member."""
    broker, listener = GroupBroker(), Noting()
    async with subscribed(broker, listener) as consumer:
        await consumer.poll(5)
        requested = asyncio.Event()

        def out(request: Message) -> HeartbeatResponse:
            requested.set()
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)

        broker.responses[HeartbeatRequest] = [out]  # type: ignore[list-item]
        await requested.wait()
        consumer.subscribe(["orders", "clicks"], listener)
        await consumer.poll(5)
        assert listener.reported == [("assigned", [ORDERS]), ("lost", [ORDERS]), ("assigned", [ORDERS])]
        assert [join.member_id for join in broker.joins()] == ["", MEMBER, MEMBER, "", MEMBER]


@in_virtual_time
async def test_assignment_whose_generation_is_lost_before_a_poll_is_not_applied() -> None:
    broker, listener = GroupBroker(), Noting()
    async with subscribed(broker, listener) as consumer:
        await consumer.poll(0)
        broker.responses[HeartbeatRequest] = [HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)]
        await asyncio.sleep(4)
        assert broker.generation == 1
        await consumer.poll(5)
        assert listener.reported == [("assigned", [ORDERS])]
        assert consumer.group_metadata().generation_id == 2


@in_virtual_time
async def test_closing_does_not_wait_for_a_coordinator_that_is_silent() -> None:
    broker = GroupBroker()
    async with subscribed(broker) as consumer:
        await consumer.poll(5)
        broker.responses[LeaveGroupRequest] = [Reaction.SILENCE]
        began = asyncio.get_running_loop().time()
        await consumer.close(timeout_seconds=2)
        assert asyncio.get_running_loop().time() - began < 3.5


@in_virtual_time
async def test_heartbeat_without_permission_raises_once() -> None:
    broker = GroupBroker()
    async with subscribed(broker) as consumer:
        await consumer.poll(5)
        broker.responses[HeartbeatRequest] = [HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)]
        await asyncio.sleep(3.01)
        with pytest.raises(BrokerRefused, match="GROUP_AUTHORIZATION_FAILED"):
            await consumer.poll(5)
        assert await consumer.poll(1) == []


@in_virtual_time
async def test_member_that_does_not_poll_leaves_and_rejoins_with_the_next_poll() -> None:
    broker, listener = GroupBroker(batches=3), Noting()
    settings = {"max_poll_interval_ms": 10_000, "session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
    async with subscribed(broker, listener, **settings) as consumer:
        await consumer.poll(5, 1)
        assert len(await consumer.poll(30, 1)) == 1  # However long it waits, who polls is there.
        await asyncio.sleep(12)
        (left,) = broker.seen(LeaveGroupRequest)
        assert isinstance(left, LeaveGroupRequest)
        assert left.members[0].reason == "the application has not polled for max_poll_interval_ms"
        with pytest.raises(CommitFailed):
            await consumer.commit()
        await consumer.poll(5)
        assert listener.reported == [("assigned", [ORDERS]), ("lost", [ORDERS]), ("assigned", [ORDERS])]
        async for _ in consumer:
            await asyncio.sleep(9)
            if len(broker.seen(LeaveGroupRequest)) > 1 or consumer.group_metadata().generation_id != 2:
                pytest.fail("who iterates is there")
            if await consumer.position(ORDERS) == 6:
                break


# Commits


@pytest.mark.parametrize(
    ("error", "raised", "reported"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, RebalanceInProgress, []),
        (ErrorCode.ILLEGAL_GENERATION, CommitFailed, [("lost", [ORDERS])]),
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailed, [("lost", [ORDERS])]),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, BrokerRefused, None),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, BrokerRefused, None),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, BrokerRefused, None),
    ],
)
def test_commit_refused_by_the_coordinator_raises(
    error: ErrorCode, raised: type[Exception], reported: list[tuple[str, list[TopicPartition]]] | None
) -> None:
    @in_virtual_time
    async def play() -> None:
        broker, listener = GroupBroker(), Noting()
        async with subscribed(broker, listener) as consumer:
            await consumer.poll(5)
            broker.responses[OffsetCommitRequest] = [lambda request: committed(request, error)]  # type: ignore[list-item]
            with pytest.raises(raised):
                await consumer.commit()
            assert len(broker.seen(OffsetCommitRequest)) == 1
            await consumer.poll(5)
            if reported is None:
                assert len(broker.joins()) == 2
            else:
                assert listener.reported[1:-1] == reported
                assert consumer.group_metadata().generation_id == 2
            await consumer.commit()

    play()


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_commit_survives_retriable_errors(error: ErrorCode) -> None:
    @in_virtual_time
    async def play() -> None:
        broker = GroupBroker()
        async with subscribed(broker) as consumer:
            await consumer.poll(5)
            broker.responses[OffsetCommitRequest] = [lambda request: committed(request, error)] * 2  # type: ignore[list-item]
            await consumer.commit()
            *_, commit = requests = broker.seen(OffsetCommitRequest)
            assert len(requests) == 3
            assert isinstance(commit, OffsetCommitRequest)
            assert (commit.generation_id_or_member_epoch, commit.member_id) == (1, MEMBER)
            (partition,) = commit.topics[0].partitions
            assert (partition.committed_offset, partition.committed_leader_epoch) == (2, 0)

    play()


@in_virtual_time
async def test_commit_for_a_topic_that_stays_unknown_raises() -> None:
    broker = GroupBroker()
    async with subscribed(broker) as consumer:
        await consumer.poll(5)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.responses[OffsetCommitRequest] = [lambda request: committed(request, unknown)] * 100  # type: ignore[list-item]
        with pytest.raises(BrokerRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await consumer.commit()


@in_virtual_time
async def test_commit_without_a_response_times_out() -> None:
    broker = GroupBroker()
    async with subscribed(broker) as consumer:
        await consumer.poll(5)
        broker.responses[OffsetCommitRequest] = [Reaction.SILENCE]
        with pytest.raises(OperationTimedOut, match=r"not committed within 2 s$"):
            await consumer.commit(timeout_seconds=2)


@in_virtual_time
async def test_commit_that_times_out_names_the_error_of_its_last_attempt() -> None:
    """A coordinator whose disk is full returns NOT_COORDINATOR."""
    broker = GroupBroker()
    async with subscribed(broker) as consumer:
        await consumer.poll(5)
        wrong = ErrorCode.NOT_COORDINATOR
        broker.responses[OffsetCommitRequest] = [lambda request: committed(request, wrong)] * 1_000  # type: ignore[list-item]
        expected = "not committed within 2 s: the last attempt ended with NOT_COORDINATOR (`oncelog health`"
        with pytest.raises(OperationTimedOut, match=re.escape(expected)):
            await consumer.commit(timeout_seconds=2)


@in_virtual_time
async def test_commit_is_not_retried_in_another_generation() -> None:
    """The partition could be another member's by then, and its progress undone."""
    broker = GroupBroker()
    async with subscribed(broker) as consumer:
        await consumer.poll(5)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        broker.responses[OffsetCommitRequest] = [lambda request: committed(request, loading)] * 50  # type: ignore[list-item]
        committing = asyncio.get_running_loop().create_task(consumer.commit())
        await asyncio.sleep(2)
        broker.responses[HeartbeatRequest] = [HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)]
        await asyncio.sleep(2)
        await consumer.poll(5)
        assert consumer.group_metadata().generation_id == 2
        sent = len(broker.seen(OffsetCommitRequest))
        with pytest.raises(CommitFailed):
            await committing
        assert len(broker.seen(OffsetCommitRequest)) == sent
        assert {request.generation_id_or_member_epoch for request in broker.seen(OffsetCommitRequest)} == {1}  # type: ignore[attr-defined]


@in_virtual_time
async def test_commits_are_sent_in_the_order_of_their_calls() -> None:
    broker = GroupBroker()
    async with subscribed(broker) as consumer:
        await consumer.poll(5)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        broker.responses[OffsetCommitRequest] = [lambda request: committed(request, loading)] * 2  # type: ignore[list-item]
        async with asyncio.TaskGroup() as tasks:
            for offset in (1, 2):
                tasks.create_task(consumer.commit({ORDERS: OffsetAndMetadata(offset)}))
        sent = [r.topics[0].partitions[0].committed_offset for r in broker.seen(OffsetCommitRequest)]  # type: ignore[attr-defined]
        assert sent == [1, 1, 1, 2]


@in_virtual_time
async def test_poll_between_an_automatic_commit_and_its_revocation_returns_nothing() -> None:
    """It would be returned again by the next owner, which begins where the commit says."""
    broker, listener = GroupBroker(batches=3), Noting()
    settings = {"assignors": ("range",), "enable_auto_commit": True, "auto_commit_interval_ms": 600_000}
    async with subscribed(broker, listener, **settings) as consumer:
        assert len(await consumer.poll(5, 1)) == 1
        broker.responses[HeartbeatRequest] = [HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)]
        await asyncio.sleep(3.01)
        broker.responses[OffsetCommitRequest] = [Reaction.SILENCE]
        assert await consumer.poll(0.5) == []
        assert listener.reported == [("assigned", [ORDERS])]
        (commit,) = broker.seen(OffsetCommitRequest)
        assert isinstance(commit, OffsetCommitRequest)
        assert commit.topics[0].partitions[0].committed_offset == 1
        for connection in list(broker.connections):
            connection.transport.close()
        records = await consumer.poll(60)
        assert listener.reported[1:] == [("revoked", [ORDERS]), ("assigned", [ORDERS])]
        assert records[0].offset == 0  # The script remembers no commits.


@in_virtual_time
async def test_records_read_during_a_rebalance_are_committed_before_revocation() -> None:
    broker, listener = GroupBroker(batches=3), Noting()
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 600_000}
    async with subscribed(broker, listener, **settings) as consumer:
        assert len(await consumer.poll(5, 1)) == 1
        broker.responses[HeartbeatRequest] = [HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)]
        await asyncio.sleep(3.01)
        loading = JoinGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        broker.responses[JoinGroupRequest] = [loading] * 6
        broker.assignment = []
        seen = 1
        while consumer.assignment:
            seen += len(await consumer.poll(1, 1))
        assert seen == 6
        assert listener.reported[1:3] == [("revoked", [ORDERS]), ("assigned", [])]
        commits = [r.topics[0].partitions[0].committed_offset for r in broker.seen(OffsetCommitRequest)]  # type: ignore[attr-defined]
        assert commits == [1, 6]
        assert len(broker.joins()) == 2 + 6 + 1 + 1  # The last one because something was given up.


# What is committed


def fetched(offset: int, error: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponse:
    """Before version 8 and since."""
    fields = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": 0, "error_code": error}
    old, new = OffsetFetchResponsePartition(**fields), OffsetFetchResponsePartitions(**fields)
    topic = OffsetFetchResponseTopics(name="orders", partitions=[new])
    return OffsetFetchResponse(
        topics=[OffsetFetchResponseTopic(name="orders", partitions=[old])],
        groups=[OffsetFetchResponseGroup(group_id="group", topics=[topic])],
    )


@pytest.mark.parametrize("versions", [Versions(1, 9), Versions(1, 5)])
def test_member_begins_at_the_stable_committed_offset(versions: Versions) -> None:
    @in_virtual_time
    async def play() -> None:
        broker = GroupBroker(batches=3)
        broker.versions = {ApiKey.OFFSET_FETCH: versions}
        broker.responses[OffsetFetchRequest] = [fetched(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT), fetched(4)]
        broker.script[OffsetForLeaderEpochRequest] = ends(0, 6)
        async with subscribed(broker) as consumer:
            assert [record.offset for record in await consumer.poll(10)] == [4, 5]
        first, second = broker.seen(OffsetFetchRequest)
        assert first == second
        assert isinstance(first, OffsetFetchRequest)
        assert first.require_stable == (versions.last >= 7)

    play()


@in_virtual_time
async def test_automatic_commits_of_standing_positions_are_repeated() -> None:
    """A group without members forgets an offset some time after its last commit, however long it is read from there."""
    broker = GroupBroker()
    settings = {"group_id": "group", "auto_offset_reset": "earliest", "enable_auto_commit": True}
    async with connected(broker, reported=ScriptedMetadata([1]), **settings) as consumer:
        consumer.assign([ORDERS])
        for _ in range(31):
            await consumer.poll(1.0)
        commits = [r.topics[0].partitions[0].committed_offset for r in broker.seen(OffsetCommitRequest)]  # type: ignore[attr-defined]
        assert commits == [2] * len(commits)
        assert 5 <= len(commits) <= 7
