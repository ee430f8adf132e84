"""Where access control lists lie in the metadata store, and what their znodes hold: those of Apache Kafka 3.9.

``/kafka-acl/Topic/t1`` has the entries of a LITERAL pattern, ``/kafka-acl-extended/prefixed/Topic/t`` those of a
PREFIXED one, both as JSON. A change also leaves a sequential znode: of a LITERAL pattern below ``/kafka-acl-changes``,
as the text ``TOPIC:t1``; of a PREFIXED one below ``/kafka-acl-extended-changes``, as JSON.
"""

import re
from collections.abc import Iterable
from typing import Final

from oncelog.coordinator.metadata_store.znodes import MalformedZnode, from_json, to_json
from oncelog.protocol.acl import (
    OPERATIONS,
    RESOURCE_TYPES,
    AccessControlEntry,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)

LITERAL_CHANGES: Final = "/kafka-acl-changes"
PREFIXED_CHANGES: Final = "/kafka-acl-extended-changes"
CHANGE_FOLDERS: Final = (LITERAL_CHANGES, PREFIXED_CHANGES)
LONGEST_ZNODE: Final = 1_000_000
"""Bytes; ZooKeeper refuses a little more (``jute.maxbuffer``)."""

_LITERAL: Final = "/kafka-acl"
_PREFIXED: Final = "/kafka-acl-extended/prefixed"
_CHANGE: Final = "acl_changes_"
_VERSION: Final = 1
_REFUSED: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff/]")
"""Characters that ZooKeeper allows in no name, and the separator of paths."""


def _pascal_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


_TYPE_NAMES: Final = {kind: _pascal_case(kind.name) for kind in RESOURCE_TYPES}
_OPERATION_NAMES: Final = {operation: _pascal_case(operation.name) for operation in OPERATIONS}
_OPERATIONS: Final = {name: operation for operation, name in _OPERATION_NAMES.items()}
_PERMISSION_NAMES: Final = {AclPermissionType.DENY: "Deny", AclPermissionType.ALLOW: "Allow"}
_PERMISSIONS: Final = {name: permission for permission, name in _PERMISSION_NAMES.items()}

PATTERN_FOLDERS: Final = {
    f"{root}/{name}": (pattern_type, kind)
    for root, pattern_type in ((_LITERAL, PatternType.LITERAL), (_PREFIXED, PatternType.PREFIXED))
    for kind, name in _TYPE_NAMES.items()
}
"""The folders that have a znode for each pattern, and of what type these are."""

PERSISTENT_PATHS: Final = (_LITERAL, "/kafka-acl-extended", _PREFIXED, *PATTERN_FOLDERS, *CHANGE_FOLDERS)
"""What a broker with an authorizer makes sure of when it starts, parents first."""


def why_unstorable(name: str) -> str | None:
    """Return why a name cannot be that of a znode, or None."""
    if name in (".", ".."):
        return f"The name {name} has no place in the metadata store."
    found = _REFUSED.search(name)
    return None if found is None else f"The character {found[0]!r} of a name has no place in the metadata store."


def pattern_path(pattern: ResourcePattern) -> str:
    """Return where the entries of a pattern lie."""
    root = _PREFIXED if pattern.pattern_type is PatternType.PREFIXED else _LITERAL
    return f"{root}/{_TYPE_NAMES[pattern.resource_type]}/{pattern.name}"


def change_prefix(pattern: ResourcePattern) -> str:
    """Return the path of the sequential znodes that announce changes of such a pattern."""
    return f"{PREFIXED_CHANGES if pattern.pattern_type is PatternType.PREFIXED else LITERAL_CHANGES}/{_CHANGE}"


def encode_entries(entries: Iterable[AccessControlEntry]) -> bytes:
    return to_json(
        {
            "acls": [
                {
                    "principal": entry.principal,
                    "permissionType": _PERMISSION_NAMES[entry.permission_type],
                    "host": entry.host,
                    "operation": _OPERATION_NAMES[entry.operation],
                }
                for entry in sorted(entries)
            ],
            "version": _VERSION,
        }
    )


def decode_entries(data: bytes) -> frozenset[AccessControlEntry]:
    """Return the entries of a pattern; none if the znode is empty."""
    if not data:
        return frozenset()
    content = from_json(data)
    try:
        if content["version"] != _VERSION:
            raise ValueError("a version that is not known")
        return frozenset(
            AccessControlEntry(
                _text(entry["principal"]),
                _text(entry["host"]),
                _OPERATIONS[entry["operation"]],
                _PERMISSIONS[entry["permissionType"]],
            )
            for entry in content["acls"]
        )
    except (KeyError, ValueError, TypeError) as error:
        raise MalformedZnode(f"not access control entries: {data[:500]!r}") from error


def encode_change(pattern: ResourcePattern) -> bytes:
    """Encode the announcement of a change."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return to_json(
        {
            "version": _VERSION,
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_change(folder: str, data: bytes) -> ResourcePattern:
    """Return the pattern that a znode of one of the ``CHANGE_FOLDERS`` is about."""
    try:
        if folder == LITERAL_CHANGES:
            type_name, colon, name = data.decode().partition(":")
            if not colon:
                raise ValueError("a type and a name with a colon between them")
            return ResourcePattern(AclResourceType[type_name], name)
        content = from_json(data)
        kind, pattern_type = AclResourceType[content["resourceType"]], PatternType[content["patternType"]]
        return ResourcePattern(kind, _text(content["name"]), pattern_type)
    except (KeyError, ValueError, TypeError) as error:
        raise MalformedZnode(f"not a change of access control entries: {data[:500]!r}") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a string is expected")
    return value
