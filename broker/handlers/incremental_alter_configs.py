"""IncrementalAlterConfigs (API key 44): set, delete, append to or subtract from single settings (KIP-339).

All operations on one resource happen or none does. Any broker changes a topic's configuration; a broker's own is
changed by that broker.

Versions: 1 is flexible.
"""

from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import in_slices, new_budget
from oncelog.broker.handlers.config_requests import RequestedAlteration, alter, requested_in_slices
from oncelog.broker.parts import Broker
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.config_changes import ConfigOperation, OperationType
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_KNOWN_OPERATIONS: Final = frozenset(OperationType)


def refuse_incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, version: int, error: ErrorCode
) -> IncrementalAlterConfigsResponse:
    """Return the error for every resource."""
    refusal = ApiError(error)
    return IncrementalAlterConfigsResponse(
        responses=[_resource_response((resource, refusal)) for resource in request.resources]
    )


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", error_response=refuse_incremental_alter_configs)
def handle_incremental_alter_configs(
    broker: Broker, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> Outcome:
    return _alter(broker, context, request)


async def _alter(
    broker: Broker, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    budget, work, connection = new_budget(), broker.sliced_work, context.connection
    requested = await work.finish(requested_in_slices(request.resources, _requested, budget), budget, connection)
    errors = await alter(broker, context, requested, validate_only=request.validate_only)
    responses = in_slices(zip(request.resources, errors, strict=True), _resource_response, budget, 1)
    return IncrementalAlterConfigsResponse(responses=await work.finish(responses, budget, connection))


def _requested(resource: AlterConfigsResource) -> RequestedAlteration:
    return RequestedAlteration(
        resource.resource_type, resource.resource_name, _operations(resource), replaces_all=False
    )


def _operations(resource: AlterConfigsResource) -> tuple[ConfigOperation, ...] | ApiError:
    unknown = [each.config_operation for each in resource.configs if each.config_operation not in _KNOWN_OPERATIONS]
    if unknown:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {unknown[0]}")
    return tuple(
        ConfigOperation(each.name, OperationType(each.config_operation), each.value) for each in resource.configs
    )


def _resource_response(altered: tuple[AlterConfigsResource, ApiError]) -> AlterConfigsResourceResponse:
    resource, error = altered
    return AlterConfigsResourceResponse(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
