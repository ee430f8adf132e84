"""WriteTxnMarkers (API key 27): end transactions in partitions that this broker leads, for a transaction coordinator.

The work is in ``oncelog.broker.transactions.markers``. The response is sent when every marker is replicated or
refused. The connection's next request waits until all are appended, which is at once unless there are many, and not
longer.

Versions: 1 is flexible. 2 has the protocol version of each transaction, which determines the epoch that a marker must
have (KIP-1228); the markers of older requests are those of version 0.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def error_response(request: WriteTxnMarkersRequest, version: int, error: ErrorCode) -> WriteTxnMarkersResponse:
    """Return the same error for every partition: the API has no other place for one."""
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
def handle_write_txn_markers(broker: Broker, context: RequestContext, request: WriteTxnMarkersRequest) -> Outcome:
    authorize = broker.authorizer.authorize
    if not authorize(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME) and not authorize(
        context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        return error_response(request, context.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    future: asyncio.Future[WriteTxnMarkersResponse] = asyncio.get_running_loop().create_future()

    def settle(response: WriteTxnMarkersResponse) -> None:
        if not future.done():
            future.set_result(response)

    budget = new_budget()
    steps = broker.marker_writer.write(request, settle, budget)
    appending = broker.sliced_work.start(steps, budget, context.connection, needs_place=False)
    if asyncio.iscoroutine(appending):
        return _when_appended(appending, future)
    return future.result() if future.done() else future


async def _when_appended(
    appending: Coroutine[Any, Any, None], future: asyncio.Future[WriteTxnMarkersResponse]
) -> WriteTxnMarkersResponse | asyncio.Future[WriteTxnMarkersResponse]:
    """Append all markers; the response comes when they are replicated, and holds up nothing behind it."""
    await appending
    return future.result() if future.done() else future
