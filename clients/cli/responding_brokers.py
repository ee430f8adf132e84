"""Brokers that respond now, among those that the metadata of one broker lists.

A broker is listed until its ZooKeeper session ends, and by a broker that has lost its controller for longer.
"""

import asyncio
from collections.abc import Collection
from typing import Final

from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import ClientError
from oncelog.clients.timely_connection import connection_within
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse

_VISIT_SECONDS: Final = 2.0
"""Far above what a healthy broker needs for a connection and a response."""


async def responding_brokers(cluster: Cluster, broker_ids: Collection[int], seconds: float) -> frozenset[int]:
    """Return those of the brokers that respond within ``seconds`` and ``_VISIT_SECONDS``."""
    limit = min(seconds, _VISIT_SECONDS)
    async with asyncio.TaskGroup() as group:
        visits = {each: group.create_task(_responds(cluster, each, limit)) for each in broker_ids}
    return frozenset(each for each, visit in visits.items() if visit.result())


async def _responds(cluster: Cluster, broker_id: int, seconds: float) -> bool:
    """Return whether the broker responds to a request: a connection may be open to a process that is paused."""
    try:
        async with asyncio.timeout(seconds):
            connection = await connection_within(cluster, broker_id, seconds)
            await connection.send(MetadataRequest(topics=[]), MetadataResponse)
    except (ClientError, TimeoutError):
        return False
    return True
