"""The recorded cells of ``acl_cells.txt``: requests under access control lists, and what Apache Kafka responds."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from oncelog.protocol.acl import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)

TABLE = Path(__file__).parent / "acl_cells.txt"
ALICE = "User:alice"
TOKEN = "the-token-of-user-bobs"
"""Stands for the id of a token, which a broker draws. It is as long."""
_CASE = re.compile(r"== (\S+): (\w+) v(\d+)")
_NEED = re.compile(r"(\w+) (\w+) (\S+)(?: \(wrong: (\w+)\))?")
_RULE = re.compile(r"(allow|deny) (\S+) (\w+) (\w+) (PREFIXED )?(\S+)(?: from (\S+))?")
_WITH_RULES = re.compile(r"(\S+) \{(.*)\}: (.*)")
_EVERYONE = "everyone-"


class Need(NamedTuple):
    """What a request needs."""

    operation: AclOperation
    resource_type: AclResourceType
    name: str
    wrong: str | None
    """An operation that does not allow it."""

    def rule(
        self,
        permission: AclPermissionType = AclPermissionType.ALLOW,
        *,
        name: str | None = None,
        pattern_type: PatternType = PatternType.LITERAL,
        principal: str = ALICE,
        host: str = "*",
        operation: AclOperation | None = None,
    ) -> AclBinding:
        pattern = ResourcePattern(self.resource_type, self.name if name is None else name, pattern_type)
        return AclBinding(pattern, AccessControlEntry(principal, host, operation or self.operation, permission))


class Cell(NamedTuple):
    """One request in one state."""

    case: str
    api: str
    version: int
    need: Need
    state: str
    rules: tuple[AclBinding, ...]
    response: str

    @property
    def allows_everyone(self) -> bool:
        return self.case.startswith(_EVERYONE)

    @property
    def request(self) -> str:
        """The name of the request: cases with other rules send those of others."""
        return self.case.removeprefix(_EVERYONE)

    @property
    def is_super(self) -> bool:
        return self.state == "super-user"

    def __str__(self) -> str:
        operation, kind, name, _ = self.need
        return f"{self.case} / {operation.name} on {kind.name} {name} / {self.state}"


def rules_of(state: str, need: Need) -> list[AclBinding]:
    """The rules about one need, by the name of the state."""
    is_cluster = need.resource_type is AclResourceType.CLUSTER
    allow, deny, prefixed = need.rule(), AclPermissionType.DENY, PatternType.PREFIXED
    if state.startswith("implied-by-"):
        return [need.rule(operation=AclOperation[state.removeprefix("implied-by-")])]
    match state:
        case "none" | "super-user":
            return []
        case "wrong-operation":
            return [need.rule(operation=AclOperation[need.wrong or ""])]
        case "other-host":
            return [need.rule(host="10.1.2.3")]
        case "right-literal":
            return [allow]
        case "right-prefixed":
            return [need.rule(name=CLUSTER_NAME if is_cluster else need.name[:5], pattern_type=prefixed)]
        case "wildcard":
            return [need.rule(name="*")]
        case "user-wildcard":
            return [need.rule(principal="User:*")]
        case "all-operation":
            return [need.rule(operation=AclOperation.ALL)]
        case "deny-beside-allow":
            return [allow, need.rule(deny)]
        case "deny-describe-beside-allow":
            return [allow, need.rule(deny, operation=AclOperation.DESCRIBE)]
        case "deny-all-wildcard-beside-allow":
            name = CLUSTER_NAME if is_cluster else "*"
            return [allow, need.rule(deny, name=name, principal="User:*", operation=AclOperation.ALL)]
    raise ValueError(f"a state without rules: {state}")


def read_cells() -> list[Cell]:
    """All cells, in the order of the table."""
    return list(_cells(_lines()))


def _lines() -> list[str]:
    lines: list[str] = []
    for line in TABLE.read_text().splitlines():
        if line.startswith(" " * 6):
            lines[-1] += f" {line.strip()}"
        elif line and not line.startswith("#"):
            lines.append(line)
    return lines


def _cells(lines: list[str]) -> Iterator[Cell]:
    case, api, version = "", "", 0
    needs: dict[str, list[Need]] = {}
    for line in lines:
        if line.startswith("== "):
            case = _CASE.match(line)[1]  # type: ignore[index]
        elif not line.startswith("  "):
            needs.setdefault(case, []).append(_need(line))
    for line in lines:
        if line.startswith("== "):
            case, api, number = _CASE.match(line).groups()  # type: ignore[union-attr]
            version = int(number)
        elif not line.startswith("  "):
            need = _need(line)
        elif (with_rules := _WITH_RULES.fullmatch(line.strip())) is not None:
            state, rules, response = with_rules.groups()
            yield Cell(
                case, api, version, need, state, tuple(_rule(text) for text in rules.split("; ") if text), response
            )
        else:
            states, _, response = line.strip().partition(": ")
            for state in states.split():
                others = [] if state == "super-user" else [each.rule() for each in needs[case] if each != need]
                yield Cell(case, api, version, need, state, (*rules_of(state, need), *others), response)


def _need(line: str) -> Need:
    match = _NEED.fullmatch(line)
    assert match is not None, line
    return Need(AclOperation[match[1]], AclResourceType[match[2]], match[3], match[4])


def _rule(text: str) -> AclBinding:
    match = _RULE.fullmatch(text)
    assert match is not None, text
    permission, principal, operation, kind, prefixed, name, host = match.groups()
    pattern_type = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    entry = AccessControlEntry(principal, host or "*", AclOperation[operation], AclPermissionType[permission.upper()])
    return AclBinding(ResourcePattern(AclResourceType[kind], name, pattern_type), entry)
