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
from oncelog.coordinator.controller.acl_changes import MOST_CHANGES, TOO_MANY, additions
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

_UNITS_PER_CREATION: Final = 2


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
    budget = new_budget()
    steps: Steps[list[AclBinding]] = in_slices(request.creations, _binding, budget, _UNITS_PER_CREATION)
    bindings = await broker.sliced_work.finish(steps, budget, context.connection)
    changes, errors = additions(bindings)
    if changes and is_without_store(broker):
        return _response([error if error.code else NO_STORE for error in errors])
    results = await acls.change(changes, timeout_seconds=seconds_for_changes(broker))
    return _response(
        [
            error if error.code else results[binding.pattern].error
            for binding, error in zip(bindings, errors, strict=True)
        ]
    )


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
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=error.code, error_message=error.message) for error in errors]
    )
