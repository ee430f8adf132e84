"""FindCoordinator (API key 10): which broker coordinates a group or a transactional id.

It is the leader of one partition of ``__consumer_offsets`` or ``__transaction_state``, chosen by the key's hash. These
topics are created when they are first needed: the response waits for them for a bounded time, and is
COORDINATOR_NOT_AVAILABLE until they exist and have a leader. On ZooKeeper that may need more brokers; the log reports
it.

Versions: 1 adds the type of the key and error messages; 3 is flexible; 4 takes many keys of one type, with a result for
each (KIP-699); 6 knows share groups, which are not served: INVALID_REQUEST, but for clients that may not ask for their
coordinators CLUSTER_AUTHORIZATION_FAILED.
"""

from collections.abc import Collection, Coroutine
from typing import Any, Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import CHARACTERS_PER_UNIT, Steps, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.coordinator.controller.cluster_image import ClusterImage
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME, TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.records.record_walk import WorkBudget

_GROUP: Final = 0
_TRANSACTION: Final = 1
_SHARE: Final = 2
_TOPICS: Final = {_GROUP: GROUP_METADATA_TOPIC_NAME, _TRANSACTION: TRANSACTION_STATE_TOPIC_NAME}
_FIRST_VERSION_WITH_MANY_KEYS: Final = 4
_FIRST_VERSION_WITH_SHARE_GROUPS: Final = 6
_UNITS_PER_KEY: Final = 5
_MESSAGES: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_REQUEST: "There is no such type of coordinator.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}


def error_response(request: FindCoordinatorRequest, version: int, error: ErrorCode) -> FindCoordinatorResponse:
    return _response(version, [_failed(key, error) for key in _keys(version, request)])


@handles(ApiKey.FIND_COORDINATOR, versions="0-6", error_response=error_response)
def handle_find_coordinator(broker: Broker, context: RequestContext, request: FindCoordinatorRequest) -> Outcome:
    topic = _TOPICS.get(request.key_type)
    if topic is None:
        return error_response(request, context.api_version, _why_no_type(broker, context, request.key_type))
    if broker.metadata.image.topic(topic) is None:
        return _create_and_respond(broker, context, request, topic)
    return _respond(broker, context, request, topic)


def _why_no_type(broker: Broker, context: RequestContext, key_type: int) -> ErrorCode:
    """Return the error of a type of keys that has no coordinator."""
    if key_type == _SHARE and context.api_version >= _FIRST_VERSION_WITH_SHARE_GROUPS:
        if not broker.authorizer.authorize(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.INVALID_REQUEST


async def _create_and_respond(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest, topic: str
) -> FindCoordinatorResponse:
    await broker.auto_topics.create([topic])
    response = _respond(broker, context, request, topic)
    return response if isinstance(response, FindCoordinatorResponse) else await response


def _respond(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest, topic: str
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    """Return the response, or a coroutine that goes on with it in slices: there may be many keys."""
    budget = new_budget()
    steps = _find_all(broker, context, request, topic, budget)
    return broker.sliced_work.start(steps, budget, context.connection, needs_place=False)


def _find_all(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest, topic: str, budget: WorkBudget
) -> Steps[FindCoordinatorResponse]:
    image, listener = broker.metadata.image, context.connection.listener_name
    coordinators: list[Coordinator] = []
    for key in _keys(context.api_version, request):
        error = _denied(broker, context, request.key_type, key)
        coordinators.append(_failed(key, error) if error else _find(image, listener, topic, key))
        budget.left -= _UNITS_PER_KEY + len(key) // CHARACTERS_PER_UNIT
        if budget.left <= 0:
            yield None
    return _response(context.api_version, coordinators)


def _keys(version: int, request: FindCoordinatorRequest) -> Collection[str]:
    return request.coordinator_keys if version >= _FIRST_VERSION_WITH_MANY_KEYS else (request.key,)


def _denied(broker: Broker, context: RequestContext, key_type: int, key: str) -> ErrorCode:
    resource_type = ResourceType.GROUP if key_type == _GROUP else ResourceType.TRANSACTIONAL_ID
    if broker.authorizer.authorize(context, Operation.DESCRIBE, resource_type, key):
        return ErrorCode.NONE
    if key_type == _GROUP:
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _find(image: ClusterImage, listener: str, topic: str, key: str) -> Coordinator:
    known = image.topic(topic)
    if known is None:
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = known.partitions.get(partition_for(key, len(known.partitions)))
    endpoint = None if partition is None else image.endpoint(partition.leader, listener)
    if partition is None or endpoint is None:
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key=key, node_id=partition.leader, host=endpoint.host, port=endpoint.port, error_message=None)


def _failed(key: str, error: ErrorCode) -> Coordinator:
    return Coordinator(key=key, node_id=-1, port=-1, error_code=error, error_message=_MESSAGES.get(error, error.name))


def _response(version: int, coordinators: list[Coordinator]) -> FindCoordinatorResponse:
    if version >= _FIRST_VERSION_WITH_MANY_KEYS:
        return FindCoordinatorResponse(coordinators=coordinators)
    only = coordinators[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
