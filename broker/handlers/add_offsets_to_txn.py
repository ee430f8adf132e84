"""AddOffsetsToTxn (API key 25): a producer is about to commit a group's offsets in its transaction.

It adds the group's partition of ``__consumer_offsets`` to the transaction, so that it gets a marker at the end. Clients
of the second transaction protocol do not send it: for them TxnOffsetCommit adds the partition.

Versions: 2 is the first whose clients know PRODUCER_FENCED; older clients get INVALID_PRODUCER_EPOCH. 3 is
flexible.
"""

from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, Shaped, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.coordinator.transaction.state import ProducerIdAndEpoch
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from oncelog.protocol.topic_partition import TopicPartition

_FIRST_WITH_PRODUCER_FENCED: Final = 2


@handles(ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4")
def handle_add_offsets_to_txn(broker: Broker, context: RequestContext, request: AddOffsetsToTxnRequest) -> Outcome:
    authorize = broker.authorizer.authorize
    if not authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not authorize(context, Operation.READ, ResourceType.GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    count = broker.metadata.partition_count(GROUP_METADATA_TOPIC_NAME)
    if count is None:  # FindCoordinator for the group creates the topic; this client sends it next.
        count = broker.config.offsets_topic_num_partitions
    response = broker.transaction_coordinator.add_partitions(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        frozenset({TopicPartition(GROUP_METADATA_TOPIC_NAME, partition_for(request.group_id, count))}),
        client_version=0,
        connection=context.connection,
    )
    return Shaped(response, lambda error: _response(error, context.api_version))


def _response(error: ErrorCode, version: int) -> AddOffsetsToTxnResponse:
    if error is ErrorCode.PRODUCER_FENCED and version < _FIRST_WITH_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=error)
