"""AlterConfigs (API key 33): replace all overrides of a topic's or a broker's configuration.

Overrides that the request does not name are removed, which is why clients prefer IncrementalAlterConfigs. Any broker
changes a topic's configuration; a broker's own is changed by that broker.

Versions: 2 is flexible.
"""

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import in_slices, new_budget
from oncelog.broker.handlers.config_requests import RequestedAlteration, alter, requested_in_slices
from oncelog.broker.parts import Broker
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.config_changes import ConfigOperation, OperationType
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def refuse_alter_configs(request: AlterConfigsRequest, version: int, error: ErrorCode) -> AlterConfigsResponse:
    """Return the error for every resource."""
    refusal = ApiError(error)
    return AlterConfigsResponse(responses=[_resource_response((resource, refusal)) for resource in request.resources])


@handles(ApiKey.ALTER_CONFIGS, versions="0-2", error_response=refuse_alter_configs)
def handle_alter_configs(broker: Broker, context: RequestContext, request: AlterConfigsRequest) -> Outcome:
    return _alter(broker, context, request)


async def _alter(broker: Broker, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    budget, work, connection = new_budget(), broker.sliced_work, context.connection
    requested = await work.finish(requested_in_slices(request.resources, _requested, budget), budget, connection)
    errors = await alter(broker, context, requested, validate_only=request.validate_only)
    responses = in_slices(zip(request.resources, errors, strict=True), _resource_response, budget, 1)
    return AlterConfigsResponse(responses=await work.finish(responses, budget, connection))


def _requested(resource: AlterConfigsResource) -> RequestedAlteration:
    operations = tuple(ConfigOperation(each.name, OperationType.SET, each.value) for each in resource.configs)
    return RequestedAlteration(resource.resource_type, resource.resource_name, operations, replaces_all=True)


def _resource_response(altered: tuple[AlterConfigsResource, ApiError]) -> AlterConfigsResourceResponse:
    resource, error = altered
    return AlterConfigsResourceResponse(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
