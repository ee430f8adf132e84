"""DeleteRecords (API key 21): move the start of logs forward, so that what lies before may be removed.

Offset -1 means up to the high watermark; nothing beyond it can be deleted. The answer's low watermark is the lowest
start of all replicas: here of the only one. Internal topics and topics that are only compacted refuse.

Versions: 2 is flexible.
"""

from typing import TYPE_CHECKING, Final

from broker.dispatch import Outcome, RequestContext, handles
from broker.security.authorizer import Operation, ResourceType
from coordinator.controller.cluster_image import INTERNAL_TOPICS
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from broker.server import Broker

_UNKNOWN_LOW_WATERMARK: Final = -1


@handles(ApiKey.DELETE_RECORDS, versions="0-2")
def handle_delete_records(broker: "Broker", context: RequestContext, request: DeleteRecordsRequest) -> Outcome:
    results = []
    for topic in request.topics:
        error = _topic_error(broker, context, topic.name)
        partitions = [
            _result(asked.partition_index, error or _delete(broker, (topic.name, asked.partition_index), asked.offset))
            for asked in topic.partitions
        ]
        results.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    return DeleteRecordsResponse(topics=results)


def _topic_error(broker: "Broker", context: RequestContext, topic: str) -> ErrorCode:
    if not broker.authorizer.authorize(context, Operation.DELETE, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.INVALID_TOPIC_EXCEPTION if topic in INTERNAL_TOPICS else ErrorCode.NONE


def _delete(broker: "Broker", topic_partition: tuple[str, int], offset: int) -> int | ErrorCode:
    partition = broker.replica_manager.led_partition(topic_partition)
    return partition if isinstance(partition, ErrorCode) else partition.delete_records(offset)


def _result(index: int, outcome: int | ErrorCode) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, ErrorCode):
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=_UNKNOWN_LOW_WATERMARK, error_code=outcome
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=outcome)
