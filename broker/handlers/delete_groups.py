"""DeleteGroups: forget groups that have no members, and their offsets (KIP-229)."""

import asyncio
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import CHARACTERS_PER_UNIT, Steps, in_slices, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.coordinator.promise import Promise
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.protocol.records.record_walk import WorkBudget

_GROUPS_AT_ONCE: Final = 100
_UNITS_PER_GROUP: Final = 4


def refuse_delete_groups(request: DeleteGroupsRequest, version: int, error: ErrorCode) -> DeleteGroupsResponse:
    """Return the error for every group."""
    return _response(dict.fromkeys(request.groups_names, error))


@handles(ApiKey.DELETE_GROUPS, versions="0-2", error_response=refuse_delete_groups)
def handle_delete_groups(broker: Broker, context: RequestContext, request: DeleteGroupsRequest) -> Outcome:
    if len(request.groups_names) > _GROUPS_AT_ONCE:
        return _delete_in_slices(broker, context, request)
    refused = {
        group_id: ErrorCode.GROUP_AUTHORIZATION_FAILED
        for group_id in request.groups_names
        if not broker.authorizer.authorize(context, Operation.DELETE, ResourceType.GROUP, group_id)
    }
    reply: Promise[DeleteGroupsResponse] = Promise()
    broker.group_coordinator.delete_groups(
        [group_id for group_id in request.groups_names if group_id not in refused],
        lambda errors: reply.complete(_response(errors | refused)),
    )
    return reply.result()


async def _delete_in_slices(
    broker: Broker, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Delete some groups after the others: each is deleted, or not, by itself."""
    budget, work, connection = new_budget(), broker.sliced_work, context.connection
    errors: dict[str, ErrorCode] = {}
    replies: list[Promise[dict[str, ErrorCode]]] = []
    await work.finish(_delete_some(broker, context, request, errors, replies, budget), budget, connection)
    for reply in replies:
        result = reply.result()
        errors |= await result if isinstance(result, asyncio.Future) else result
    results = in_slices(errors.items(), _result, budget, 1)
    return DeleteGroupsResponse(results=await work.run(results, budget, connection, needs_place=False))


def _delete_some(
    broker: Broker,
    context: RequestContext,
    request: DeleteGroupsRequest,
    refused: dict[str, ErrorCode],
    replies: list[Promise[dict[str, ErrorCode]]],
    budget: WorkBudget,
) -> Steps[None]:
    group_ids = list(dict.fromkeys(request.groups_names))
    for first in range(0, len(group_ids), _GROUPS_AT_ONCE):
        allowed: list[str] = []
        for group_id in group_ids[first : first + _GROUPS_AT_ONCE]:
            if broker.authorizer.authorize(context, Operation.DELETE, ResourceType.GROUP, group_id):
                allowed.append(group_id)
            else:
                refused[group_id] = ErrorCode.GROUP_AUTHORIZATION_FAILED
            budget.left -= _UNITS_PER_GROUP + len(group_id) // CHARACTERS_PER_UNIT
        replies.append(Promise())
        broker.group_coordinator.delete_groups(allowed, replies[-1].complete)
        if budget.left <= 0:
            yield None


def _result(deleted: tuple[str, ErrorCode]) -> DeletableGroupResult:
    group_id, error = deleted
    return DeletableGroupResult(group_id=group_id, error_code=error)


def _response(errors: dict[str, ErrorCode]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=list(map(_result, errors.items())))
