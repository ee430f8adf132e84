"""Changes of access control lists: what a client may add, and what comes of it. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.metadata_store import acl_znodes
from oncelog.protocol.acl import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from oncelog.protocol.errors import ErrorCode

Entries: TypeAlias = frozenset[AccessControlEntry]
Acls: TypeAlias = Mapping[ResourcePattern, Entries]

NO_ENTRIES: Final[Entries] = frozenset()
MOST_CHANGES: Final = 10_000
"""Bindings or filters of one request."""
TOO_MANY: Final = ApiError(
    ErrorCode.INVALID_REQUEST, f"A request can change {MOST_CHANGES} access control lists at most."
)


def why_invalid_binding(binding: AclBinding) -> ApiError | None:
    """Return why a binding makes no sense, or cannot be kept; None if it can be created."""
    pattern, entry = binding
    if pattern.resource_type <= AclResourceType.ANY:
        return _invalid(f"The resource type {pattern.resource_type.name} is that of no resource.")
    if pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return _invalid(f"The pattern type {pattern.pattern_type.name} is for filters only.")
    if entry.operation <= AclOperation.ANY:
        return _invalid(f"The operation {entry.operation.name} is for filters only.")
    if entry.permission_type <= AclPermissionType.ANY:
        return _invalid(f"The permission type {entry.permission_type.name} is for filters only.")
    if not pattern.name:
        return _invalid("The name of the resource is empty.")
    if pattern.resource_type is AclResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return _invalid(f"The only name of a CLUSTER resource is {CLUSTER_NAME}.")
    kind, colon, _ = entry.principal.partition(":")
    if not colon or not kind:
        return _invalid("The principal is not of the form type:name.")
    unstorable = acl_znodes.why_unstorable(pattern.name)
    return None if unstorable is None else _invalid(unstorable)


def why_invalid_filter(binding_filter: AclBindingFilter) -> ApiError | None:
    """Return why a filter makes no sense, or None."""
    parts = (
        binding_filter.resource_type is AclResourceType.UNKNOWN,
        binding_filter.pattern_type is PatternType.UNKNOWN,
        binding_filter.operation is AclOperation.UNKNOWN,
        binding_filter.permission_type is AclPermissionType.UNKNOWN,
    )
    return _invalid("The filter has a type that is unknown.") if any(parts) else None


def why_too_large(entries: Entries) -> ApiError | None:
    """Return why a pattern cannot have so many entries, or None."""
    if len(acl_znodes.encode_entries(entries)) <= acl_znodes.LONGEST_ZNODE:
        return None
    return _invalid(
        f"The entries of this resource would take more than {acl_znodes.LONGEST_ZNODE} bytes of the metadata store: "
        "name more resources by one pattern, or more principals by one entry."
    )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


class Addition(NamedTuple):
    """Entries to add to a pattern."""

    entries: Entries

    def applied(self, before: Entries) -> Entries:
        """Return the entries that a pattern has with them."""
        return before | self.entries


class Removal(NamedTuple):
    """The filters whose entries a pattern is to lose."""

    filters: tuple[AclBindingFilter, ...]

    def applied(self, before: Entries) -> Entries:
        """Return the entries that a pattern has without them."""
        return frozenset(entry for entry in before if not any(each.matches_entry(entry) for each in self.filters))


Change: TypeAlias = Addition | Removal


def _candidates(acls: Acls, binding_filter: AclBindingFilter) -> Iterable[ResourcePattern]:
    """Return patterns among which are all that a filter selects: one, where it names one."""
    kind, name, pattern_type = binding_filter[:3]
    is_one = kind is not AclResourceType.ANY and pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
    if name is None or not is_one:
        return list(acls)
    pattern = ResourcePattern(kind, name, pattern_type)
    return [pattern] if pattern in acls else []


def selected(
    acls: Acls, binding_filter: AclBindingFilter
) -> Iterator[tuple[ResourcePattern, list[AccessControlEntry]]]:
    """Yield the patterns of which a filter selects entries, with these in order."""
    for pattern in filter(binding_filter.matches_pattern, _candidates(acls, binding_filter)):
        entries = list(filter(binding_filter.matches_entry, acls[pattern]))
        if entries:
            yield pattern, sorted(entries)
