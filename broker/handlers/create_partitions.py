"""CreatePartitions (API key 37): give existing topics more partitions.

Each topic succeeds or fails on its own; when the response is sent, the new partitions have leaders, and all live
brokers know them. If that takes longer than the request's time-out (but at least 1 s), the error is REQUEST_TIMED_OUT,
and the partitions exist all the same. Only the controller adds partitions.

Versions: 2 is flexible; 3 gets THROTTLING_QUOTA_EXCEEDED for topics beyond controller_mutation_rate (KIP-599).
"""

from collections import Counter
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import in_slices, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.topic_plan import NewPartitions
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

_UNITS_PER_TOPIC: Final = 5
_FIRST_STRICT_VERSION: Final = 3


def refuse_create_partitions(
    request: CreatePartitionsRequest, version: int, error: ErrorCode
) -> CreatePartitionsResponse:
    """Return the error for every topic."""
    return CreatePartitionsResponse(results=[_result(topic.name, ApiError(error)) for topic in request.topics])


@handles(ApiKey.CREATE_PARTITIONS, versions="0-3", error_response=refuse_create_partitions)
def handle_create_partitions(broker: Broker, context: RequestContext, request: CreatePartitionsRequest) -> Outcome:
    return _create(broker, context, request)


async def _create(
    broker: Broker, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    errors = {name: ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in counts if counts[name] > 1}
    budget, work, connection = new_budget(), broker.sliced_work, context.connection

    def judge(name: str) -> None:
        if not broker.authorizer.authorize(context, Operation.ALTER, ResourceType.TOPIC, name):
            errors[name] = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")

    judged = in_slices([name for name in counts if name not in errors], judge, budget, _UNITS_PER_TOPIC)
    await work.finish(judged, budget, connection)
    topics = [_new_partitions(topic) for topic in request.topics if topic.name not in errors]
    mutations = broker.quotas.mutations(context, is_strict=context.api_version >= _FIRST_STRICT_VERSION)
    results = await broker.controller_apis.create_partitions(
        topics,
        validate_only=request.validate_only,
        timeout_seconds=request.timeout_ms / 1000,
        admit=mutations.admit,
    )
    for topic, result in zip(topics, results, strict=True):
        errors[topic.topic] = result
    described = in_slices(counts, lambda name: _result(name, errors[name]), budget, _UNITS_PER_TOPIC)
    return CreatePartitionsResponse(
        throttle_time_ms=broker.quotas.settle_mutations(context, mutations),
        results=await work.finish(described, budget, connection),
    )


def _new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = None if topic.assignments is None else [tuple(each.broker_ids) for each in topic.assignments]
    return NewPartitions(topic=topic.name, total_count=topic.count, assignments=assignments)


def _result(name: str, error: ApiError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
