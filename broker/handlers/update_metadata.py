"""UpdateMetadata (API key 6): the controller sends the live brokers and the leaders of partitions.

Versions: 0 has one address for each broker, 1 several, 3 names their listeners; before 3 a listener is called by its
security protocol, and a request with one that has no name here is INVALID_REQUEST and changes nothing. 5 is for one
incarnation of the broker (STALE_BROKER_EPOCH) and groups partitions by topic; 7 has topic ids.
"""

import logging

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.handlers.control_plane import validate_control_request
from oncelog.broker.parts import Broker
from oncelog.coordinator.metadata_store.znodes import SecurityProtocol
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)

logger = logging.getLogger(__name__)

_FIRST_VERSION_WITH_ENDPOINTS = 1
_FIRST_VERSION_WITH_LISTENER_NAMES = 3
_FIRST_VERSION_WITH_TOPICS = 5


@handles(ApiKey.UPDATE_METADATA, versions="0-8")
def handle_update_metadata(broker: Broker, context: RequestContext, request: UpdateMetadataRequest) -> Outcome:
    error = validate_control_request(broker, context, request.broker_epoch)
    error = error or _why_unnamed(request, context.api_version)
    if not error:
        _bring_up_to_date(request, context.api_version)
        error = broker.metadata.apply_update_metadata(request)
    return UpdateMetadataResponse(error_code=error)


def _why_unnamed(request: UpdateMetadataRequest, version: int) -> ErrorCode:
    """Return NONE if every endpoint names its listener, or has a security protocol that names it."""
    if version >= _FIRST_VERSION_WITH_LISTENER_NAMES:
        return ErrorCode.NONE
    known = frozenset(SecurityProtocol)
    for broker in request.live_brokers:
        for endpoint in broker.endpoints:
            if endpoint.security_protocol not in known:
                logger.warning(
                    "Refused UpdateMetadata of controller %d: security protocol %d of broker %d is not known",
                    request.controller_id,
                    endpoint.security_protocol,
                    broker.id,
                )
                return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _bring_up_to_date(request: UpdateMetadataRequest, version: int) -> None:
    """Give the request of an older version the form of the newest."""
    if version < _FIRST_VERSION_WITH_TOPICS:
        request.topic_states = _by_topic(request)
    for broker in request.live_brokers:
        if version < _FIRST_VERSION_WITH_ENDPOINTS:
            broker.endpoints = [UpdateMetadataEndpoint(host=broker.v0_host, port=broker.v0_port)]
        if version < _FIRST_VERSION_WITH_LISTENER_NAMES:
            _name_listeners(broker)


def _by_topic(request: UpdateMetadataRequest) -> list[UpdateMetadataTopicState]:
    topics: dict[str, UpdateMetadataTopicState] = {}
    for state in request.ungrouped_partition_states:
        topic = topics.setdefault(state.topic_name, UpdateMetadataTopicState(topic_name=state.topic_name))
        topic.partition_states.append(state)
    return list(topics.values())


def _name_listeners(broker: UpdateMetadataBroker) -> None:
    for endpoint in broker.endpoints:
        endpoint.listener = SecurityProtocol(endpoint.security_protocol).name
