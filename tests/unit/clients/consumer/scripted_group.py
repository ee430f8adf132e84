"""A coordinator that answers as it is told to, with a group of one member behind it."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from oncelog.clients.consumer import Consumer, RebalanceListener
from oncelog.clients.consumer.embedded_protocol import encode_assignment
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from oncelog.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from oncelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from oncelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.clients.consumer.scripted_log import Leader, ScriptedMetadata, connected
from tests.unit.clients.scripted_broker import ScriptedResponse

MEMBER = "member-1"


class GroupBroker(Leader):
    """Leads ``orders`` and coordinates the group. ``answers`` holds what to answer to the next requests of a class."""

    def __init__(self, *, leads: bool = True, batches: int = 1) -> None:
        super().__init__(1, batches)
        self.leads = leads
        self.generation = 0
        self.assignment = [TopicPartition("orders", 0)]
        self.responses: dict[type[Message], list[ScriptedResponse]] = {}
        for cls, script in (
            (FindCoordinatorRequest, self._find),
            (JoinGroupRequest, self._join),
            (SyncGroupRequest, self._sync),
            (HeartbeatRequest, lambda _: HeartbeatResponse()),
            (LeaveGroupRequest, lambda _: LeaveGroupResponse()),
            (OffsetFetchRequest, lambda _: OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="group")])),
            (OffsetCommitRequest, lambda request: committed(request)),
            (DescribeGroupsRequest, lambda _: self._describe()),
        ):
            self.script[cls] = self._scripted(cls, script)

    def _scripted(self, cls: type[Message], usual: Any) -> Any:
        def respond(request: Message) -> ScriptedResponse:
            waiting = self.responses.get(cls)
            if waiting:
                reported = waiting.pop(0)
                return reported(request) if callable(reported) else reported
            responded: ScriptedResponse = usual(request)
            return responded

        return respond

    def _find(self, request: Message) -> FindCoordinatorResponse:
        found = Coordinator(key="group", node_id=1, host=self.address.host, port=self.address.port)
        return FindCoordinatorResponse(coordinators=[found])

    def _join(self, request: Message) -> JoinGroupResponse:
        assert isinstance(request, JoinGroupRequest)
        if not request.member_id:
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=MEMBER)
        self.generation += 1
        metadata = request.protocols[0].metadata
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=request.protocols[0].name,
            leader=request.member_id if self.leads else "somebody",
            member_id=request.member_id,
            members=[JoinGroupResponseMember(member_id=request.member_id, metadata=metadata)] if self.leads else [],
        )

    def _sync(self, request: Message) -> SyncGroupResponse:
        assert isinstance(request, SyncGroupRequest)
        return SyncGroupResponse(
            protocol_type="consumer",
            protocol_name=request.protocol_name,
            assignment=encode_assignment(self.assignment),
        )

    def _describe(self) -> DescribeGroupsResponse:
        """Both partitions of ``orders`` are assigned, one of them to another member."""
        assigned = encode_assignment([TopicPartition("orders", index) for index in range(2)])
        group = DescribedGroup(group_id="group", members=[DescribedGroupMember(member_assignment=assigned)])
        return DescribeGroupsResponse(groups=[group])

    def joins(self) -> list[JoinGroupRequest]:
        return [request for request in self.requests if isinstance(request, JoinGroupRequest)]


def committed(request: Message, error: ErrorCode = ErrorCode.NONE) -> OffsetCommitResponse:
    """The same for every partition that is in the request."""
    assert isinstance(request, OffsetCommitRequest)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class Noting(RebalanceListener):
    """Notes what it is told, in order."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, list[TopicPartition]]] = []

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.reported.append(("revoked", list(partitions)))

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.reported.append(("assigned", list(partitions)))

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.reported.append(("lost", list(partitions)))


@asynccontextmanager
async def subscribed(
    broker: GroupBroker, listener: RebalanceListener | None = None, topics: Any = ("orders",), **settings: Any
) -> AsyncIterator[Consumer]:
    """A consumer that subscribes to ``orders``, or what ``topics`` says, and has not polled yet."""
    defaults = {"group_id": "group", "auto_offset_reset": "earliest"}
    async with connected(broker, reported=ScriptedMetadata([1, 1]), **{**defaults, **settings}) as consumer:
        consumer.subscribe(topics, listener)
        yield consumer
