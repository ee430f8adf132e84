"""A controller and coordinator that does what it is asked, and whose responses meet faults: a model of the truth."""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from uuid import UUID

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from oncelog.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from oncelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from oncelog.protocol.schema import Message
from tests.unit.clients.admin.coordinator_scripts import coordinated_by
from tests.unit.clients.scripted_broker import Reaction, Script, ScriptedBroker, ScriptedResponse


class Fault(Enum):
    """What can happen to one request that changes something."""

    NONE = auto()
    LOST_REQUEST = auto()
    """Nothing is done, and the connection ends."""
    LOST_RESPONSE = auto()
    """Everything is done, and the connection ends."""
    SILENCE = auto()
    """Everything is done, and nothing is said."""
    LATE = auto()
    """Everything is done, and each item gets REQUEST_TIMED_OUT."""
    HALF = auto()
    """Every other item is done; the rest gets an error that passes."""
    REFUSED = auto()
    """Nothing is done, and each item gets an error that passes."""


class AdministeredCluster:
    """Topics with partition counts, groups, and the members of one group."""

    def __init__(self, faults: Sequence[Fault], passing: ErrorCode) -> None:
        self.topics: dict[str, int] = {}
        self.ids: dict[str, UUID] = {}
        self.groups: set[str] = set()
        self.members: set[str] = set()
        self._faults = list(faults)
        self._passing = passing
        self.broker = ScriptedBroker({})
        self.broker.script |= {
            MetadataRequest: self._metadata,
            FindCoordinatorRequest: lambda request: coordinated_by(self.broker)(request),
            CreateTopicsRequest: self._change(self._create),
            DeleteTopicsRequest: self._change(self._delete),
            CreatePartitionsRequest: self._change(self._add_partitions),
            DeleteGroupsRequest: self._change(self._delete_groups),
            LeaveGroupRequest: self._change(self._remove_members),
        }

    def _change(self, carry_out: Callable[[Message, "Turns"], Message]) -> Script:
        def respond(request: Message) -> ScriptedResponse:
            fault = self._faults.pop(0) if self._faults else Fault.NONE
            if fault is Fault.LOST_REQUEST:
                return Reaction.CLOSE
            response = carry_out(request, Turns(fault, self._passing))
            if fault is Fault.LOST_RESPONSE:
                return Reaction.CLOSE
            return Reaction.SILENCE if fault is Fault.SILENCE else response

        return respond

    def _metadata(self, request: Message) -> MetadataResponse:
        assert isinstance(request, MetadataRequest)
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host=self.broker.address.host, port=self.broker.address.port)],
            controller_id=1,
            topics=[self._topic(topic.name or "") for topic in request.topics or ()],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=1, replica_nodes=[1])
            for index in range(self.topics[name])
        ]
        return MetadataResponseTopic(name=name, partitions=partitions)

    def _create(self, request: Message, turns: "Turns") -> Message:
        assert isinstance(request, CreateTopicsRequest)
        response = CreateTopicsResponse()
        for topic in request.topics:
            error = turns.before_item()
            if error is None:
                exists = topic.name in self.topics
                error = turns.after_item(ErrorCode.TOPIC_ALREADY_EXISTS if exists else ErrorCode.NONE)
                self.topics.setdefault(topic.name, topic.num_partitions)
            response.topics.append(CreatableTopicResult(name=topic.name, error_code=error))
        return response

    def _delete(self, request: Message, turns: "Turns") -> Message:
        assert isinstance(request, DeleteTopicsRequest)
        response = DeleteTopicsResponse()
        for topic in request.topics:
            by_id = topic.name is None
            names = {each.bytes: name for name, each in self.ids.items()}
            name = names.get(topic.topic_id, "") if topic.name is None else topic.name
            error = turns.before_item()
            if error is None:
                missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                error = turns.after_item(ErrorCode.NONE if name in self.topics else missing)
                self.topics.pop(name, None)
            response.responses.append(
                DeletableTopicResult(name=None if by_id else name, topic_id=topic.topic_id, error_code=error)
            )
        return response

    def _add_partitions(self, request: Message, turns: "Turns") -> Message:
        assert isinstance(request, CreatePartitionsRequest)
        response = CreatePartitionsResponse()
        for topic in request.topics:
            error = turns.before_item()
            if error is None:
                grows = topic.count > self.topics[topic.name]
                error = turns.after_item(ErrorCode.NONE if grows else ErrorCode.INVALID_PARTITIONS)
                self.topics[topic.name] = max(topic.count, self.topics[topic.name])
            response.results.append(CreatePartitionsTopicResult(name=topic.name, error_code=error))
        return response

    def _delete_groups(self, request: Message, turns: "Turns") -> Message:
        assert isinstance(request, DeleteGroupsRequest)
        response = DeleteGroupsResponse()
        for group_id in request.groups_names:
            error = turns.before_item()
            if error is None:
                exists = group_id in self.groups
                error = turns.after_item(ErrorCode.NONE if exists else ErrorCode.GROUP_ID_NOT_FOUND)
                self.groups.discard(group_id)
            response.results.append(DeletableGroupResult(group_id=group_id, error_code=error))
        return response

    def _remove_members(self, request: Message, turns: "Turns") -> Message:
        assert isinstance(request, LeaveGroupRequest)
        response = LeaveGroupResponse()
        for member in request.members:
            error = turns.before_item()
            if error is None:
                exists = member.member_id in self.members
                error = turns.after_item(ErrorCode.NONE if exists else ErrorCode.UNKNOWN_MEMBER_ID)
                self.members.discard(member.member_id)
            response.members.append(
                MemberResponse(member_id=member.member_id, group_instance_id=None, error_code=error)
            )
        return response


class Turns:
    """What a fault means for the items of one request, in their order."""

    def __init__(self, fault: Fault, passing: ErrorCode) -> None:
        self._fault = fault
        self._passing = passing
        self._items = self._refusals()

    def _refusals(self) -> Iterator[bool]:
        refused = self._fault is Fault.REFUSED
        while True:
            yield refused
            refused = refused if self._fault is not Fault.HALF else not refused

    def before_item(self) -> ErrorCode | None:
        """The error of an item that is not carried out; None for one that is."""
        return self._passing if next(self._items) else None

    def after_item(self, error: ErrorCode) -> ErrorCode:
        """The error that is told of an item that was carried out, or finally refused."""
        return ErrorCode.REQUEST_TIMED_OUT if self._fault is Fault.LATE else error
