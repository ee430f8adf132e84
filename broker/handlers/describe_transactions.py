"""DescribeTransactions (API key 65): what the coordinator durably knows of transactional ids.

Partitions of topics that the client may not see are left out.
"""

from typing import TYPE_CHECKING

from broker.dispatch import Outcome, RequestContext, handles
from broker.security.authorizer import Operation, ResourceType
from coordinator.transaction.state import TransactionMetadata
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from broker.server import Broker


def error_response(
    request: DescribeTransactionsRequest, version: int, error: ErrorCode
) -> DescribeTransactionsResponse:
    """The error for every id."""
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=transactional_id, error_code=error)
            for transactional_id in request.transactional_ids
        ]
    )


@handles(ApiKey.DESCRIBE_TRANSACTIONS, versions="0", error_response=error_response)
def handle_describe_transactions(
    broker: "Broker", context: RequestContext, request: DescribeTransactionsRequest
) -> Outcome:
    return DescribeTransactionsResponse(
        transaction_states=[
            _describe(broker, context, transactional_id) for transactional_id in request.transactional_ids
        ]
    )


def _describe(broker: "Broker", context: RequestContext, transactional_id: str) -> TransactionState:
    if not broker.authorizer.authorize(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return TransactionState(transactional_id=transactional_id, error_code=error)
    metadata = broker.transaction_coordinator.describe(transactional_id)
    if isinstance(metadata, ErrorCode):
        return TransactionState(transactional_id=transactional_id, error_code=metadata)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=metadata.state.label,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=_topics(broker, context, metadata),
    )


def _topics(broker: "Broker", context: RequestContext, metadata: TransactionMetadata) -> list[TopicData]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    return [
        TopicData(topic=topic, partitions=partitions)
        for topic, partitions in topics.items()
        if broker.authorizer.authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)
    ]
