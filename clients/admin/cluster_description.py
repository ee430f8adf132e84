"""The description of a cluster: its id, its controller, its brokers (DescribeCluster, KIP-700)."""

from dataclasses import dataclass
from typing import Final

from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import require_success
from oncelog.clients.routes import AnyBroker
from oncelog.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

_NO_CONTROLLER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDescription:
    """A broker with its address, on the listener that received the request."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """A cluster with its brokers, by id."""

    cluster_id: str
    controller_id: int | None
    brokers: tuple[BrokerDescription, ...]


async def describe_cluster(cluster: Cluster, *, include_fenced_brokers: bool = False) -> ClusterDescription:
    """Return the cluster as one broker knows it; with fenced brokers from Kafka 4.0 on. Raises ``BrokerRefused``."""
    request = DescribeClusterRequest(include_fenced_brokers=include_fenced_brokers)
    response = await cluster.call(
        AnyBroker(), request, DescribeClusterResponse, errors=lambda response: [response.error_code]
    )
    require_success("cluster", response.error_code, response.error_message)
    brokers = [
        BrokerDescription(
            broker_id=broker.broker_id,
            host=broker.host,
            port=broker.port,
            rack=broker.rack,
            is_fenced=broker.is_fenced,
        )
        for broker in response.brokers
    ]
    return ClusterDescription(
        cluster_id=response.cluster_id,
        controller_id=None if response.controller_id == _NO_CONTROLLER else response.controller_id,
        brokers=tuple(sorted(brokers, key=lambda broker: broker.broker_id)),
    )
