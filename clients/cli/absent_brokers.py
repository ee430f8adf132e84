"""Brokers that have replicas and are not in the cluster: their ZooKeeper sessions have ended. Pure.

Most have ended themselves. Others are paused, or cut off from ZooKeeper.

Metadata lists the members of the cluster only. Which others there are is known from the replicas of partitions.
"""

from collections.abc import Collection

from oncelog.clients.cli.unreached_brokers import count_partitions
from oncelog.protocol.messages.metadata import MetadataResponse


def absent_brokers(metadata: MetadataResponse, alive: Collection[int]) -> list[int]:
    """Return the brokers that have replicas and are not among those that are alive."""
    replicas = {node for topic in metadata.topics for each in topic.partitions for node in each.replica_nodes}
    return sorted(replicas - set(alive))


def about_absent(metadata: MetadataResponse, alive: Collection[int]) -> list[str]:
    """Return a sentence for each broker that is not in the cluster: what to do, and what it holds up."""
    return [_about(broker_id, metadata, alive) for broker_id in absent_brokers(metadata, alive)]


def _about(broker_id: int, metadata: MetadataResponse, alive: Collection[int]) -> str:
    partitions = [each for topic in metadata.topics for each in topic.partitions if broker_id in each.replica_nodes]
    leaderless = sum(each.leader_id not in alive for each in partitions)
    without_leader = f", {leaderless} of them without a leader" if leaderless else ""
    lack = "lacks" if len(partitions) == 1 else "lack"
    return (
        f"broker {broker_id} is not in the cluster: if it has ended, start it (of `oncelog cluster`: `oncelog cluster "
        f"start {broker_id}`); if its process is there, it is paused (`oncelog cluster resume {broker_id}`) or cut off "
        f"from ZooKeeper, as its output says; {count_partitions(len(partitions))} {lack} its replica{without_leader}"
    )


def name_brokers(broker_ids: Collection[int]) -> str:
    """Return "broker 1" or "brokers 1, 2"."""
    return f"broker{'' if len(broker_ids) == 1 else 's'} {', '.join(map(str, sorted(broker_ids)))}"
