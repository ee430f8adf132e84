"""SyncGroup: the leader hands in the assignment, and every member gets its own part of it when that is durable.

Version 3 has static members. From version 5 on requests must name the protocol that they mean, so that a member which
missed a change of it gets an error (KIP-559).
"""

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.coordinator.group.member import SyncResult
from oncelog.coordinator.group.state import SyncRequest
from oncelog.coordinator.promise import Promise
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_FIRST_WITH_PROTOCOL = 5


@handles(ApiKey.SYNC_GROUP, versions="0-5")
def handle_sync_group(broker: Broker, context: RequestContext, request: SyncGroupRequest) -> Outcome:
    if context.api_version >= _FIRST_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not broker.authorizer.authorize(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    reply: Promise[SyncGroupResponse] = Promise()
    broker.group_coordinator.sync_group(
        request.group_id, _sync_request(request), lambda result: reply.complete(_response(result))
    )
    return reply.result()


def _sync_request(request: SyncGroupRequest) -> SyncRequest:
    return SyncRequest(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={member.member_id: member.assignment for member in request.assignments},
    )


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
