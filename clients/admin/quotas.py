"""Client quotas: describe and alter (KIP-546, KIP-612)."""

from collections.abc import Iterable, Mapping
from typing import Final

from oncelog.clients.admin.item_requests import send_items
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal, refusal, require_success
from oncelog.clients.routes import AnyBroker
from oncelog.protocol.client_quotas import (
    DEFAULT,
    ENTITY_TYPES,
    AnyName,
    DefaultName,
    EntityName,
    MatchType,
    QuotaEntity,
    QuotaFilter,
)
from oncelog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from oncelog.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_EVERYTHING: Final = QuotaFilter()


async def describe_client_quotas(
    cluster: Cluster, quota_filter: QuotaFilter = _EVERYTHING
) -> dict[QuotaEntity, dict[str, float]]:
    """Return the limits of the entities that a filter selects, all by default. Raises ``BrokerRefused``.

    Rates are per second: bytes, partitions or connections; ``request_percentage`` is percent of the time of one thread.
    """
    *parts, strict = quota_filter
    components = [_component(kind, part) for kind, part in zip(ENTITY_TYPES, parts, strict=True) if part is not None]
    request = DescribeClientQuotasRequest(components=components, strict=strict)
    response = await cluster.call(AnyBroker(), request, DescribeClientQuotasResponse, errors=lambda r: [r.error_code])
    require_success("client quotas", response.error_code, response.error_message)
    return {
        entity: {value.key: value.value for value in each.values}
        for each in response.entries or ()
        if (entity := _entity({part.entity_type: part.entity_name for part in each.entity})) is not None
    }


async def alter_client_quotas(
    cluster: Cluster, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
) -> dict[QuotaEntity, Refusal | None]:
    """Set limits of entities, and remove those that are None; each entity as a whole or not at all."""

    def build(pending: Mapping[QuotaEntity, Mapping[str, float | None]], _: int) -> AlterClientQuotasRequest:
        return AlterClientQuotasRequest(
            entries=[_entry(entity, limits) for entity, limits in pending.items()], validate_only=validate_only
        )

    def split(response: AlterClientQuotasResponse) -> Iterable[tuple[QuotaEntity, Refusal | None]]:
        for each in response.entries:
            entity = _entity({part.entity_type: part.entity_name for part in each.entity})
            if entity is not None:
                yield entity, refusal(each.error_code, each.error_message)

    return (await send_items(cluster, AnyBroker(), changes, build, AlterClientQuotasResponse, split)).outcomes


def _component(kind: str, part: object) -> ComponentData:
    if isinstance(part, AnyName):
        return ComponentData(entity_type=kind, match_type=MatchType.SPECIFIED, match=None)
    if isinstance(part, DefaultName):
        return ComponentData(entity_type=kind, match_type=MatchType.DEFAULT, match=None)
    return ComponentData(entity_type=kind, match_type=MatchType.EXACT, match=str(part))


def _entry(entity: QuotaEntity, limits: Mapping[str, float | None]) -> EntryData:
    return EntryData(
        entity=[
            EntityData(entity_type=kind, entity_name=None if isinstance(name, DefaultName) else name)
            for kind, name in entity.parts.items()
        ],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits.items()],
    )


def _entity(parts: Mapping[str, str | None]) -> QuotaEntity | None:
    """Return an entity of a response; None for one of a type that only newer brokers know."""
    if not parts.keys() <= set(ENTITY_TYPES):
        return None
    names: dict[str, EntityName] = {kind: DEFAULT if name is None else name for kind, name in parts.items()}
    return QuotaEntity(*(names.get(kind) for kind in ENTITY_TYPES))
