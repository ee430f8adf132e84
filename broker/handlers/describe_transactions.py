"""DescribeTransactions (API key 65): what the coordinator durably knows of transactional ids.

Partitions of topics that the client may not see are left out. An id that is named again is not described again, and no
more than fits into a response (``ResponseRoom``); the others are COORDINATOR_LOAD_IN_PROGRESS, so that clients request
them again alone.
"""

from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import CHARACTERS_PER_UNIT, Steps
from oncelog.broker.handlers.description import Description
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.coordinator.transaction.state import TransactionMetadata
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

_UNITS_PER_ID: Final = 8
_BYTES_PER_PARTITION: Final = 4


def error_response(
    request: DescribeTransactionsRequest, version: int, error: ErrorCode
) -> DescribeTransactionsResponse:
    """Return the error for every id."""
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=transactional_id, error_code=error)
            for transactional_id in request.transactional_ids
        ]
    )


@handles(ApiKey.DESCRIBE_TRANSACTIONS, versions="0", error_response=error_response, in_turn=True)
def handle_describe_transactions(
    broker: Broker, context: RequestContext, request: DescribeTransactionsRequest
) -> Outcome:
    description = _Description(broker, context)
    return description.start(description.of_all(request))


class _Description(Description):
    """The response to one request, while it is made."""

    def of_all(self, request: DescribeTransactionsRequest) -> Steps[DescribeTransactionsResponse]:
        response = DescribeTransactionsResponse()
        for transactional_id in dict.fromkeys(request.transactional_ids):
            self.budget.left -= _UNITS_PER_ID + len(transactional_id) // CHARACTERS_PER_UNIT
            if self.budget.left <= 0:
                yield None
            response.transaction_states.append((yield from self._of_id(transactional_id)))
        return response

    def _of_id(self, transactional_id: str) -> Steps[TransactionState]:
        metadata = self._find(transactional_id)
        if isinstance(metadata, ErrorCode):
            return TransactionState(transactional_id=transactional_id, error_code=metadata)
        state = TransactionState(
            transactional_id=transactional_id,
            transaction_state=metadata.state.label,
            transaction_timeout_ms=metadata.timeout_ms,
            transaction_start_time_ms=metadata.start_ms,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
        )
        state.topics = yield from self._topics(metadata)
        return state

    def _find(self, transactional_id: str) -> TransactionMetadata | ErrorCode:
        if not self.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if self.room.is_used_up:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return self.broker.transaction_coordinator.describe(transactional_id)

    def _topics(self, metadata: TransactionMetadata) -> Steps[list[TopicData]]:
        topics: dict[str, list[int]] = {}
        for topic, partition in metadata.partitions:
            topics.setdefault(topic, []).append(partition)
            self.budget.left -= 1
            if self.budget.left <= 0:
                yield None
        self.room.take(_BYTES_PER_PARTITION * len(metadata.partitions) + sum(map(len, topics)))
        return [
            TopicData(topic=topic, partitions=sorted(topics[topic]))
            for topic in sorted(topics)
            if self.broker.authorizer.permits(self.context, Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ]
