"""What a Produce response says of batches that were not appended: words for the producer, and where the leader is."""

from typing import Final

from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.replication.leader_hint import leader_hint
from oncelog.broker.replication.leading_partition import LeadingPartition
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
)
from oncelog.protocol.records.validation import RejectedRecords

_UNKNOWN_OFFSET: Final = -1
_FIRST_VERSION_WITH_STORAGE_ERROR: Final = 4
_FIRST_VERSION_WITH_CURRENT_LEADER: Final = 10

_MESSAGES: Final = {
    ErrorCode.INVALID_RECORD: "The batch, or a record in it, is not what the topic accepts",
    ErrorCode.INVALID_TIMESTAMP: "A timestamp lies outside of what the topic accepts",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Internal topics are written by the broker only",
    ErrorCode.INVALID_TXN_STATE: "The partition was not added to the transaction",
    ErrorCode.TRANSACTION_ABORTABLE: "The partition was not added to the transaction",
    ErrorCode.CONCURRENT_TRANSACTIONS: "The producer's transaction before this one is not complete yet",
    ErrorCode.UNKNOWN_TOPIC_ID: "No topic here has this id",
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        "Not enough replicas, or the transaction could not be verified yet, or the batch must be repeated, because it "
        "follows an abort, or came over another connection than the one before"
    ),
}


def refused_batch(index: int, error: ErrorCode) -> PartitionProduceResponse:
    """Return the response for the batch of partition ``index``."""
    return PartitionProduceResponse(
        index=index, error_code=error, base_offset=_UNKNOWN_OFFSET, error_message=_MESSAGES.get(error)
    )


def not_appended(index: int, partition: LeadingPartition | ErrorCode, judged: object) -> PartitionProduceResponse:
    """Return the error of a batch; its own, which ``judged`` is then, comes before its partition's."""
    error = judged if isinstance(judged, ErrorCode) else partition
    if isinstance(error, ErrorCode):
        return refused_batch(index, error)
    assert isinstance(judged, RejectedRecords), "records are walked before they are appended"
    return _rejected_records(index, judged, error.log.log_start_offset)


def _rejected_records(index: int, rejected: RejectedRecords, log_start_offset: int) -> PartitionProduceResponse:
    """Return the error of a batch, and which of its records are the reason (KIP-467)."""
    noun = "record error" if rejected.total == 1 else "record errors"
    return PartitionProduceResponse(
        index=index,
        error_code=rejected.error,
        base_offset=_UNKNOWN_OFFSET,
        log_start_offset=log_start_offset,
        error_message=f"{rejected.total} {noun}, the first: {rejected.record_errors[0].message}",
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in rejected.record_errors
        ],
    )


def with_current_leaders(broker: Broker, context: RequestContext, response: ProduceResponse) -> ProduceResponse:
    """Add the current leader of each partition that this broker does not lead, where the version has a place for it.

    Before version 4 clients do not know KAFKA_STORAGE_ERROR: with NOT_LEADER_OR_FOLLOWER they look for another leader.
    """
    if context.api_version < _FIRST_VERSION_WITH_CURRENT_LEADER:
        if context.api_version < _FIRST_VERSION_WITH_STORAGE_ERROR:
            _hide_storage_errors(response)
        return response
    endpoints: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            hint = leader_hint(
                broker.replica_manager,
                broker.metadata.image,
                context.connection.listener_name,
                (topic.name, partition.index),
            )
            if hint is None:
                continue
            partition.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
            if hint.host is not None:
                endpoints[hint.leader_id] = NodeEndpoint(
                    node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack
                )
    response.node_endpoints = list(endpoints.values())
    return response


def _hide_storage_errors(response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                partition.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
