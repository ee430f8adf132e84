"""DescribeCluster: brokers by listener, the controller if it lives, and nothing of other kinds of endpoints."""

import pytest

from oncelog.broker.handlers.describe_cluster import handle_describe_cluster
from oncelog.broker.security.authorizer import Operation
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_response
from oncelog.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.unit.broker.handlers.administration import Denies, ask, running_broker
from tests.unit.broker.handlers.cluster_tales import broker_with, tell


@pytest.mark.parametrize("version", range(3))
async def test_describe_cluster_of_a_single_node_names_the_broker(version: int) -> None:
    async with running_broker() as broker:
        response = await ask(
            broker, handle_describe_cluster, DescribeClusterRequest(), DescribeClusterResponse, version
        )
        assert encode_response(1, response, version)
        assert response.cluster_id == broker.cluster_id
        assert response.controller_id == 1
        assert [(one.broker_id, one.host, one.is_fenced) for one in response.brokers] == [(1, "localhost", False)]
        assert response.cluster_authorized_operations == -(2**31)


async def test_brokers_without_the_listener_are_left_out() -> None:
    async with running_broker() as broker:
        tell(broker, [broker_with(1, rack="r"), broker_with(2, "OTHER")], {}, controller_id=2)
        response = await ask(broker, handle_describe_cluster, DescribeClusterRequest(), DescribeClusterResponse)
        assert [(one.broker_id, one.rack) for one in response.brokers] == [(1, "r")]
        assert response.controller_id == -1


@pytest.mark.parametrize(
    ("endpoint_type", "error"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
async def test_describe_cluster_of_other_endpoint_types_is_refused(endpoint_type: int, error: ErrorCode) -> None:
    async with running_broker() as broker:
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        response = await ask(broker, handle_describe_cluster, request, DescribeClusterResponse)
        assert response.error_code == error


async def test_authorized_operations_are_returned_on_request() -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    async with running_broker() as broker:
        response = await ask(broker, handle_describe_cluster, request, DescribeClusterResponse)
        assert response.cluster_authorized_operations == 0b1_1111_1010_0000
        broker.authorizer = Denies([Operation.DESCRIBE])
        response = await ask(broker, handle_describe_cluster, request, DescribeClusterResponse)
        assert response.cluster_authorized_operations == 0
