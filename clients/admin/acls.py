"""Access control lists: describe, create and delete. Brokers have them if they have an authorizer."""

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import Final, TypeVar

from oncelog.clients.admin.item_requests import send_items
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal, refusal, require_success
from oncelog.clients.routes import AnyBroker
from oncelog.protocol.acl import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from oncelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from oncelog.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from oncelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

E = TypeVar("E", bound=IntEnum)

_SUBJECT: Final = "access control lists"
_EVERYTHING: Final = AclBindingFilter()


async def describe_acls(cluster: Cluster, binding_filter: AclBindingFilter = _EVERYTHING) -> list[AclBinding]:
    """Return the access control lists that a filter selects, all by default, in order. Raises ``BrokerRefused``."""
    kind, name, pattern_type, principal, host, operation, permission_type = binding_filter
    request = DescribeAclsRequest(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern_type,
        principal_filter=principal,
        host_filter=host,
        operation=operation,
        permission_type=permission_type,
    )
    response = await cluster.call(AnyBroker(), request, DescribeAclsResponse, errors=lambda r: [r.error_code])
    require_success(_SUBJECT, response.error_code, response.error_message)
    return sorted(
        AclBinding(
            _pattern(resource.resource_type, resource.resource_name, resource.pattern_type),
            _entry(entry.principal, entry.host, entry.operation, entry.permission_type),
        )
        for resource in response.resources
        for entry in resource.acls
    )


async def create_acls(cluster: Cluster, bindings: Collection[AclBinding]) -> dict[AclBinding, Refusal | None]:
    """Create access control lists. One that exists already is a success."""
    sent: list[AclBinding] = []

    def build(pending: Mapping[AclBinding, None], _: int) -> CreateAclsRequest:
        sent[:] = pending
        return CreateAclsRequest(creations=[_creation(binding) for binding in sent])

    def split(response: CreateAclsResponse) -> Iterable[tuple[AclBinding, Refusal | None]]:
        return zip(sent, (refusal(each.error_code, each.error_message) for each in response.results), strict=False)

    items = dict.fromkeys(bindings)
    return (await send_items(cluster, AnyBroker(), items, build, CreateAclsResponse, split)).outcomes


async def delete_acls(
    cluster: Cluster, filters: Collection[AclBindingFilter]
) -> dict[AclBindingFilter, list[AclBinding] | Refusal]:
    """Delete the access control lists that filters select; return for each filter what it deleted.

    If the response was lost, what the first attempt deleted may be missing in that of the second.
    """
    wanted = list(dict.fromkeys(filters))
    request = DeleteAclsRequest(filters=[_filter(each) for each in wanted])
    response = await cluster.call(
        AnyBroker(), request, DeleteAclsResponse, errors=lambda r: [each.error_code for each in r.filter_results]
    )
    return {each: _deleted(result) for each, result in zip(wanted, response.filter_results, strict=True)}


def _deleted(result: DeleteAclsFilterResult) -> list[AclBinding] | Refusal:
    refused = refusal(result.error_code, result.error_message)
    for each in result.matching_acls:
        refused = refused or refusal(each.error_code, each.error_message)
    return refused or sorted(map(_matching, result.matching_acls))


def _matching(deleted: DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        _pattern(deleted.resource_type, deleted.resource_name, deleted.pattern_type),
        _entry(deleted.principal, deleted.host, deleted.operation, deleted.permission_type),
    )


def _creation(binding: AclBinding) -> AclCreation:
    pattern, entry = binding
    return AclCreation(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        resource_pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )


def _filter(binding_filter: AclBindingFilter) -> DeleteAclsFilter:
    kind, name, pattern_type, principal, host, operation, permission_type = binding_filter
    return DeleteAclsFilter(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern_type,
        principal_filter=principal,
        host_filter=host,
        operation=operation,
        permission_type=permission_type,
    )


def _pattern(resource_type: int, name: str, pattern_type: int) -> ResourcePattern:
    return ResourcePattern(_member(AclResourceType, resource_type), name, _member(PatternType, pattern_type))


def _entry(principal: str, host: str, operation: int, permission_type: int) -> AccessControlEntry:
    return AccessControlEntry(
        principal, host, _member(AclOperation, operation), _member(AclPermissionType, permission_type)
    )


def _member(kind: type[E], number: int) -> E:
    """Return the member with a number; UNKNOWN for one that a newer broker knows."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)
