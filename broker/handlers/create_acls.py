"""CreateAcls (API key 30): add access control lists.

Each creation is done or refused by itself; one that exists already is done. When the response is sent this broker
decides by what was created, and the others do so as soon as they have read it. Without ``authorizer.class.name`` the
response is SECURITY_DISABLED.

What makes no sense is INVALID_REQUEST, also where Apache Kafka has UNKNOWN_SERVER_ERROR (types that are for filters
only), and so is a name that has no place in ZooKeeper.

Versions: 2 is flexible; 3 has user resources.
"""

from collections.abc import Sequence
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, in_slices, new_budget
from oncelog.broker.handlers.acl_requests import NO_STORE, acls_for, is_without_store, member, seconds_for_changes
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.coordinator.controller.acl_changes import MOST_CHANGES, TOO_MANY, Addition, Change, why_invalid_binding
from oncelog.coordinator.controller.acl_repository import AclRepository
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.protocol.acl import AccessControlEntry, AclBinding, AclPermissionType, PatternType, ResourcePattern
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from oncelog.protocol.records.record_walk import WorkBudget

_UNITS_PER_CREATION: Final = 4


def refuse_create_acls(
    request: CreateAclsRequest, version: int, error: ErrorCode, message: str | None = None
) -> CreateAclsResponse:
    """Return the error for every creation."""
    return _response([ApiError(error, message)] * len(request.creations))


@handles(ApiKey.CREATE_ACLS, versions="1-3", error_response=refuse_create_acls)
def handle_create_acls(broker: Broker, context: RequestContext, request: CreateAclsRequest) -> Outcome:
    acls = acls_for(broker, context, Operation.ALTER, "No Authorizer is configured.")
    if isinstance(acls, ApiError):
        return refuse_create_acls(request, context.api_version, *acls)
    if len(request.creations) > MOST_CHANGES:
        return refuse_create_acls(request, context.api_version, *TOO_MANY)
    return _create(broker, context, request, acls)


async def _create(
    broker: Broker, context: RequestContext, request: CreateAclsRequest, acls: AclRepository
) -> CreateAclsResponse:
    budget, work, connection = new_budget(), broker.sliced_work, context.connection
    bindings = await work.finish(_bindings(request.creations, budget), budget, connection)
    changes = await work.finish(_additions(bindings, budget), budget, connection)
    if changes and is_without_store(broker):
        return _response([each if isinstance(each, ApiError) else NO_STORE for each in bindings])
    results = await acls.change(changes, timeout_seconds=seconds_for_changes(broker))

    def result(each: AclBinding | ApiError) -> AclCreationResult:
        return _result(each if isinstance(each, ApiError) else results[each.pattern].error)

    made = in_slices(bindings, result, budget, _UNITS_PER_CREATION)
    return CreateAclsResponse(results=await work.finish(made, budget, connection))


def _bindings(creations: Sequence[AclCreation], budget: WorkBudget) -> Steps[list[AclBinding | ApiError]]:
    """Return what is to be created, or why it is not."""
    return in_slices(creations, _binding_or_error, budget, _UNITS_PER_CREATION)


def _binding_or_error(creation: AclCreation) -> AclBinding | ApiError:
    binding = _binding(creation)
    return why_invalid_binding(binding) or binding


def _additions(bindings: Sequence[AclBinding | ApiError], budget: WorkBudget) -> Steps[dict[ResourcePattern, Change]]:
    """Return what to add to each pattern."""
    wanted: dict[ResourcePattern, list[AccessControlEntry]] = {}
    for each in bindings:
        budget.left -= _UNITS_PER_CREATION
        if budget.left <= 0:
            yield None
        if not isinstance(each, ApiError):
            wanted.setdefault(each.pattern, []).append(each.entry)
    return {pattern: Addition(frozenset(entries)) for pattern, entries in wanted.items()}


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            member(ResourceType, creation.resource_type),
            creation.resource_name,
            member(PatternType, creation.resource_pattern_type),
        ),
        AccessControlEntry(
            creation.principal,
            creation.host,
            member(Operation, creation.operation),
            member(AclPermissionType, creation.permission_type),
        ),
    )


def _response(errors: Sequence[ApiError]) -> CreateAclsResponse:
    return CreateAclsResponse(results=list(map(_result, errors)))


def _result(error: ApiError) -> AclCreationResult:
    return AclCreationResult(error_code=error.code, error_message=error.message)
