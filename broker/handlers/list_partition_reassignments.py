"""ListPartitionReassignments (API key 46): which partitions are being moved to other brokers (KIP-455).

Null means all of them; partitions that are named and not moving are left out. Only the controller serves it; the client
needs DESCRIBE on the cluster. A controller that is still busy with something else after the request's time-out (but at
least 1 s) returns REQUEST_TIMED_OUT.

Versions: 0.
"""

from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.metadata_store.znodes import ReplicaAssignment
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

_DENIED: Final = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0")
def handle_list_partition_reassignments(
    broker: Broker, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return _refused(_DENIED)
    return _list(broker, request)


async def _list(broker: Broker, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    moving = await broker.controller_apis.reassignments(timeout_seconds=request.timeout_ms / 1000)
    if isinstance(moving, ApiError):
        return _refused(moving)
    wanted = _wanted(request)
    topics: dict[str, OngoingTopicReassignment] = {}
    for partition, assignment in moving.items():
        if wanted is None or partition.partition in wanted.get(partition.topic, ()):
            topic = topics.setdefault(partition.topic, OngoingTopicReassignment(name=partition.topic))
            topic.partitions.append(_ongoing(partition.partition, assignment))
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))


def _wanted(request: ListPartitionReassignmentsRequest) -> dict[str, set[int]] | None:
    """Return the requested partitions by topic; None if all are requested."""
    if request.topics is None:
        return None
    wanted: dict[str, set[int]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, set()).update(topic.partition_indexes)
    return wanted


def _ongoing(index: int, assignment: ReplicaAssignment) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(assignment.replicas),
        adding_replicas=list(assignment.adding),
        removing_replicas=list(assignment.removing),
    )


def _refused(error: ApiError) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
