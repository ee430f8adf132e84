"""DescribeGroups: state and members of groups that this broker coordinates.

Version 3 has the operations that the client is allowed, 4 the names of static members. From version 6 on a group that
does not exist is an error; before, it looks like a dead group without members.

A group that is named again is not described again, and no more than fits into a response (``ResponseRoom``); the others
are COORDINATOR_LOAD_IN_PROGRESS, so that clients request them again alone.
"""

from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import CHARACTERS_PER_UNIT, Steps
from oncelog.broker.handlers.description import Description
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType, authorized_operations
from oncelog.coordinator.group.member import MemberImage
from oncelog.coordinator.group.state import GroupState
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_FIRST_WITH_OPERATIONS = 3
_LONGEST_QUOTED = 1_000
"""An id can be as long as any string of the protocol, and a message that quotes it must not be longer."""
_FIRST_WITH_NOT_FOUND = 6
_UNITS_PER_GROUP: Final = 40
_UNITS_PER_MEMBER: Final = 4
_BYTES_PER_MEMBER: Final = 20


def refuse_describe_groups(request: DescribeGroupsRequest, version: int, error: ErrorCode) -> DescribeGroupsResponse:
    """Return the error for every group."""
    return DescribeGroupsResponse(groups=[_error(group_id, error) for group_id in request.groups])


@handles(ApiKey.DESCRIBE_GROUPS, versions="0-6", error_response=refuse_describe_groups, in_turn=True)
def handle_describe_groups(broker: Broker, context: RequestContext, request: DescribeGroupsRequest) -> Outcome:
    description = _Description(broker, context)
    return description.start(description.of_all(request))


class _Description(Description):
    """The response to one request, while it is made."""

    def of_all(self, request: DescribeGroupsRequest) -> Steps[DescribeGroupsResponse]:
        response = DescribeGroupsResponse()
        has_operations = self.context.api_version >= _FIRST_WITH_OPERATIONS
        for group_id in dict.fromkeys(request.groups):
            self.budget.left -= _UNITS_PER_GROUP + len(group_id) // CHARACTERS_PER_UNIT
            if self.budget.left <= 0:
                yield None
            group = yield from self._of_group(group_id)
            if has_operations and request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = authorized_operations(
                    self.broker.authorizer, self.context, ResourceType.GROUP, group_id
                )
            response.groups.append(group)
        return response

    def _of_group(self, group_id: str) -> Steps[DescribedGroup]:
        if not self.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            return _error(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if self.room.is_used_up:
            return _error(group_id, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        description = self.broker.group_coordinator.describe_group(group_id)
        if description is ErrorCode.GROUP_ID_NOT_FOUND:
            return _not_found(group_id, self.context.api_version)
        if isinstance(description, ErrorCode):
            return _error(group_id, description)
        group = DescribedGroup(
            group_id=group_id,
            group_state=description.state.value,
            protocol_type=description.protocol_type,
            protocol_data=description.protocol_name,
        )
        for member in description.members:
            self.room.take(_size(member))
            self.budget.left -= _UNITS_PER_MEMBER
            if self.budget.left <= 0:
                yield None
            group.members.append(_described_member(member))
        return group


def _size(member: MemberImage) -> int:
    """Return about how many bytes a member has in the response."""
    ids = len(member.member_id) + len(member.client_id) + len(member.client_host)
    return _BYTES_PER_MEMBER + ids + len(member.subscription) + len(member.assignment)


def _described_member(member: MemberImage) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.subscription,
        member_assignment=member.assignment,
    )


def _not_found(group_id: str, version: int) -> DescribedGroup:
    if version < _FIRST_WITH_NOT_FOUND:
        return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    return DescribedGroup(
        group_id=group_id,
        group_state=GroupState.DEAD.value,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id[:_LONGEST_QUOTED]} not found.",
    )


def _error(group_id: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error)
