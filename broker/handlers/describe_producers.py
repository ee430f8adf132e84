"""DescribeProducers (API key 61): the producers that a partition remembers, and their open transactions (KIP-664).

This is how an operator finds a transaction that hangs: a producer whose ``current_txn_start_offset`` is not -1 and
whose coordinator does not know of it. Any replica answers, not only the leader.
"""

from typing import TYPE_CHECKING, Final

from broker.dispatch import Outcome, RequestContext, handles
from broker.security.authorizer import Operation, ResourceType
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from broker.server import Broker

_NO_OFFSET: Final = -1


@handles(ApiKey.DESCRIBE_PRODUCERS, versions="0")
def handle_describe_producers(broker: "Broker", context: RequestContext, request: DescribeProducersRequest) -> Outcome:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(broker, context, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(broker: "Broker", context: RequestContext, topic: str, index: int) -> PartitionResponse:
    if not broker.authorizer.authorize(context, Operation.READ, ResourceType.TOPIC, topic):
        return PartitionResponse(partition_index=index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    partition = broker.replica_manager.find((topic, index))
    if isinstance(partition, ErrorCode):
        return PartitionResponse(partition_index=index, error_code=partition)
    if partition.log is None:
        return PartitionResponse(partition_index=index, error_code=partition.unavailable_error)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=_NO_OFFSET if entry.txn_first_offset is None else entry.txn_first_offset,
            )
            for entry in partition.log.active_producers()
        ],
    )
