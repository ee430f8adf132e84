"""DescribeClientQuotas (API key 48): the quotas of the entities that a filter selects (KIP-546).

A component of the filter selects entities by one part: its name, the default, or whatever it is. Without ``strict`` an
entity may have more parts than the filter names. A filter without components selects all, or with ``strict`` nothing.

Versions: 1 is flexible.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, in_slices, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.config_changes import ConfigResource
from oncelog.coordinator.controller.config_changes import ResourceType as ConfigType
from oncelog.coordinator.controller.config_repository import ConfigRepository
from oncelog.coordinator.controller.quota_entities import entity_of_resource, quotas_in
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.client_quotas import (
    CLIENT_ID,
    DEFAULT,
    ENTITY_TYPES,
    IP,
    USER,
    DefaultName,
    EntityName,
    MatchType,
    QuotaEntity,
)
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from oncelog.protocol.records.record_walk import WorkBudget

_Wanted: TypeAlias = Mapping[str, EntityName | None]
"""By the type of a part its name; None: any."""
_UNITS_PER_ENTITY: Final = 2
_IP_WITH_OTHERS: Final = (
    "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter "
    "component."
)


@handles(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1")
def handle_describe_client_quotas(
    broker: Broker, context: RequestContext, request: DescribeClientQuotasRequest
) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return _refused(ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."))
    wanted = read_filter(request.components)
    if isinstance(wanted, ApiError):
        return _refused(wanted)
    budget = new_budget()
    steps = _describe(broker.configs, wanted, request.strict, budget)
    return broker.sliced_work.start(steps, budget, context.connection, needs_place=False)


def read_filter(components: list[ComponentData]) -> _Wanted | ApiError:
    """Return which parts entities must have, or why the filter makes no sense."""
    wanted: dict[str, EntityName | None] = {}
    for component in components:
        part = _read_component(component, wanted)
        if isinstance(part, ApiError):
            return part
        wanted[component.entity_type] = part
    if IP in wanted and not wanted.keys().isdisjoint((USER, CLIENT_ID)):
        return ApiError(ErrorCode.INVALID_REQUEST, _IP_WITH_OTHERS)
    return wanted


def _read_component(component: ComponentData, before: _Wanted) -> EntityName | None | ApiError:
    kind, name = component.entity_type, component.match
    if not kind:
        return ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
    if kind in before:
        text = f"Entity type {kind} cannot appear more than once in the filter."
        return ApiError(ErrorCode.INVALID_REQUEST, text)
    if kind not in ENTITY_TYPES:
        return ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
    match component.match_type:
        case MatchType.EXACT:
            if name is None:
                text = "Request specified MATCH_TYPE_EXACT, but set match string to null."
                return ApiError(ErrorCode.INVALID_REQUEST, text)
            return name
        case MatchType.DEFAULT | MatchType.SPECIFIED as match_type:
            if name is not None:
                text = f"Request specified MATCH_TYPE_{MatchType(match_type).name}, but also specified a match string."
                return ApiError(ErrorCode.INVALID_REQUEST, text)
            return DEFAULT if match_type == MatchType.DEFAULT else None
    return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")


def is_selected(entity: QuotaEntity, wanted: _Wanted, *, strict: bool) -> bool:
    """Return whether a filter selects an entity."""
    parts = entity.parts
    if strict and parts.keys() != wanted.keys():
        return False
    return all(kind in parts and name in (None, parts[kind]) for kind, name in wanted.items())


def _describe(
    configs: ConfigRepository, wanted: _Wanted, strict: bool, budget: WorkBudget
) -> Steps[DescribeClientQuotasResponse]:
    resources = [*configs.overridden_resources(ConfigType.USER), *configs.overridden_resources(ConfigType.QUOTA)]
    entities = [(resource, entity) for resource in resources if (entity := entity_of_resource(resource)) is not None]

    def described(item: tuple[ConfigResource, QuotaEntity]) -> EntryData | None:
        resource, entity = item
        quotas = quotas_in(entity, configs.overrides(resource))
        if not quotas or not is_selected(entity, wanted, strict=strict):
            return None
        return EntryData(
            entity=[entity_data(kind, name) for kind, name in entity.parts.items()],
            values=[ValueData(key=key, value=value) for key, value in quotas.items()],
        )

    entries = yield from in_slices(entities, described, budget, _UNITS_PER_ENTITY)
    return DescribeClientQuotasResponse(
        error_message=None, entries=[] if strict and not wanted else [entry for entry in entries if entry is not None]
    )


def entity_data(kind: str, name: EntityName) -> EntityData:
    """Return a part of an entity as it is on the wire."""
    return EntityData(entity_type=kind, entity_name=None if isinstance(name, DefaultName) else name)


def _refused(error: ApiError) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
