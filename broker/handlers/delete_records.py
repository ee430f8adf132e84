"""DeleteRecords (API key 21): move the start of logs forward, so that what lies before may be removed.

Offset -1 means up to the high watermark; nothing beyond it can be deleted. The response's low watermark is the
lowest log start of all live replicas; the response waits until that has reached the requested offset. Internal topics
and topics that are only compacted are refused.

Versions: 2 is flexible.
"""

from typing import Final

from oncelog.broker.dispatch.api_handler import Later, Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.replication.delayed_delete_records import UNKNOWN_LOW_WATERMARK, DelayedDeleteRecords, Undeleted
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import INTERNAL_TOPICS
from oncelog.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.schema import Message

_UNITS_PER_PARTITION: Final = 20


@handles(ApiKey.DELETE_RECORDS, versions="0-2")
def handle_delete_records(broker: Broker, context: RequestContext, request: DeleteRecordsRequest) -> Outcome:
    budget = new_budget()
    steps = _delete_all(broker, context, request, budget)
    return broker.sliced_work.start(steps, budget, context.connection, needs_place=False)


def _delete_all(
    broker: Broker, context: RequestContext, request: DeleteRecordsRequest, budget: WorkBudget
) -> Steps[Message | Later | None]:
    response = DeleteRecordsResponse()
    undeleted: list[Undeleted] = []
    for topic in request.topics:
        result = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(result)
        error = _topic_error(broker, context, topic.name)
        for requested in topic.partitions:
            result.partitions.append(
                _refused(requested.partition_index, error)
                if error
                else _delete(broker, (topic.name, requested.partition_index), requested.offset, undeleted)
            )
            budget.left -= _UNITS_PER_PARTITION
            if budget.left <= 0:
                yield None
    return DelayedDeleteRecords(response).start(undeleted, request.timeout_ms) if undeleted else response


def _topic_error(broker: Broker, context: RequestContext, topic: str) -> ErrorCode:
    if not broker.authorizer.authorize(context, Operation.DELETE, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.INVALID_TOPIC_EXCEPTION if topic in INTERNAL_TOPICS else ErrorCode.NONE


def _delete(
    broker: Broker, topic_partition: tuple[str, int], offset: int, undeleted: list[Undeleted]
) -> DeleteRecordsPartitionResult:
    partition = broker.replica_manager.led_partition(topic_partition)
    if isinstance(partition, ErrorCode):
        return _refused(topic_partition[1], partition)
    deleted = partition.delete_records(offset)
    if isinstance(deleted, ErrorCode):
        return _refused(topic_partition[1], deleted)
    result = DeleteRecordsPartitionResult(partition_index=topic_partition[1], low_watermark=deleted.low_watermark)
    if deleted.low_watermark < deleted.up_to:
        undeleted.append(Undeleted(partition, deleted.up_to, result))
    return result


def _refused(index: int, error: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=UNKNOWN_LOW_WATERMARK, error_code=error)
