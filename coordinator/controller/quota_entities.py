"""Where the quotas of an entity are kept: in the znodes of Kafka 3.9, beside the credentials of a user. Pure."""

from collections.abc import Mapping
from typing import Final

from oncelog.coordinator.controller.config_changes import ConfigResource, ResourceType, sanitized
from oncelog.coordinator.metadata_store import paths
from oncelog.protocol.client_quotas import (
    CLIENT_KEYS,
    DEFAULT,
    IP_KEYS,
    DefaultName,
    EntityName,
    QuotaEntity,
)

_USERS: Final = "users"
_CLIENTS: Final = "clients"
_IPS: Final = "ips"


def resource_of_entity(entity: QuotaEntity) -> ConfigResource:
    """Return the resource whose overrides are the quotas of a valid entity."""
    user, client_id, ip = entity
    if user is None:
        kind, name = (_IPS, ip) if ip is not None else (_CLIENTS, client_id)
        assert name is not None, "an entity has a part"
        return ConfigResource(ResourceType.QUOTA, f"{kind}/{_segment(name)}")
    if client_id is not None:
        return ConfigResource(ResourceType.QUOTA, f"{_USERS}/{_segment(user)}/{_CLIENTS}/{_segment(client_id)}")
    if isinstance(user, DefaultName):
        return ConfigResource(ResourceType.QUOTA, f"{_USERS}/{_segment(user)}")
    return ConfigResource(ResourceType.USER, user)


def entity_of_resource(resource: ConfigResource) -> QuotaEntity | None:
    """Return the entity whose quotas the overrides of a resource are; None if the resource has no quotas."""
    if resource.type is ResourceType.USER:
        return QuotaEntity(user=resource.name)
    if resource.type is not ResourceType.QUOTA:
        return None
    match resource.name.split("/"):
        case ["users", user]:
            return QuotaEntity(user=_name(user))
        case ["users", user, "clients", client_id]:
            return QuotaEntity(user=_name(user), client_id=_name(client_id))
        case ["clients", client_id]:
            return QuotaEntity(client_id=_name(client_id))
        case ["ips", ip]:
            return QuotaEntity(ip=_name(ip))
    return None


def quotas_in(entity: QuotaEntity, overrides: Mapping[str, str]) -> dict[str, float]:
    """Return the limits among the overrides of an entity. What is no positive number is left out."""
    keys = CLIENT_KEYS if entity.ip is None else IP_KEYS
    found = {key: _number(overrides[key]) for key in keys if key in overrides}
    return {key: value for key, value in found.items() if value is not None}


def quota_text(key: str, value: float, *, is_integral: bool) -> str:
    """Return a limit as Kafka 3.9 writes it: a whole number, or one with a decimal point."""
    return str(round(value)) if is_integral else repr(float(value))


def _segment(name: EntityName) -> str:
    return paths.DEFAULT_ENTITY if isinstance(name, DefaultName) else sanitized(name)


def _name(segment: str) -> EntityName:
    from urllib.parse import unquote  # Only entities with quotas pay for it, not every start.

    return DEFAULT if segment == paths.DEFAULT_ENTITY else unquote(segment)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value > 0 else None
