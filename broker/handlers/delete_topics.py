"""DeleteTopics (API key 20): delete topics, by name or by id.

A topic is gone from the metadata at once; the response waits, up to the client's time-out, until all of its replicas
are deleted and its name is free. REQUEST_TIMED_OUT means that the deletion goes on. Only the controller deletes.

The client needs DELETE on the cluster or on the topic, and DESCRIBE on a topic that it names; the name of a topic that
it gives by its id is returned only if it may describe it.

Versions: 4 is flexible; 5 has error messages, and gets THROTTLING_QUOTA_EXCEEDED for topics beyond
controller_mutation_rate (KIP-599); 6 takes ids (KIP-516).
"""

from collections.abc import Set
from functools import partial
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import in_slices, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from oncelog.protocol.schema import ZERO_UUID

_FIRST_VERSION_WITH_A_CODE_FOR_DISABLED = 3
_FIRST_STRICT_VERSION: Final = 5
_UNITS_PER_TOPIC: Final = 10


def refuse_delete_topics(request: DeleteTopicsRequest, version: int, error: ErrorCode) -> DeleteTopicsResponse:
    """Return the error for every topic."""
    return DeleteTopicsResponse(responses=[_result(topic, ApiError(error)) for topic in _named(request)])


@handles(ApiKey.DELETE_TOPICS, versions="1-6", error_response=refuse_delete_topics)
def handle_delete_topics(broker: Broker, context: RequestContext, request: DeleteTopicsRequest) -> Outcome:
    if not broker.config.delete_topic_enable:
        old = context.api_version < _FIRST_VERSION_WITH_A_CODE_FOR_DISABLED
        error = ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED
        return refuse_delete_topics(request, context.api_version, error)
    return _delete(broker, context, request)


async def _delete(broker: Broker, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    budget, work, connection = new_budget(), broker.sliced_work, context.connection
    requested = _named(request)
    requested_ids = {topic.topic_id for topic in requested if topic.name is None}
    may_delete_all = broker.authorizer.permits(context, Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME)
    resolve = partial(_resolve, broker, context, requested_ids=requested_ids, may_delete_all=may_delete_all)
    resolved = await work.finish(in_slices(requested, resolve, budget, _UNITS_PER_TOPIC), budget, connection)
    names = [topic.name for topic in resolved if isinstance(topic, DeleteTopicState) and topic.name is not None]
    mutations = broker.quotas.mutations(context, is_strict=context.api_version >= _FIRST_STRICT_VERSION)
    deleting = broker.controller_apis.delete_topics(
        names, timeout_seconds=request.timeout_ms / 1000, admit=mutations.admit
    )
    errors = iter(await deleting)

    def respond(topic: DeleteTopicState | DeletableTopicResult) -> DeletableTopicResult:
        return _result(topic, next(errors)) if isinstance(topic, DeleteTopicState) else topic

    responses = in_slices(resolved, respond, budget, _UNITS_PER_TOPIC)
    deleted = await work.finish(responses, budget, connection)
    return DeleteTopicsResponse(throttle_time_ms=broker.quotas.settle_mutations(context, mutations), responses=deleted)


def _named(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    """Return the topics of any version's request, each name or id once."""
    topics = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    return list({(topic.name, topic.topic_id): topic for topic in topics}.values())


def _resolve(
    broker: Broker,
    context: RequestContext,
    topic: DeleteTopicState,
    *,
    requested_ids: Set[bytes],
    may_delete_all: bool,
) -> DeleteTopicState | DeletableTopicResult:
    """Return the topic with its name and id, or why it is not deleted."""
    if topic.name is None and topic.topic_id == ZERO_UUID:
        return _result(topic, ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."))
    if topic.name is not None and topic.topic_id != ZERO_UUID:
        return _result(topic, ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."))
    image = broker.metadata.image
    found = image.topic_by_id(topic.topic_id) if topic.name is None else image.topic(topic.name)
    name = found.name if found is not None else topic.name
    if name is None:
        return _result(topic, ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."))
    refusal = None if may_delete_all else _refusal(broker, context, topic, name, is_known=found is not None)
    if refusal is not None:
        return refusal
    if topic.name is not None and found is not None and found.topic_id in requested_ids:
        error = "The provided topic name maps to an ID that was already supplied."
        return _result(topic, ApiError(ErrorCode.INVALID_REQUEST, error))
    return DeleteTopicState(name=name, topic_id=ZERO_UUID if found is None else found.topic_id)


def _refusal(
    broker: Broker, context: RequestContext, topic: DeleteTopicState, name: str, *, is_known: bool
) -> DeletableTopicResult | None:
    """Return why the client must not delete this topic, without a word about what it must not describe."""
    authorizer, denied = (
        broker.authorizer,
        ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    )
    if topic.name is not None and not authorizer.authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
        return _result(topic, denied)
    if authorizer.authorize(context, Operation.DELETE, ResourceType.TOPIC, name):
        return None
    if not is_known:
        return _result(topic, ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic."))
    may_describe = authorizer.permits(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
    return _result(DeleteTopicState(name=name if may_describe else None, topic_id=topic.topic_id), denied)


def _result(topic: DeleteTopicState, error: ApiError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.message
    )
