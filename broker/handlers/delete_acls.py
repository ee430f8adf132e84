"""DeleteAcls (API key 31): remove the access control lists that match filters.

The result of a filter names what it removed; an entry that several filters select is named by each. When the response
is sent this broker no longer decides by what was removed. The filters select among the lists as they are now on every
broker, not only here. Without ``authorizer.class.name`` the response is SECURITY_DISABLED.

Versions: 2 is flexible; 3 has user resources.
"""

from collections.abc import Sequence
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, new_budget
from oncelog.broker.handlers.acl_requests import NO_STORE, acls_for, filter_of, is_without_store, seconds_for_changes
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation
from oncelog.coordinator.controller.acl_changes import (
    MOST_CHANGES,
    TOO_MANY,
    Acls,
    Change,
    Removal,
    selected,
    why_invalid_filter,
)
from oncelog.coordinator.controller.acl_repository import AclRepository, PatternResult
from oncelog.coordinator.controller.api_error import NO_ERROR, ApiError
from oncelog.coordinator.metadata_store.store import StoreUnavailable
from oncelog.protocol.acl import AccessControlEntry, AclBindingFilter, ResourcePattern
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from oncelog.protocol.records.record_walk import WorkBudget

_UNITS_PER_PATTERN: Final = 3
"""For one of which a filter selects entries."""
_PATTERNS_PER_UNIT: Final = 5
"""Patterns that a filter is compared with."""


def refuse_delete_acls(
    request: DeleteAclsRequest, version: int, error: ErrorCode, message: str | None = None
) -> DeleteAclsResponse:
    """Return the error for every filter."""
    return _response([ApiError(error, message)] * len(request.filters))


@handles(ApiKey.DELETE_ACLS, versions="1-3", error_response=refuse_delete_acls)
def handle_delete_acls(broker: Broker, context: RequestContext, request: DeleteAclsRequest) -> Outcome:
    acls = acls_for(broker, context, Operation.ALTER, "No Authorizer is configured.")
    if isinstance(acls, ApiError):
        return refuse_delete_acls(request, context.api_version, *acls)
    if len(request.filters) > MOST_CHANGES:
        return refuse_delete_acls(request, context.api_version, *TOO_MANY)
    return _delete(broker, context, request, acls)


async def _delete(
    broker: Broker, context: RequestContext, request: DeleteAclsRequest, acls: AclRepository
) -> DeleteAclsResponse:
    filters = [filter_of(each) for each in request.filters]
    errors = [why_invalid_filter(each) or NO_ERROR for each in filters]
    valid = [each for each, error in zip(filters, errors, strict=True) if not error.code]
    if valid and is_without_store(broker):
        return _response([error if error.code else NO_STORE for error in errors])
    try:
        await acls.catch_up()
    except StoreUnavailable:
        return _response([error if error.code else NO_STORE for error in errors])
    budget = new_budget()
    steps = _removals(acls.acls, valid, budget)
    changes = await broker.sliced_work.finish(steps, budget, context.connection)
    if isinstance(changes, ApiError):
        return _response([error if error.code else changes for error in errors])
    results = await acls.change(changes, timeout_seconds=seconds_for_changes(broker))
    steps_of_results = _results(list(zip(filters, errors, strict=True)), results, budget)
    return DeleteAclsResponse(
        filter_results=await broker.sliced_work.finish(steps_of_results, budget, context.connection)
    )


def _removals(
    acls: Acls, filters: Sequence[AclBindingFilter], budget: WorkBudget
) -> Steps[dict[ResourcePattern, Change] | ApiError]:
    """Return what each pattern is to lose, or why that is too much."""
    chosen: dict[ResourcePattern, list[AclBindingFilter]] = {}
    number = 0
    for each in filters:
        for pattern, entries in selected(acls, each):
            chosen.setdefault(pattern, []).append(each)
            number += len(entries)
            budget.left -= _UNITS_PER_PATTERN + len(entries)
            if budget.left <= 0:
                yield None
        if number > MOST_CHANGES:
            return TOO_MANY
        budget.left -= 1 + len(acls) // _PATTERNS_PER_UNIT
        if budget.left <= 0:
            yield None
    return {pattern: Removal(tuple(of_pattern)) for pattern, of_pattern in chosen.items()}


def _results(
    filters: Sequence[tuple[AclBindingFilter, ApiError]],
    results: dict[ResourcePattern, PatternResult],
    budget: WorkBudget,
) -> Steps[list[DeleteAclsFilterResult]]:
    """Return for each filter what it removed, or could not remove."""
    made = []
    removed = {pattern: result.removed for pattern, result in results.items() if result.removed}
    for binding_filter, error in filters:
        result = _filter_result(error)
        if not error.code:
            for pattern, entries in selected(removed, binding_filter):
                result.matching_acls += [_matching(pattern, entry, results[pattern].error) for entry in entries]
                budget.left -= _UNITS_PER_PATTERN + len(entries)
                if budget.left <= 0:
                    yield None
            failed = (each.error for pattern, each in results.items() if binding_filter.matches_pattern(pattern))
            failure = next((each for each in failed if each.code), None)
            if failure is not None and not result.matching_acls:
                result = _filter_result(failure)
        made.append(result)
        budget.left -= 1 + len(result.matching_acls) + len(results) // _PATTERNS_PER_UNIT
        if budget.left <= 0:
            yield None
    return made


def _matching(pattern: ResourcePattern, entry: AccessControlEntry, error: ApiError) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=error.code,
        error_message=error.message,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )


def _filter_result(error: ApiError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=error.code, error_message=error.message)


def _response(errors: Sequence[ApiError]) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_filter_result(error) for error in errors])
