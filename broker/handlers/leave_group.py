"""LeaveGroup: members go at once, instead of by a session's end.

Versions 0-2 name one member, whose error is the response's error. From version 3 on several members leave in one
request, each with its own error, and static ones may be named by their instance id alone; 5 has the client's reason.
"""

import asyncio
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import in_slices, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.coordinator.group.coordinator import LeavingMember
from oncelog.coordinator.promise import Promise
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse

_FIRST_WITH_SEVERAL_MEMBERS = 3
_MANY_MEMBERS: Final = 500


@handles(ApiKey.LEAVE_GROUP, versions="0-5")
def handle_leave_group(broker: Broker, context: RequestContext, request: LeaveGroupRequest) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    version = context.api_version
    if len(request.members) > _MANY_MEMBERS:
        return _leave_in_slices(broker, context, request)
    leavers = _leaving_members(request, version)
    reply: Promise[LeaveGroupResponse] = Promise()
    broker.group_coordinator.leave_group(
        request.group_id, leavers, lambda errors: reply.complete(_response(leavers, errors, version))
    )
    return reply.result()


def _leaving_members(request: LeaveGroupRequest, version: int) -> list[LeavingMember]:
    if version < _FIRST_WITH_SEVERAL_MEMBERS:
        return [LeavingMember(member_id=request.member_id)]
    return [_leaving_member(member) for member in request.members]


def _leaving_member(member: MemberIdentity) -> LeavingMember:
    return LeavingMember(member_id=member.member_id, group_instance_id=member.group_instance_id, reason=member.reason)


async def _leave_in_slices(broker: Broker, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove all members in one step; the request is read, and the response made, in slices."""
    budget, work, connection = new_budget(), broker.sliced_work, context.connection
    leavers = await work.finish(in_slices(request.members, _leaving_member, budget, 1), budget, connection)
    reply: Promise[list[ErrorCode] | ErrorCode] = Promise()
    broker.group_coordinator.leave_group(request.group_id, leavers, reply.complete)
    result = reply.result()
    errors = await result if isinstance(result, asyncio.Future) else result
    if isinstance(errors, ErrorCode):
        return LeaveGroupResponse(error_code=errors)
    steps = in_slices(zip(leavers, errors, strict=True), _member_response, budget, 1)
    return LeaveGroupResponse(members=await work.run(steps, budget, connection, needs_place=False))


def _member_response(left: tuple[LeavingMember, ErrorCode]) -> MemberResponse:
    leaver, error = left
    return MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=error)


def _response(leavers: list[LeavingMember], errors: list[ErrorCode] | ErrorCode, version: int) -> LeaveGroupResponse:
    if isinstance(errors, ErrorCode):
        return LeaveGroupResponse(error_code=errors)
    if version < _FIRST_WITH_SEVERAL_MEMBERS:
        return LeaveGroupResponse(error_code=errors[0])
    return LeaveGroupResponse(members=list(map(_member_response, zip(leavers, errors, strict=True))))
