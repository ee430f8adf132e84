"""DeleteGroups: forget groups that have no members, and their offsets (KIP-229)."""

from typing import TYPE_CHECKING

from broker.dispatch import Outcome, RequestContext, handles
from broker.security.authorizer import Operation, ResourceType
from coordinator.runtime import Reply
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from broker.server import Broker


def refuse_delete_groups(request: DeleteGroupsRequest, version: int, error: ErrorCode) -> DeleteGroupsResponse:
    """The error for every group."""
    return _response(dict.fromkeys(request.groups_names, error))


@handles(ApiKey.DELETE_GROUPS, versions="0-2", error_response=refuse_delete_groups)
def handle_delete_groups(broker: "Broker", context: RequestContext, request: DeleteGroupsRequest) -> Outcome:
    refused = {
        group_id: ErrorCode.GROUP_AUTHORIZATION_FAILED
        for group_id in request.groups_names
        if not broker.authorizer.authorize(context, Operation.DELETE, ResourceType.GROUP, group_id)
    }
    reply: Reply[DeleteGroupsResponse] = Reply()
    broker.group_coordinator.delete_groups(
        [group_id for group_id in request.groups_names if group_id not in refused],
        lambda errors: reply(_response(errors | refused)),
    )
    return reply.answer()


def _response(errors: dict[str, ErrorCode]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=error) for group_id, error in errors.items()]
    )
