"""TxnOffsetCommit: commit offsets as part of a producer's transaction.

The transaction's coordinator is asked, in the same step as the append, whether the group's partition of the offsets
topic is in an ongoing transaction of this producer. A commit that comes after the end of its transaction would wait for
a marker that nobody ever writes, and no consumer that insists on stable offsets could go on (KIP-890).

From version 3 on the consumer's group metadata comes along, so that a producer whose consumer fell out of the group is
fenced like any other commit of it (KIP-447). Clients of versions 0 and 1 cannot bear COORDINATOR_LOAD_IN_PROGRESS, and
those before 4 TRANSACTION_ABORTABLE. Versions above 4 belong to the second transaction protocol and are not served yet.
"""

from typing import TYPE_CHECKING

from broker.dispatch import Outcome, RequestContext, handles
from broker.security.authorizer import Operation, ResourceType
from coordinator.controller.cluster_image import GROUP_METADATA_TOPIC_NAME
from coordinator.group.offset_requests import Committer, OffsetToCommit, PartitionErrors
from coordinator.group.shard import Producer
from coordinator.runtime import Reply
from coordinator.transaction.state import ProducerIdAndEpoch
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.server import Broker

_FIRST_THAT_KNOWS_LOADING = 2
_FIRST_THAT_KNOWS_ABORTABLE = 4

_UNDECIDED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""The transaction's coordinator cannot say yet. That is no reason to look for the group's coordinator anew."""


def refuse_txn_offset_commit(
    request: TxnOffsetCommitRequest, version: int, error: ErrorCode
) -> TxnOffsetCommitResponse:
    """The error for every partition."""
    errors = {
        TopicPartition(topic.name, partition.partition_index): error
        for topic in request.topics
        for partition in topic.partitions
    }
    return _response(request, version, errors)


@handles(ApiKey.TXN_OFFSET_COMMIT, versions="0-4", error_response=refuse_txn_offset_commit)
def handle_txn_offset_commit(broker: "Broker", context: RequestContext, request: TxnOffsetCommitRequest) -> Outcome:
    version = context.api_version
    authorize = broker.authorizer.authorize
    if not authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return refuse_txn_offset_commit(request, version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not authorize(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse_txn_offset_commit(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: PartitionErrors = {}
    offsets: list[OffsetToCommit] = []
    for topic in request.topics:
        _judge_topic(broker, context, topic, offsets, refused)
    if not offsets:
        return _response(request, version, refused)
    error = _verify(broker, request)
    if error is not ErrorCode.NONE:
        return _response(request, version, refused | {offset.partition: error for offset in offsets})
    reply: Reply[TxnOffsetCommitResponse] = Reply()
    broker.group_coordinator.txn_commit_offsets(
        Committer(request.group_id, request.member_id, request.group_instance_id, request.generation_id),
        Producer(request.producer_id, request.producer_epoch),
        offsets,
        lambda errors: reply(_response(request, version, refused | errors)),
    )
    return reply.answer()


def _verify(broker: "Broker", request: TxnOffsetCommitRequest) -> ErrorCode:
    """Does the commit belong to an ongoing transaction?"""
    groups = broker.group_coordinator
    index = groups.partition_for(request.group_id)
    if index is None or broker.transaction_verifier is None or groups.availability(request.group_id):
        return ErrorCode.NONE  # Then the group's coordinator has its own answer.
    partition = TopicPartition(GROUP_METADATA_TOPIC_NAME, index)
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    errors = broker.transaction_coordinator.verify_partitions(
        request.transactional_id, producer, frozenset({partition})
    )
    error = errors[partition]
    if error in _UNDECIDED:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error


def _judge_topic(
    broker: "Broker",
    context: RequestContext,
    topic: TxnOffsetCommitRequestTopic,
    offsets: list[OffsetToCommit],
    refused: PartitionErrors,
) -> None:
    """Sort a topic's partitions into those to commit and those that are refused."""
    allowed = broker.authorizer.authorize(context, Operation.READ, ResourceType.TOPIC, topic.name)
    image = broker.metadata.image.topic(topic.name)
    for asked in topic.partitions:
        partition = TopicPartition(topic.name, asked.partition_index)
        if not allowed:
            refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image is None or asked.partition_index not in image.partitions:
            refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            metadata = asked.committed_metadata or ""
            offsets.append(
                OffsetToCommit(
                    partition, asked.committed_offset, asked.committed_leader_epoch, metadata, image.topic_id
                )
            )


def _response(request: TxnOffsetCommitRequest, version: int, errors: PartitionErrors) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=_for_version(errors[TopicPartition(topic.name, partition.partition_index)], version),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _for_version(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_THAT_KNOWS_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _FIRST_THAT_KNOWS_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return error
