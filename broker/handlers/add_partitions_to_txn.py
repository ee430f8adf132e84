"""AddPartitionsToTxn (API key 24): a producer says where its transaction is about to write.

All or nothing: if one partition cannot be added, it gets its error and the others OPERATION_NOT_ATTEMPTED. Internal
topics are not for clients; offsets get into a transaction through AddOffsetsToTxn.

A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, which clients retry without end; so the coordinator says
when it is time for INVALID_TOPIC_EXCEPTION, which makes them abort.

Versions: 2 is the first whose clients know PRODUCER_FENCED; before, they are told INVALID_PRODUCER_EPOCH. 3 is
flexible. 4 and above are between brokers and are not served yet.
"""

from typing import TYPE_CHECKING, Final

from broker.dispatch import Outcome, RequestContext, handles
from broker.security.authorizer import Operation, ResourceType
from coordinator.controller.cluster_image import INTERNAL_TOPICS
from coordinator.runtime import map_answer
from coordinator.transaction.state import ProducerIdAndEpoch
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.server import Broker

_FIRST_WITH_PRODUCER_FENCED: Final = 2


def error_response(request: AddPartitionsToTxnRequest, version: int, error: ErrorCode) -> AddPartitionsToTxnResponse:
    """The error for every partition."""
    if error is ErrorCode.PRODUCER_FENCED and version < _FIRST_WITH_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return _response(request, dict.fromkeys(_partitions(request), error))


@handles(ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-3", error_response=error_response)
def handle_add_partitions_to_txn(
    broker: "Broker", context: RequestContext, request: AddPartitionsToTxnRequest
) -> Outcome:
    version, transactional_id = context.api_version, request.v3_and_below_transactional_id
    if not broker.authorizer.authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return error_response(request, version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    producer = ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    partitions = _partitions(request)
    refused = {partition: _refusal(broker, context, partition) for partition in partitions}
    if any(refused.values()):
        return _refuse_all(broker, version, request, producer, refused)
    answer = broker.transaction_coordinator.add_partitions(
        transactional_id, producer, frozenset(partitions), client_version=0
    )
    return map_answer(answer, lambda error: error_response(request, version, error))


def _partitions(request: AddPartitionsToTxnRequest) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions]


def _refusal(broker: "Broker", context: RequestContext, partition: TopicPartition) -> ErrorCode:
    """Why this partition cannot be part of a transaction."""
    topic = partition.topic
    if topic in INTERNAL_TOPICS or not broker.authorizer.authorize(context, Operation.WRITE, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if broker.metadata.image.partition(partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _refuse_all(
    broker: "Broker",
    version: int,
    request: AddPartitionsToTxnRequest,
    producer: ProducerIdAndEpoch,
    refused: dict[TopicPartition, ErrorCode],
) -> AddPartitionsToTxnResponse:
    """Some cannot be added, so none is."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if unknown in refused.values():
        unknown = broker.transaction_coordinator.refuse_unknown_topic(request.v3_and_below_transactional_id, producer)
        if unknown not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            return error_response(request, version, unknown)
    errors = {
        partition: unknown
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else (error or ErrorCode.OPERATION_NOT_ATTEMPTED)
        for partition, error in refused.items()
    }
    return _response(request, errors)


def _response(
    request: AddPartitionsToTxnRequest, errors: dict[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=errors[TopicPartition(topic.name, index)]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )
