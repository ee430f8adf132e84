"""ElectLeaders (API key 43): elect leaders of partitions now (KIP-460).

When the response is sent, the new leaders are known here. Null means all partitions; those that need no election are
left out of the response then. Only the controller elects; the client needs ALTER on the cluster. An election that takes
longer than the request's time-out (but at least 1 s) is REQUEST_TIMED_OUT, and may still take place.

Versions: 0 knows preferred elections only, and has no error for the whole request; 2 is flexible.
"""

from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import in_slices, new_budget
from oncelog.broker.handlers.sliced_refusal import refuse_in_slices
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.leader_elections import ElectionType
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionElectionResult,
    ReplicaElectionResult,
)
from oncelog.protocol.topic_partition import TopicPartition

_DENIED: Final = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
_UNKNOWN_TYPE: Final = ApiError(ErrorCode.INVALID_REQUEST, "There is no such type of election.")


def refuse_elect_leaders(request: ElectLeadersRequest, version: int, error: ErrorCode) -> ElectLeadersResponse:
    """Return the error for the request, and for every partition that it names."""
    return _refused(request, ApiError(error))


@handles(ApiKey.ELECT_LEADERS, versions="0-2", error_response=refuse_elect_leaders)
def handle_elect_leaders(broker: Broker, context: RequestContext, request: ElectLeadersRequest) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        topics = _Topics()
        refused = ((partition, _DENIED) for partition in dict.fromkeys(_partitions(request)))
        return refuse_in_slices(broker, context, refused, topics.add, lambda _: topics.response(_DENIED.code))
    if request.election_type not in ElectionType.__members__.values():
        return _refused(request, _UNKNOWN_TYPE)
    return _elect(broker, context, request)


async def _elect(broker: Broker, context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    named = request.topic_partitions
    partitions = None if named is None else _partitions(request)
    results = await broker.controller_apis.elect_leaders(
        partitions, ElectionType(request.election_type), timeout_seconds=request.timeout_ms / 1000
    )
    if isinstance(results, ApiError):
        return _refused(request, results)
    budget, topics = new_budget(), _Topics()
    await broker.sliced_work.finish(in_slices(results.items(), topics.add, budget, 2), budget, context.connection)
    return topics.response()


def _partitions(request: ElectLeadersRequest) -> list[TopicPartition]:
    return [
        TopicPartition(topic.topic, index) for topic in request.topic_partitions or () for index in topic.partitions
    ]


def _refused(request: ElectLeadersRequest, error: ApiError) -> ElectLeadersResponse:
    topics = _Topics()
    for partition in dict.fromkeys(_partitions(request)):
        topics.add((partition, error))
    return topics.response(error.code)


class _Topics:
    """The results of partitions, by topic."""

    def __init__(self) -> None:
        self._topics: dict[str, ReplicaElectionResult] = {}

    def add(self, result: tuple[TopicPartition, ApiError]) -> None:
        (name, index), error = result
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = ReplicaElectionResult(topic=name)
        topic.partition_result.append(
            PartitionElectionResult(partition_id=index, error_code=error.code, error_message=error.message)
        )

    def response(self, error: ErrorCode = ErrorCode.NONE) -> ElectLeadersResponse:
        return ElectLeadersResponse(error_code=error, replica_election_results=list(self._topics.values()))
