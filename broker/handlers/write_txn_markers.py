"""WriteTxnMarkers (API key 27): end transactions in partitions that this broker leads, for a transaction coordinator.

The work is in ``oncelog.broker.transactions.markers``. The response is sent when every marker is replicated or
refused. The connection's next request waits until all are appended, which is at once unless there are many, and not
longer.

Versions: 1 is flexible. 2 has the protocol version of each transaction, which determines the epoch that a marker must
have (KIP-1228); the markers of older requests are those of version 0.
"""

from collections.abc import Generator, Sequence
from functools import partial
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, Shaped, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, in_slices, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.broker.transactions.markers import MarkerWrite
from oncelog.coordinator.ports import NO_LEADER_EPOCH, TransactionMarker
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from oncelog.protocol.records.record_walk import WorkBudget
from oncelog.protocol.topic_partition import TopicPartition

_UNITS_PER_MARKER: Final = 20
_UNITS_PER_PARTITION: Final = 80
"""An append, in units of about a microsecond."""
_UNITS_PER_REFUSAL: Final = 10


def error_response(request: WriteTxnMarkersRequest, version: int, error: ErrorCode) -> WriteTxnMarkersResponse:
    """Return the same error for every partition: the API has no other place for one."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id, topics=[_refused_topic(topic, error) for topic in marker.topics]
            )
            for marker in request.markers
        ]
    )


def _refused_topic(topic: WritableTxnMarkerTopic, error: ErrorCode) -> WritableTxnMarkerTopicResult:
    partitions = [
        WritableTxnMarkerPartitionResult(partition_index=index, error_code=error) for index in topic.partition_indexes
    ]
    return WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions)


def _refuse_all(request: WriteTxnMarkersRequest, budget: WorkBudget) -> Steps[WriteTxnMarkersResponse]:
    """Return what ``error_response`` does for a client that is not allowed, in slices."""
    response = WriteTxnMarkersResponse()
    refuse = partial(_refused_topic, error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    for marker in request.markers:
        topics = yield from in_slices(marker.topics, refuse, budget, _UNITS_PER_REFUSAL)
        response.markers.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        budget.left -= _UNITS_PER_REFUSAL
        if budget.left <= 0:
            yield None
    return response


@handles(ApiKey.WRITE_TXN_MARKERS, versions="0-2", error_response=error_response)
def handle_write_txn_markers(broker: Broker, context: RequestContext, request: WriteTxnMarkersRequest) -> Outcome:
    budget, authorizer = new_budget(), broker.authorizer
    if not authorizer.permits(
        context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME
    ) and not authorizer.authorize(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return broker.sliced_work.start(_refuse_all(request, budget), budget, context.connection, needs_place=False)
    steps = _append_all(broker.marker_writer.begin(), request, budget)
    return broker.sliced_work.start(steps, budget, context.connection, needs_place=False)


def _append_all(
    write: MarkerWrite, request: WriteTxnMarkersRequest, budget: WorkBudget
) -> Generator[None, object, Shaped[Sequence[ErrorCode]]]:
    """Append the markers in the order of the request; the response comes when all are replicated or refused."""
    response = WriteTxnMarkersResponse()
    written: list[WritableTxnMarkerPartitionResult] = []
    for marker in request.markers:
        budget.left -= _UNITS_PER_MARKER
        built = write.build(_marker(marker))
        result = WritableTxnMarkerResult(producer_id=marker.producer_id)
        response.markers.append(result)
        for topic in marker.topics:
            of_topic = WritableTxnMarkerTopicResult(name=topic.name)
            result.topics.append(of_topic)
            epochs = topic.leader_epochs
            if len(epochs) != len(topic.partition_indexes):
                epochs = [NO_LEADER_EPOCH] * len(topic.partition_indexes)
            for index, leader_epoch in zip(topic.partition_indexes, epochs, strict=True):
                write.append(built, TopicPartition(topic.name, index), leader_epoch, topic.topic_id)
                of_partition = WritableTxnMarkerPartitionResult(partition_index=index)
                of_topic.partitions.append(of_partition)
                written.append(of_partition)
                budget.left -= _UNITS_PER_PARTITION
                if budget.left <= 0:
                    yield None
    return Shaped(write.end().result(), partial(_with_errors, response, written))


def _with_errors(
    response: WriteTxnMarkersResponse, written: list[WritableTxnMarkerPartitionResult], errors: Sequence[ErrorCode]
) -> WriteTxnMarkersResponse:
    for result, error in zip(written, errors, strict=True):
        result.error_code = error
    return response


def _marker(marker: WritableTxnMarker) -> TransactionMarker:
    return TransactionMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
        marker.decision_offset,
    )
