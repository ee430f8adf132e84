"""OffsetForLeaderEpoch (API key 23): where a leader epoch ends in this broker's log.

Consumers ask after a change of leader whether what they have read is still part of the log (KIP-320): if their last
epoch ends here before their position, the log was truncated behind them. An epoch that is not known is answered with
the largest one below it; -1 and -1 mean that nothing is known.

Versions: 3 has the replica id of a follower; 4 is flexible.
"""

from typing import TYPE_CHECKING

from broker.dispatch import Outcome, RequestContext, handles
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from broker.server import Broker


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4")
def handle_offset_for_leader_epoch(
    broker: "Broker", context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Outcome:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _end_offset(broker, topic.topic, asked)
                    if _may_describe(broker, context, topic.topic)
                    else EpochEndOffset(partition=asked.partition, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _may_describe(broker: "Broker", context: RequestContext, topic: str) -> bool:
    return broker.authorizer.authorize(
        context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    ) or broker.authorizer.authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)


def _end_offset(broker: "Broker", topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    partition = broker.replica_manager.find((topic, asked.partition))
    if isinstance(partition, ErrorCode):
        answer.error_code = partition
        return answer
    log = partition.led_log
    error = partition.check_leader_epoch(asked.current_leader_epoch)
    if error or log is None:
        answer.error_code = error or partition.unavailable_error
        return answer
    answer.leader_epoch, answer.end_offset = log.end_offset_for_epoch(asked.leader_epoch)
    return answer
