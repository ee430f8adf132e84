"""JoinGroup: become, or stay, a member of a group's next generation. The response is sent when all members have joined.

Version 0 has no rebalance time-out. From version 4 on a new dynamic member is first given its id (MEMBER_ID_REQUIRED)
and joins with it again, so that a client that retries does not leave a member behind each time. Version 5 has static
members, 7 the protocol's type in the response and its name nullable, 8 the client's reason, 9 ``skip_assignment``.
"""

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.coordinator.group.joining_member import JoiningMember
from oncelog.coordinator.group.member import GroupProtocol, JoinResult
from oncelog.coordinator.promise import Promise
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

_FIRST_WITH_REQUIRED_MEMBER_ID = 4
_FIRST_WITH_NULLABLE_PROTOCOL = 7
_FIRST_WITH_SKIP_ASSIGNMENT = 9


@handles(ApiKey.JOIN_GROUP, versions="0-9")
def handle_join_group(broker: Broker, context: RequestContext, request: JoinGroupRequest) -> Outcome:
    version = context.api_version
    if not broker.authorizer.authorize(context, Operation.READ, ResourceType.GROUP, request.group_id):
        refused = JoinResult(error=ErrorCode.GROUP_AUTHORIZATION_FAILED, member_id="")
        return _response(refused, version)
    reply: Promise[JoinGroupResponse] = Promise()
    broker.group_coordinator.join_group(
        _joining_member(context, request), lambda result: reply.complete(_response(result, version))
    )
    return reply.result()


def _joining_member(context: RequestContext, request: JoinGroupRequest) -> JoiningMember:
    return JoiningMember(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.connection.client_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=[GroupProtocol(protocol.name, protocol.metadata) for protocol in request.protocols],
        requires_known_member_id=context.api_version >= _FIRST_WITH_REQUIRED_MEMBER_ID,
        supports_skipping_assignment=context.api_version >= _FIRST_WITH_SKIP_ASSIGNMENT,
        reason=request.reason,
    )


def _response(result: JoinResult, version: int) -> JoinGroupResponse:
    protocol_name = result.protocol_name
    if protocol_name is None and version < _FIRST_WITH_NULLABLE_PROTOCOL:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in result.members
        ],
    )
