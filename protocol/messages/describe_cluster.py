"""DescribeCluster (API key 60): versions 0-2, flexible from 0.

The brokers, the controller and the cluster's id, without the topics of Metadata (KIP-700).

1: brokers or controllers can be requested (KIP-919); the error may be MISMATCHED_ENDPOINT_TYPE or
UNSUPPORTED_ENDPOINT_TYPE. 2: fenced brokers can be included (KIP-1073).
"""

from oncelog.protocol.schema import Message, array, boolean, int8, int16, int32, string


class DescribeClusterRequest(Message, api_key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = boolean("0+", default=False)
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+", default=False)


class DescribeClusterBroker(Message):
    broker_id: int = int32("0+", default=0)
    host: str = string("0+", default="")
    port: int = int32("0+", default=0)
    rack: str | None = string("0+", default=None, nullable="0+")
    is_fenced: bool = boolean("2+", default=False)


class DescribeClusterResponse(Message, api_key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default=None, nullable="0+")
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string("0+", default="")
    controller_id: int = int32("0+", default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, "0+", default_factory=list)
    cluster_authorized_operations: int = int32("0+", default=-2147483648)
