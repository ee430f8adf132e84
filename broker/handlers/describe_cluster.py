"""DescribeCluster (API key 60): the cluster's id, its controller and its brokers.

Versions: 1 names the kind of endpoints that are wanted, of which only brokers exist here; 2 can request fenced brokers,
of which there are none.
"""

from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType, authorized_operations
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


@handles(ApiKey.DESCRIBE_CLUSTER, versions="0-2")
def handle_describe_cluster(broker: Broker, context: RequestContext, request: DescribeClusterRequest) -> Outcome:
    if request.endpoint_type != _BROKERS:
        return _wrong_endpoint_type(request.endpoint_type)
    image, listener = broker.metadata.image, context.connection.listener_name
    brokers = [
        DescribeClusterBroker(broker_id=known.id, host=endpoint.host, port=endpoint.port, rack=known.rack)
        for _, known in sorted(image.brokers.items())
        if (endpoint := known.endpoint(listener)) is not None
    ]
    response = DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=image.controller_id if any(b.broker_id == image.controller_id for b in brokers) else -1,
        brokers=brokers,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _operations(broker, context)
    return response


def _operations(broker: Broker, context: RequestContext) -> int:
    if not broker.authorizer.permits(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(broker.authorizer, context, ResourceType.CLUSTER, CLUSTER_NAME)


def _wrong_endpoint_type(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message="This is the endpoint of a broker"
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=f"There is no endpoint type {endpoint_type}"
    )
