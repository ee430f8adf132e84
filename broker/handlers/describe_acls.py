"""DescribeAcls (API key 29): the access control lists that match a filter, as this broker knows them.

Without ``authorizer.class.name`` the response is SECURITY_DISABLED, which lets admin clients distinguish a broker
without access control from one that is too old for the request.

Versions: 2 is flexible; 3 has user resources.
"""

from collections.abc import Iterable
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, new_budget
from oncelog.broker.handlers.acl_requests import acls_for, filter_of
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation
from oncelog.coordinator.controller.acl_changes import selected, why_invalid_filter
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.protocol.acl import AccessControlEntry, ResourcePattern
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from oncelog.protocol.records.record_walk import WorkBudget

_UNITS_PER_PATTERN: Final = 2


@handles(ApiKey.DESCRIBE_ACLS, versions="1-3")
def handle_describe_acls(broker: Broker, context: RequestContext, request: DescribeAclsRequest) -> Outcome:
    acls = acls_for(broker, context, Operation.DESCRIBE, "No Authorizer is configured on the broker")
    if isinstance(acls, ApiError):
        return _refused(acls)
    binding_filter = filter_of(request)
    invalid = why_invalid_filter(binding_filter)
    if invalid is not None:
        return _refused(invalid)
    budget = new_budget()
    return broker.sliced_work.start(_describe(selected(acls.acls, binding_filter), budget), budget, context.connection)


def _refused(error: ApiError) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error.code, error_message=error.message)


def _describe(
    found: Iterable[tuple[ResourcePattern, list[AccessControlEntry]]], budget: WorkBudget
) -> Steps[DescribeAclsResponse]:
    response = DescribeAclsResponse(error_message=None)
    for pattern, entries in found:
        response.resources.append(_resource(pattern, entries))
        budget.left -= _UNITS_PER_PATTERN + len(entries)
        if budget.left <= 0:
            yield None
    return response


def _resource(pattern: ResourcePattern, entries: list[AccessControlEntry]) -> DescribeAclsResource:
    return DescribeAclsResource(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        acls=[
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission_type,
            )
            for entry in entries
        ],
    )
