"""AlterPartitionReassignments (API key 45): move partitions to other brokers, or take such a move back (KIP-455).

Each partition succeeds or fails on its own. The response is sent when the move has begun; ListPartitionReassignments
lists it until it ends. Only the controller moves partitions; the client needs ALTER on the cluster. Where the move has
not begun within the request's time-out (but at least 1 s), the error is REQUEST_TIMED_OUT, and it may begin yet.

Versions: 1 can forbid that the number of replicas changes.
"""

from collections.abc import Sequence
from functools import partial

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.handlers.sliced_refusal import refuse_in_slices
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from oncelog.protocol.topic_partition import TopicPartition


def refuse_reassignments(
    request: AlterPartitionReassignmentsRequest, version: int, error: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    """Return the error for the whole request and for every partition."""
    response = _refused(ApiError(error))
    response.responses = [_refused_topic(topic, error) for topic in request.topics]
    return response


def _refused_topic(topic: ReassignableTopic, error: ErrorCode) -> ReassignableTopicResponse:
    partitions = [
        ReassignablePartitionResponse(partition_index=each.partition_index, error_code=error)
        for each in topic.partitions
    ]
    return ReassignableTopicResponse(name=topic.name, partitions=partitions)


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1")
def handle_alter_partition_reassignments(
    broker: Broker, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

        def respond(refused: Sequence[ReassignableTopicResponse]) -> AlterPartitionReassignmentsResponse:
            response = _refused(ApiError(error))
            response.responses = list(refused)
            return response

        return refuse_in_slices(broker, context, request.topics, partial(_refused_topic, error=error), respond)
    return _alter(broker, request)


async def _alter(broker: Broker, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    targets = {
        TopicPartition(topic.name, partition.partition_index): partition.replicas
        for topic in request.topics
        for partition in topic.partitions
    }
    may_resize = request.allow_replication_factor_change
    results = await broker.controller_apis.alter_reassignments(
        targets, may_resize=may_resize, timeout_seconds=request.timeout_ms / 1000
    )
    if isinstance(results, ApiError):
        return _refused(results)
    topics: dict[str, ReassignableTopicResponse] = {}
    for (name, index), error in results.items():
        topics.setdefault(name, ReassignableTopicResponse(name=name)).partitions.append(
            ReassignablePartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_resize, responses=list(topics.values())
    )


def _refused(error: ApiError) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
