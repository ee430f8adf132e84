"""Changing the configuration of a topic or a broker: what a client may ask, and what comes of it.

A configuration is a set of overrides; what is not overridden has its default. A change replaces all of them
(AlterConfigs) or works on some (IncrementalAlterConfigs: set, delete, and, for lists, append and subtract). Nothing
here knows the keys: that is the broker's table, behind ``ConfigValidator``.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from oncelog.coordinator.controller.api_error import NO_ERROR, ApiError
from oncelog.coordinator.metadata_store import paths
from oncelog.protocol.errors import ErrorCode

LONGEST_VALUE: Final = 32_767


class ResourceType(IntEnum):
    """What can have a configuration, by Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
    USER = -1
    """No number of Kafka's: requests about configurations cannot name users."""
    QUOTA = -2
    """An entity that has quotas only: a client id, a client id of a user, an IP address, or a default of these."""


_ESCAPED: Final = {ResourceType.CLIENT_METRICS: "client-metrics", ResourceType.GROUP: "groups"}
"""Where resources lie whose names can hold any character: in znodes they are percent-encoded."""
_USERS: Final = "users"
_QUOTA_PATH: Final = re.compile(rf"users/[^/]+/clients/[^/]+|users/{paths.DEFAULT_ENTITY}|(clients|ips)/[^/]+")


class OperationType(IntEnum):
    """What an incremental change does to one key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource(NamedTuple):
    """A topic, group, subscription or user by its name, a broker by its id, or with the empty name all brokers.

    The name of an entity with quotas is its path below ``/config`` (``quota_entities``).
    """

    type: ResourceType
    name: str

    @property
    def entity_path(self) -> str:
        """Where the overrides lie below ``/config``."""
        if self.type is ResourceType.TOPIC:
            return f"topics/{self.name}"
        if self.type in _ESCAPED:
            from urllib.parse import quote  # Only such a resource pays for it, not every start.

            return f"{_ESCAPED[self.type]}/{quote(self.name, safe='').replace('.', '%2E')}"
        if self.type is ResourceType.USER:
            return f"{_USERS}/{sanitized(self.name)}"
        if self.type is ResourceType.QUOTA:
            return self.name
        assert self.type is ResourceType.BROKER, f"no configuration of {self.type.name} is kept in the metadata store"
        return f"brokers/{self.name or paths.DEFAULT_ENTITY}"

    @property
    def path(self) -> str:
        return f"{paths.CONFIG}/{self.entity_path}"

    @property
    def parents(self) -> list[str]:
        """The znodes above its own that not every store has: those of a client id of a user."""
        if self.type is not ResourceType.QUOTA:
            return []
        kind, *names = self.name.split("/")
        return [f"{paths.CONFIG}/{'/'.join([kind, *names[:length]])}" for length in range(1, len(names))]


def sanitized(name: str) -> str:
    """Return a name of any characters as a part of a path, as Kafka's ``Sanitizer`` writes it."""
    from urllib.parse import quote  # Only such a name pays for it, not every start.

    return quote(name, safe="").replace("~", "%7E")


def described_change(before: Mapping[str, str], after: Mapping[str, str], *, shows_values: bool) -> str:
    """Describe what changed, for the log. Values of brokers' settings may be secret."""

    def described(key: str) -> str:
        if key not in after:
            return f"{key} is not set any more"
        return f"{key}={after[key]}" if shows_values else f"{key} is set"

    return ", ".join(
        described(key) for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)
    )


def resource_at(entity_path: str) -> ConfigResource | None:
    """Return the resource whose overrides lie there; None for kinds without configuration here."""
    if _QUOTA_PATH.fullmatch(entity_path):
        return ConfigResource(ResourceType.QUOTA, entity_path)
    kind, _, name = entity_path.partition("/")
    if kind == _USERS and "/" not in name and name != paths.DEFAULT_ENTITY:
        from urllib.parse import unquote

        return ConfigResource(ResourceType.USER, unquote(name))
    for resource_type, folder in _ESCAPED.items():
        if kind == folder:
            from urllib.parse import unquote

            return ConfigResource(resource_type, unquote(name))
    if kind == "topics":
        return ConfigResource(ResourceType.TOPIC, name)
    if kind == "brokers":
        return ConfigResource(ResourceType.BROKER, "" if name == paths.DEFAULT_ENTITY else name)
    return None


class ConfigOperation(NamedTuple):
    """One key of an incremental change. ``value`` is meaningless for DELETE."""

    key: str
    type: OperationType
    value: str | None = None
    unless_missing: ApiError = NO_ERROR
    """The error of DELETE if the key is not set."""


class ConfigAlteration(NamedTuple):
    """A change of one resource's configuration."""

    resource: ConfigResource
    operations: tuple[ConfigOperation, ...]
    replaces_all: bool = False
    """Overrides that no operation names are removed."""


class ConfigValidator(Protocol):
    """What the broker knows of its keys."""

    def why_invalid(self, resource: ConfigResource, overrides: Mapping[str, str]) -> ApiError | None:
        """Return why the resource must not have exactly these overrides, or None."""

    def is_list(self, resource: ConfigResource, key: str) -> bool:
        """Return whether the key's value is a list with commas."""

    def default_text(self, resource: ConfigResource, key: str) -> str:
        """Return the value of a list key without an override."""


def altered(
    current: Mapping[str, str], alteration: ConfigAlteration, validator: ConfigValidator
) -> dict[str, str] | ApiError:
    """Return the overrides after the change, or why the resource must not have them."""
    overrides = {} if alteration.replaces_all else dict(current)
    for operation in alteration.operations:
        error = _apply(overrides, operation, alteration.resource, validator)
        if error is not None:
            return error
    return validator.why_invalid(alteration.resource, overrides) or overrides


def _apply(
    overrides: dict[str, str], operation: ConfigOperation, resource: ConfigResource, validator: ConfigValidator
) -> ApiError | None:
    key = operation.key
    if operation.type is OperationType.DELETE:
        is_missing = overrides.pop(key, None) is None
        return operation.unless_missing if is_missing and operation.unless_missing.code else None
    if operation.value is None:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {key}")
    if operation.type is OperationType.SET:
        overrides[key] = operation.value
    else:
        if not validator.is_list(resource, key):
            what = operation.type.name
            return ApiError(ErrorCode.INVALID_CONFIG, f"Can't {what} to key {key} because its type is not LIST.")
        before = overrides.get(key, validator.default_text(resource, key))
        overrides[key] = _joined(before, operation.type, operation.value)
    if len(overrides[key]) > LONGEST_VALUE:
        return ApiError(
            ErrorCode.INVALID_CONFIG,
            f"The configuration value cannot be added because it exceeds the maximum value size of {LONGEST_VALUE} "
            "bytes.",
        )
    return None


def _joined(before: str, operation: OperationType, value: str) -> str:
    parts = [part for part in before.split(",") if part]
    named = value.split(",")
    if operation is OperationType.APPEND:
        return ",".join(parts + [part for part in dict.fromkeys(named) if part not in parts])
    return ",".join(part for part in parts if part not in named)


def why_malformed(alterations: Sequence[ConfigAlteration]) -> list[ApiError | None]:
    """Return for each alteration why the request is malformed: a resource or a key is named twice."""
    times = Counter(alteration.resource for alteration in alterations)
    errors: list[ApiError | None] = []
    for alteration in alterations:
        keys = [operation.key for operation in alteration.operations]
        if times[alteration.resource] > 1:
            errors.append(ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."))
        elif len(set(keys)) < len(keys):
            errors.append(ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys"))
        else:
            errors.append(None)
    return errors
