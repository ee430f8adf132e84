"""OffsetForLeaderEpoch (API key 23): where a leader epoch ends in this broker's log.

After a change of leader consumers check with it whether what they have read is still part of the log (KIP-320): if
their last epoch ends here before their position, the log was truncated behind them. For an unknown epoch the response
has the largest known one below it; -1 and -1 mean that there is none. Many partitions are looked up in slices.

Versions: 3 has the replica id of a follower; 4 is flexible.
"""

from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from oncelog.protocol.records.record_walk import WorkBudget

_UNITS_PER_PARTITION: Final = 10


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4")
def handle_offset_for_leader_epoch(
    broker: Broker, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Outcome:
    budget = new_budget()
    steps = _end_offsets(broker, context, request, budget)
    return broker.sliced_work.start(steps, budget, context.connection, needs_place=False)


def _end_offsets(
    broker: Broker, context: RequestContext, request: OffsetForLeaderEpochRequest, budget: WorkBudget
) -> Steps[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        result = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(result)
        may_describe = _may_describe(broker, context, topic.topic)
        for requested in topic.partitions:
            if may_describe:
                result.partitions.append(_end_offset(broker, topic.topic, requested))
            else:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                result.partitions.append(EpochEndOffset(partition=requested.partition, error_code=error))
            budget.left -= _UNITS_PER_PARTITION
            if budget.left <= 0:
                yield None
    return response


def _may_describe(broker: Broker, context: RequestContext, topic: str) -> bool:
    return broker.authorizer.permits(
        context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    ) or broker.authorizer.authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)


def _end_offset(broker: Broker, topic: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
    result = EpochEndOffset(partition=requested.partition)
    partition = broker.replica_manager.find((topic, requested.partition))
    if isinstance(partition, ErrorCode):
        result.error_code = partition
        return result
    error = partition.check_leader_epoch(requested.current_leader_epoch)
    leading = partition.leading
    if error or leading is None:
        result.error_code = error or partition.unavailable_error
        return result
    result.leader_epoch, result.end_offset = leading.log.end_offset_for_epoch(requested.leader_epoch)
    return result
