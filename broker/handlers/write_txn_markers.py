"""WriteTxnMarkers (API key 27): end transactions in partitions that this broker leads, for a transaction coordinator.

The work is in ``broker.replication.transaction_markers``. The answer comes when every marker is replicated or refused;
the appends are done before that, so the connection's next request need not wait.

Versions: 1 is flexible. 2 tells the protocol version of each transaction, which says what epoch a marker must have
(KIP-1228); the markers of older requests are those of version 0.
"""

import asyncio
from typing import TYPE_CHECKING

from broker.dispatch import Outcome, RequestContext, handles
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from broker.server import Broker


def error_response(request: WriteTxnMarkersRequest, version: int, error: ErrorCode) -> WriteTxnMarkersResponse:
    """The same error for every partition: the API has no other place for one."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


@handles(ApiKey.WRITE_TXN_MARKERS, versions="0-2", error_response=error_response)
def handle_write_txn_markers(broker: "Broker", context: RequestContext, request: WriteTxnMarkersRequest) -> Outcome:
    authorize = broker.authorizer.authorize
    if not authorize(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME) and not authorize(
        context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        return error_response(request, context.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    future: asyncio.Future[WriteTxnMarkersResponse] = asyncio.get_running_loop().create_future()

    def settle(response: WriteTxnMarkersResponse) -> None:
        if not future.done():
            future.set_result(response)

    broker.replica_manager.write_txn_markers(request, settle)
    return future.result() if future.done() else future
