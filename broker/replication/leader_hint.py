"""Where a client finds the leader that is not here (KIP-951), so that it needs no Metadata request first."""

from typing import NamedTuple

from oncelog.broker.replication.replica_manager import ReplicaManager
from oncelog.coordinator.controller.cluster_image import ClusterImage


class LeaderHint(NamedTuple):
    """A partition's leader; host and port are None unless it is alive and has the client's listener."""

    leader_id: int
    leader_epoch: int
    host: str | None
    port: int
    rack: str | None


def leader_hint(
    replicas: ReplicaManager, image: ClusterImage, listener_name: str, topic_partition: tuple[str, int]
) -> LeaderHint | None:
    """Return what this broker knows of the leader; a LeaderAndIsr that took the leadership away names the new one."""
    leader = replicas.current_leader(topic_partition)
    if leader is None:
        return None
    endpoint = image.endpoint(leader.broker_id, listener_name)
    if endpoint is None:
        return LeaderHint(leader.broker_id, leader.epoch, None, 0, None)
    rack = image.brokers[leader.broker_id].rack
    return LeaderHint(leader.broker_id, leader.epoch, endpoint.host, endpoint.port, rack)
