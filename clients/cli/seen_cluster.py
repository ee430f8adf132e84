"""A cluster as ``oncelog health`` and ``oncelog doctor`` see it: its metadata, and visits to its brokers."""

import asyncio
from collections.abc import Mapping
from typing import Final

from oncelog.clients.cli.cluster_health import ClusterHealth, SeenBroker, assess
from oncelog.clients.cli.directories import FailedDirectories, failed_directories
from oncelog.clients.cli.election_settings import election_settings
from oncelog.clients.cli.in_sync_minimum import in_sync_minimums
from oncelog.clients.cli.metadata_store import reaches_store
from oncelog.clients.cli.reassigned_partitions import about_reassignments, list_reassignments
from oncelog.clients.cli.recovery_overrides import about_overrides, recovery_level, recovery_overrides
from oncelog.clients.cli.uncreatable_topics import about_uncreatable_topics, replication_factors
from oncelog.clients.cli.unserved_coordinators import unserved_coordinators
from oncelog.clients.cli.waiting_partitions import describe_leaderless
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import NO_CONNECTION, BrokerSilent
from oncelog.clients.timely_connection import connection_within
from oncelog.protocol.messages.metadata import MetadataResponse

_VISIT_SECONDS: Final = 5.0
"""Far above what a healthy broker needs to accept a connection, and to say which versions it serves."""


async def see_cluster(cluster: Cluster) -> ClusterHealth:
    """Return the health of a cluster as it is after its brokers were visited. Raises ``ClientError``."""
    metadata = await cluster.refresh(None)
    seen = await _visit_all(cluster, metadata)
    if any(broker.failure is not None for broker in seen):
        metadata = await cluster.refresh(None)  # The cluster may have gone on without these brokers meanwhile.
        seen = await _visit_all(cluster, metadata, {broker.broker_id: broker for broker in seen})
    minimums = await in_sync_minimums(await cluster.connection_to_any(), metadata)
    leaderless = await describe_leaderless(cluster, metadata)
    overrides = await recovery_overrides(cluster, metadata)
    level = await recovery_level(cluster) if leaderless or any(overrides.values()) else None
    settings = about_overrides(overrides, without_strategy=level == 0)
    settings += await _about_moves(cluster, metadata)
    controller_id = cluster.metadata.controller_id
    recoveries = [(topic, each.recovery) for (topic, _), each in leaderless.items()]
    elections = await election_settings(cluster, level, recoveries)
    return assess(metadata, controller_id, seen, minimums, leaderless, settings, elections)


async def _about_moves(cluster: Cluster, metadata: MetadataResponse) -> list[str]:
    """Return what moves, if partitions lack replicas or leaders: otherwise there is nothing to explain."""
    partitions = {
        (topic.name or "", each.partition_index): each for topic in metadata.topics for each in topic.partitions
    }
    alive = {broker.node_id for broker in metadata.brokers}
    leaderless = [key for key, each in partitions.items() if each.leader_id not in alive]
    if not leaderless and all(len(each.isr_nodes) == len(each.replica_nodes) for each in partitions.values()):
        return []
    return about_reassignments(await list_reassignments(cluster, cluster.metadata.controller_id), leaderless)


async def _visit_all(
    cluster: Cluster, metadata: MetadataResponse, visited: Mapping[int, SeenBroker] | None = None
) -> list[SeenBroker]:
    """Return the brokers of the cluster as they are seen: those of ``visited`` as they were, the others visited now."""
    known = sorted(metadata.brokers, key=lambda broker: broker.node_id)
    earlier = visited or {}
    async with asyncio.TaskGroup() as group:
        visits = {
            broker.node_id: group.create_task(_visit(cluster, metadata, broker.node_id, broker.rack))
            for broker in known
            if broker.node_id not in earlier
        }
    return [earlier.get(broker.node_id) or visits[broker.node_id].result() for broker in known]


async def _visit(cluster: Cluster, metadata: MetadataResponse, node_id: int, rack: str | None) -> SeenBroker:
    """Check whether the broker responds at its advertised address, reaches its store, writes and coordinates."""
    address, failure, has_store, is_silent = cluster.brokers[node_id], None, None, False
    failed = FailedDirectories()
    unserved: tuple[str, ...] = ()
    factors: dict[str, int] = {}
    try:
        connection = await connection_within(cluster, node_id, _VISIT_SECONDS)
        has_store = await reaches_store(connection, node_id)
        failed = await failed_directories(connection)
        unserved = await unserved_coordinators(connection, node_id, metadata)
        factors = await replication_factors(connection, node_id, metadata)
    except NO_CONNECTION as error:
        failure, is_silent = str(error).removeprefix(f"{address}: "), isinstance(error, BrokerSilent)
    return SeenBroker(
        broker_id=node_id,
        address=address,
        rack=rack,
        failure=failure,
        is_silent=is_silent,
        reaches_store=has_store,
        failed_directories=failed.paths,
        refusing_logs=failed.refusing_logs,
        unserved_coordinators=unserved,
        uncreatable_topics=about_uncreatable_topics(metadata, factors),
    )
