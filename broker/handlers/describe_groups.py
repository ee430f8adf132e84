"""DescribeGroups: state and members of groups that this broker coordinates.

Version 3 has the operations that the client is allowed, 4 the names of static members. From version 6 on a group that
does not exist is an error; before, it looks like a dead group without members.
"""

from typing import TYPE_CHECKING

from broker.dispatch import Outcome, RequestContext, handles
from broker.security.authorizer import Operation, ResourceType, authorized_operations
from coordinator.group.coordinator import GroupDescription
from coordinator.group.member import MemberImage
from coordinator.group.state import GroupState
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from broker.server import Broker

_FIRST_WITH_OPERATIONS = 3
_LONGEST_QUOTED = 1_000
"""An id can be as long as any string of the protocol, and a message that quotes it must not be longer."""
_FIRST_WITH_NOT_FOUND = 6


def refuse_describe_groups(request: DescribeGroupsRequest, version: int, error: ErrorCode) -> DescribeGroupsResponse:
    """The error for every group."""
    return DescribeGroupsResponse(groups=[_error(group_id, error) for group_id in request.groups])


@handles(ApiKey.DESCRIBE_GROUPS, versions="0-6", error_response=refuse_describe_groups)
def handle_describe_groups(broker: "Broker", context: RequestContext, request: DescribeGroupsRequest) -> Outcome:
    groups = [_describe(broker, context, group_id) for group_id in request.groups]
    if request.include_authorized_operations and context.api_version >= _FIRST_WITH_OPERATIONS:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = authorized_operations(
                    broker.authorizer, context, ResourceType.GROUP, group.group_id
                )
    return DescribeGroupsResponse(groups=groups)


def _describe(broker: "Broker", context: RequestContext, group_id: str) -> DescribedGroup:
    if not broker.authorizer.authorize(context, Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return _error(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    description = broker.group_coordinator.describe_group(group_id)
    if description is ErrorCode.GROUP_ID_NOT_FOUND:
        return _not_found(group_id, context.api_version)
    if isinstance(description, ErrorCode):
        return _error(group_id, description)
    return _described_group(group_id, description)


def _described_group(group_id: str, description: GroupDescription) -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id,
        group_state=description.state.value,
        protocol_type=description.protocol_type,
        protocol_data=description.protocol_name,
        members=[_described_member(member) for member in description.members],
    )


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
