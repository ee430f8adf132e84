"""``AclIndex``: all access control lists of the cluster, arranged for decisions. Immutable, and pure.

A decision needs the patterns that match one name: the literal one, the literal ``*``, and every prefix of the name. The
first two are looked up. The prefixes are sorted, and each knows the longest other prefix that it begins with, so that
the longest match is found by bisection and the others are its ancestors. For each pattern the entries of a principal
are two sets of operations, allowed and denied, as bits; and two more for each host that entries name. So a decision
takes some microseconds, however many entries there are. An authorizer keeps what was decided (``decisions``).

Rules, as in Kafka:

* an entry matches if its principal is the client's, or ``User:*``, and its host the client's, or ``*``; an address
  counts in any of its spellings, as Java's ``0:0:0:0:0:0:0:1`` is ``::1``;
* one DENY that matches wins over all ALLOWs, whatever their patterns;
* an ALLOW of READ, WRITE, DELETE or ALTER allows DESCRIBE too, and one of ALTER_CONFIGS DESCRIBE_CONFIGS; a DENY denies
  its own operation only;
* ALL stands for every operation.

A change makes a new index, which shares what did not change with the former one: readers never see half of a change.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from oncelog.protocol.acl import (
    EVERYONE,
    OPERATIONS,
    WILDCARD,
    AccessControlEntry,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)

Who: TypeAlias = tuple[str, str]
"""A principal: its type and its name."""
Entries: TypeAlias = frozenset[AccessControlEntry]
Hosts: TypeAlias = Mapping[str, tuple[int, int]]

_ALL: Final = sum(1 << operation for operation in OPERATIONS)
_DESCRIBE: Final = 1 << AclOperation.DESCRIBE
_IMPLIED: Final[Mapping[AclOperation, int]] = {
    AclOperation.READ: _DESCRIBE,
    AclOperation.WRITE: _DESCRIBE,
    AclOperation.DELETE: _DESCRIBE,
    AclOperation.ALTER: _DESCRIBE,
    AclOperation.ALTER_CONFIGS: 1 << AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALL: _ALL,
}
"""What else an allowed operation allows."""


class _Rules(NamedTuple):
    """The entries of one principal on one pattern, as bits of operations."""

    allowed: int
    denied: int
    hosts: Hosts | None
    """What is allowed and denied beside from single hosts."""


_RulesOfPattern: TypeAlias = Mapping[Who, _Rules]


class _Prefix(NamedTuple):
    """A PREFIXED pattern, and the longest other one that its name begins with."""

    name: str
    rules: _RulesOfPattern
    parent: "_Prefix | None"


def principal_of(text: str) -> Who:
    """Return the type and the name of a principal that is written ``Type:name``."""
    kind, _, name = text.partition(":")
    return kind, name


_EVERYONE: Final = principal_of(EVERYONE)
_NO_RULES: Final[_RulesOfPattern] = MappingProxyType({})


class _Prefixes:
    """The PREFIXED patterns of one resource type."""

    __slots__ = ("_names", "all")

    def __init__(self, rules: Mapping[str, _RulesOfPattern]) -> None:
        self.all: list[_Prefix] = []
        """In the order of their names."""
        ancestors: list[_Prefix] = []
        for name in sorted(rules):
            while ancestors and not name.startswith(ancestors[-1].name):
                ancestors.pop()
            prefix = _Prefix(name, rules[name], ancestors[-1] if ancestors else None)
            self.all.append(prefix)
            ancestors.append(prefix)
        self._names = [prefix.name for prefix in self.all]

    def longest(self, name: str) -> _Prefix | None:
        """Return the longest pattern that the name begins with; the others are its ancestors."""
        position = bisect_right(self._names, name)
        prefix = self.all[position - 1] if position else None
        while prefix is not None and not name.startswith(prefix.name):
            prefix = prefix.parent
        return prefix


_ByPrincipal: TypeAlias = dict[Who, dict[ResourcePattern, _Rules]]


class _TypeIndex:
    """The patterns of one resource type."""

    __slots__ = ("_by_principal", "_literals", "_prefixes", "_wildcard")

    def __init__(
        self, literals: Mapping[str, _RulesOfPattern], prefixes: _Prefixes, by_principal: _ByPrincipal | None
    ) -> None:
        self._literals = literals
        self._wildcard = literals.get(WILDCARD)
        self._prefixes = prefixes
        self._by_principal = by_principal
        """None until it is needed."""

    def changed(self, changes: Mapping[ResourcePattern, Entries]) -> "_TypeIndex":
        """Return the index with other entries for some patterns."""
        literals = dict(self._literals)
        prefixes = {prefix.name: prefix.rules for prefix in self._prefixes.all}
        by_principal = None if self._by_principal is None else dict(self._by_principal)
        for pattern, entries in changes.items():
            group = prefixes if pattern.pattern_type is PatternType.PREFIXED else literals
            before, after = group.pop(pattern.name, _NO_RULES), _rules_of(entries)
            if after:
                group[pattern.name] = after
            if by_principal is not None:
                _replace_rules(by_principal, pattern, before, after)
        are_same = all(pattern.pattern_type is PatternType.LITERAL for pattern in changes)
        return _TypeIndex(literals, self._prefixes if are_same else _Prefixes(prefixes), by_principal)

    def matching(self, name: str) -> list[_RulesOfPattern]:
        """Return the rules of every pattern that is about a name."""
        found = []
        if (literal := self._literals.get(name)) is not None:
            found.append(literal)
        if self._wildcard is not None and self._wildcard is not literal:
            found.append(self._wildcard)
        prefix = self._prefixes.longest(name) if self._prefixes.all else None
        while prefix is not None:
            found.append(prefix.rules)
            prefix = prefix.parent
        return found

    def of_principal(self, who: Who) -> Iterator[tuple[ResourcePattern, _Rules]]:
        """Yield the patterns with rules about a principal or about everyone."""
        if self._by_principal is None:
            self._by_principal = self._arranged_by_principal()
        yield from self._by_principal.get(who, {}).items()
        if who != _EVERYONE:
            yield from self._by_principal.get(_EVERYONE, {}).items()

    def _arranged_by_principal(self) -> _ByPrincipal:
        arranged: _ByPrincipal = {}
        kind, literal, prefixed = AclResourceType.ANY, PatternType.LITERAL, PatternType.PREFIXED
        for name, by_principal in self._literals.items():
            _add_rules(arranged, ResourcePattern(kind, name, literal), by_principal)
        for prefix in self._prefixes.all:
            _add_rules(arranged, ResourcePattern(kind, prefix.name, prefixed), prefix.rules)
        return arranged


def _add_rules(arranged: _ByPrincipal, pattern: ResourcePattern, rules: _RulesOfPattern) -> None:
    for who, of_principal in rules.items():
        arranged.setdefault(who, {})[pattern] = of_principal


def _replace_rules(
    arranged: _ByPrincipal, pattern: ResourcePattern, before: _RulesOfPattern, after: _RulesOfPattern
) -> None:
    """Put other rules of a pattern in place; what earlier indexes share is copied."""
    pattern = pattern._replace(resource_type=AclResourceType.ANY)
    for who in before.keys() | after.keys():
        patterns = {each: rules for each, rules in arranged.pop(who, {}).items() if each != pattern}
        if who in after:
            patterns[pattern] = after[who]
        if patterns:
            arranged[who] = patterns


_NO_PATTERNS: Final = _TypeIndex({}, _Prefixes({}), None)


class AclIndex:
    """The access control lists of a cluster at one moment."""

    __slots__ = ("_types",)

    def __init__(self, types: Mapping[AclResourceType, _TypeIndex] = MappingProxyType({})) -> None:
        self._types = types

    def changed(self, changes: Mapping[ResourcePattern, Entries]) -> "AclIndex":
        """Return the index with other entries for some patterns; none remove the pattern."""
        by_type: dict[AclResourceType, dict[ResourcePattern, Entries]] = {}
        for pattern, entries in changes.items():
            by_type.setdefault(pattern.resource_type, {})[pattern] = entries
        types = {kind: self._types.get(kind, _NO_PATTERNS).changed(of_type) for kind, of_type in by_type.items()}
        return AclIndex({**self._types, **types})

    def allowed(self, who: Who, host: str, resource_type: AclResourceType, name: str) -> int | None:
        """Return the allowed operations, as bits by their numbers; None if no pattern is about the resource."""
        index = self._types.get(resource_type)
        if index is None:
            return None
        matching = index.matching(name)
        if not matching:
            return None
        allowed = denied = 0
        for by_principal in matching:
            for principal in (who, _EVERYONE):
                rules = by_principal.get(principal)
                if rules is not None:
                    allowed |= rules[0]
                    denied |= rules[1]
                    if rules[2] is not None and (of_host := rules[2].get(host)) is not None:
                        allowed |= of_host[0]
                        denied |= of_host[1]
        return allowed & ~denied

    def allows_any(self, who: Who, host: str, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Return whether there may be a resource of the type on which the operation is allowed.

        That is so if all resources of the type are allowed, or one pattern is allowed of which neither the name nor the
        beginning of it is denied. It is not if all resources of the type are denied.
        """
        index, bit = self._types.get(resource_type), 1 << operation
        if index is None:
            return False
        allowed: set[ResourcePattern] = set()
        denied: set[ResourcePattern] = set()
        for pattern, rules in index.of_principal(who):
            of_host = (0, 0) if rules.hosts is None else rules.hosts.get(host, (0, 0))
            if (rules.allowed | of_host[0]) & bit:
                allowed.add(pattern)
            if (rules.denied | of_host[1]) & bit:
                denied.add(pattern)
        everything = ResourcePattern(AclResourceType.ANY, WILDCARD)
        if everything in denied:
            return False
        if everything in allowed:
            return True
        return any(not _is_dominated(pattern, denied) for pattern in allowed)


def _is_dominated(pattern: ResourcePattern, denied: set[ResourcePattern]) -> bool:
    """Return whether the pattern's own name, if it is literal, or a beginning of its name is denied."""
    if not denied:
        return False
    if pattern.pattern_type is PatternType.LITERAL and pattern in denied:
        return True
    name = pattern.name
    beginnings = (name[:length] for length in range(1, len(name) + 1))
    return any(ResourcePattern(AclResourceType.ANY, each, PatternType.PREFIXED) in denied for each in beginnings)


def _rules_of(entries: Entries) -> _RulesOfPattern:
    """Return the entries of one pattern by principal, as bits."""
    gathered: dict[Who, dict[str, tuple[int, int]]] = {}
    for principal, host, operation, permission in entries:
        hosts, host = gathered.setdefault(principal_of(principal), {}), _canonical(host)
        allowed, denied = hosts.get(host, (0, 0))
        if permission is AclPermissionType.DENY:
            denied |= _ALL if operation is AclOperation.ALL else 1 << operation
        else:
            allowed |= 1 << operation | _IMPLIED.get(operation, 0)
        hosts[host] = allowed, denied
    return {who: _Rules(*hosts.pop(WILDCARD, (0, 0)), hosts or None) for who, hosts in gathered.items()}


def _canonical(host: str) -> str:
    """Return the spelling of an address by which clients are known."""
    if host == WILDCARD:
        return host
    from ipaddress import IPv6Address, ip_address  # Only an entry with a host pays for it, not every start.

    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
