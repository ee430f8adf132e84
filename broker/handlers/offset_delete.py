"""OffsetDelete: forget committed offsets of a group, except for topics that its members subscribe to (KIP-496)."""

from typing import TYPE_CHECKING

from broker.dispatch import Outcome, RequestContext, handles
from broker.security.authorizer import Operation, ResourceType
from coordinator.group.offset_requests import PartitionErrors
from coordinator.runtime import Reply
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.server import Broker


@handles(ApiKey.OFFSET_DELETE, versions="0")
def handle_offset_delete(broker: "Broker", context: RequestContext, request: OffsetDeleteRequest) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: PartitionErrors = {}
    deletable: dict[TopicPartition, None] = {}
    """Each once: one that is named again would be deleted, in the log, as often."""
    for topic in request.topics:
        allowed = broker.authorizer.authorize(context, Operation.READ, ResourceType.TOPIC, topic.name)
        image = broker.metadata.image.topic(topic.name)
        for asked in topic.partitions:
            partition = TopicPartition(topic.name, asked.partition_index)
            if not allowed:
                refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image is None or asked.partition_index not in image.partitions:
                refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                deletable[partition] = None
    reply: Reply[OffsetDeleteResponse] = Reply()
    broker.group_coordinator.delete_offsets(
        request.group_id, list(deletable), lambda errors: reply(_response(request, refused, errors))
    )
    return reply.answer()


def _response(
    request: OffsetDeleteRequest, refused: PartitionErrors, errors: PartitionErrors | ErrorCode
) -> OffsetDeleteResponse:
    """An error of the group leaves no room for those of partitions."""
    if isinstance(errors, ErrorCode):
        return OffsetDeleteResponse(error_code=errors)
    by_partition = refused | errors
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=by_partition[TopicPartition(topic.name, partition.partition_index)],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
