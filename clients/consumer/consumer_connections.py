"""The connections of a consumer: what keeps them from responding, and how they end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Address
from oncelog.clients.consumer.fetcher import Fetcher
from oncelog.clients.errors import OperationTimedOut
from oncelog.clients.obstacles import Obstacle, no_response

_GRACE_SECONDS: Final = 1.0
"""Time for written requests to leave, where the time for closing is up."""


class ConsumerConnections:
    """Those of a consumer for metadata and offsets, to its group's coordinator if it has a group, and for fetches."""

    def __init__(self, cluster: Cluster, group_cluster: Cluster | None, fetcher: Fetcher) -> None:
        self._cluster = cluster
        self._clusters = [cluster] if group_cluster is None else [cluster, group_cluster]
        self._fetcher = fetcher

    def obstacles(self) -> list[Obstacle]:
        """Return what keeps the consumer from going on now, the oldest first."""
        found = [each for cluster in self._clusters for each in cluster.obstacles()]
        return sorted([*found, *self._fetcher.silences()], key=lambda each: -each.seconds)

    def is_connected(self, address: Address) -> bool:
        """Return whether a connection to the address is open, other than one to the coordinator."""
        return self._cluster.is_connected(address) or self._fetcher.is_connected(address)

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[None]:
        """Bound what is done inside. Raises ``OperationTimedOut``, which names what did not respond."""
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            time_outs = [each for cluster in self._clusters for each in cluster.pool.time_outs()]
            raise OperationTimedOut(no_response(seconds, self.obstacles(), time_outs)) from None

    async def close(self, deadline: float) -> None:
        """End every connection. What takes time is tried until ``deadline`` (the loop's time)."""
        try:
            await self._fetcher.close(deadline)
        finally:  # Also if this call is cancelled on the way.
            await self._close_clusters(deadline)

    async def _close_clusters(self, deadline: float) -> None:
        for cluster in self._clusters:
            cluster.pool.hang_up()
        grace = asyncio.get_running_loop().time() + _GRACE_SECONDS
        try:
            async with asyncio.timeout_at(max(deadline, grace)):
                await asyncio.gather(*(cluster.close() for cluster in self._clusters))
        except TimeoutError:
            pass
