"""The response for one batch of a Produce request that was not appended, in words that its producer can pass on."""

from typing import Final

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from oncelog.protocol.records.validation import RejectedRecords

_UNKNOWN_OFFSET: Final = -1

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
        "came over another connection than the one before"
    ),
}


def refused_batch(index: int, error: ErrorCode) -> PartitionProduceResponse:
    """Return the response for the batch of partition ``index``."""
    return PartitionProduceResponse(
        index=index, error_code=error, base_offset=_UNKNOWN_OFFSET, error_message=_MESSAGES.get(error)
    )


def rejected_records(index: int, rejected: RejectedRecords, log_start_offset: int) -> PartitionProduceResponse:
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
