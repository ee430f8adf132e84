"""AlterClientQuotas (API key 49): sets and removes limits of users, client ids and IP addresses (KIP-546, KIP-612).

What is requested for one entity is done as a whole or not at all; other entities are not affected. Any broker takes the
request: the write is conditional in the metadata store, like every change of a configuration. Numbers are kept as
Kafka 3.9 keeps them. An IP must be an address: names of hosts are refused.

Versions: 1 is flexible.
"""

import math
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Final

from oncelog.broker.config.resource_settings import LONGEST_NAME
from oncelog.broker.config.settings import INT32_MAX, INT64_MAX
from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import in_slices, new_budget
from oncelog.broker.handlers.config_requests import alter_in_store
from oncelog.broker.handlers.sliced_refusal import refuse_in_slices
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.config_changes import ConfigAlteration, ConfigOperation, OperationType
from oncelog.coordinator.controller.quota_entities import quota_text, resource_of_entity
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.client_quotas import (
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    DEFAULT,
    ENTITY_TYPES,
    IP_KEYS,
    PRODUCER_BYTE_RATE,
    EntityName,
    QuotaEntity,
)
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
    EntityData,
    EntryData,
    OpData,
)

_UNITS_PER_ENTRY: Final = 4
_WHOLE: Final[Mapping[str, tuple[str, int]]] = {
    PRODUCER_BYTE_RATE: ("a LONG", INT64_MAX),
    CONSUMER_BYTE_RATE: ("a LONG", INT64_MAX),
    CONNECTION_CREATION_RATE: ("an INT", INT32_MAX),
}
"""Limits that are whole numbers, with the type that Kafka keeps them in."""
_TOLERANCE: Final = 1e-6
_NO_ZNODES: Final = (".", "..")
_EMPTY: Final = ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")


def refuse_alter_client_quotas(
    request: AlterClientQuotasRequest, version: int, error: ErrorCode
) -> AlterClientQuotasResponse:
    """Return the error for every entity."""
    return AlterClientQuotasResponse(entries=[_result(entry, ApiError(error)) for entry in request.entries])


@handles(ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", error_response=refuse_alter_client_quotas)
def handle_alter_client_quotas(broker: Broker, context: RequestContext, request: AlterClientQuotasRequest) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        refuse = partial(_result, error=ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return refuse_in_slices(
            broker, context, request.entries, refuse, lambda refused: AlterClientQuotasResponse(entries=list(refused))
        )
    return _alter(broker, context, request)


async def _alter(
    broker: Broker, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    budget, work, connection = new_budget(), broker.sliced_work, context.connection
    read = await work.finish(in_slices(request.entries, read_entry, budget, _UNITS_PER_ENTRY), budget, connection)
    times = Counter(each.resource for each in read if isinstance(each, ConfigAlteration))
    checked = [
        _named_again(entry) if isinstance(each, ConfigAlteration) and times[each.resource] > 1 else each
        for entry, each in zip(request.entries, read, strict=True)
    ]
    alterations = [each for each in checked if isinstance(each, ConfigAlteration)]
    results = iter(await alter_in_store(broker, alterations, validate_only=request.validate_only))

    def respond(item: tuple[EntryData, ConfigAlteration | ApiError]) -> AlteredEntryData:
        entry, each = item
        return _result(entry, next(results) if isinstance(each, ConfigAlteration) else each)

    responses = in_slices(zip(request.entries, checked, strict=True), respond, budget, _UNITS_PER_ENTRY)
    return AlterClientQuotasResponse(entries=await work.finish(responses, budget, connection))


def read_entry(entry: EntryData) -> ConfigAlteration | ApiError:
    """Return the change that is requested for one entity, or why it must not be made."""
    entity = read_entity(entry.entity)
    if isinstance(entity, ApiError):
        return entity
    keys = Counter(op.key for op in entry.ops)
    twice = next((key for key, times in keys.items() if times > 1), None)
    if twice is not None:
        text = f"Duplicate quota key {twice} not updating quota for this entity {entity}"
        return ApiError(ErrorCode.INVALID_REQUEST, text)
    operations = []
    for op in entry.ops:
        if op.remove:
            operations.append(ConfigOperation(op.key, OperationType.DELETE))
            continue
        refused = why_invalid_limit(entity, op)
        if refused is not None:
            return refused
        text = quota_text(op.key, op.value, is_integral=op.key in _WHOLE)
        operations.append(ConfigOperation(op.key, OperationType.SET, text))
    allowed = _keys_of(entity)
    return ConfigAlteration(
        resource=resource_of_entity(entity),
        operations=tuple(operation for operation in operations if operation.key in allowed),
    )


def read_entity(parts: list[EntityData]) -> QuotaEntity | ApiError:
    """Return the entity that a request names, or why there can be none."""
    names: dict[str, EntityName] = {}
    for part in parts:
        kind, name = part.entity_type, part.entity_name
        if kind not in ENTITY_TYPES:
            return ApiError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if kind in names:
            text = f"Invalid empty client quota entity, duplicate entity entry {kind}"
            return ApiError(ErrorCode.INVALID_REQUEST, text)
        if name == "":
            return ApiError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
        if name is not None and (len(name) > LONGEST_NAME or name in _NO_ZNODES):
            text = f"The {kind} must not be . or .., or longer than {LONGEST_NAME} characters"
            return ApiError(ErrorCode.INVALID_REQUEST, text)
        names[kind] = DEFAULT if name is None else name
    entity = QuotaEntity(*(names.get(kind) for kind in ENTITY_TYPES))
    if not names or (entity.ip is not None and len(names) > 1):
        return _EMPTY
    if isinstance(entity.ip, str) and not _is_address(entity.ip):
        return ApiError(ErrorCode.INVALID_REQUEST, f"{entity.ip} is not a valid IP or resolvable host.")
    return entity


def why_invalid_limit(entity: QuotaEntity, op: OpData) -> ApiError | None:
    """Return why the entity must not have this limit, or None."""
    key, value = op.key, op.value
    reason = ""
    if key not in _keys_of(entity):
        reason = f"Invalid configuration key {key}"
    elif not value > 0:  # Nor is what is no number.
        reason = f"Quota {key} must be greater than 0"
    elif key in _WHOLE and value > _WHOLE[key][1]:
        reason = f"Proposed value for {key} is too large for {_WHOLE[key][0]}."
    elif key in _WHOLE and value % 1 > _TOLERANCE:
        reason = f"{key} cannot be a fractional value."
    elif math.isinf(value):
        reason = f"Proposed value for {key} is too large."
    return ApiError(ErrorCode.INVALID_REQUEST, reason) if reason else None


def _keys_of(entity: QuotaEntity) -> tuple[str, ...]:
    return CLIENT_KEYS if entity.ip is None else IP_KEYS


def _is_address(text: str) -> bool:
    from ipaddress import ip_address  # Only such a quota pays for it, not every start.

    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _named_again(entry: EntryData) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {read_entity(entry.entity)}")


def _result(entry: EntryData, error: ApiError) -> AlteredEntryData:
    return AlteredEntryData(error_code=error.code, error_message=error.message, entity=entry.entity)
