"""A connection to one broker within the time of a caller, which may be shorter than that of an attempt to connect."""

import asyncio

from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Connection
from oncelog.clients.errors import Unreachable


async def connection_within(cluster: Cluster, node_id: int, seconds: float) -> Connection:
    """Return a connection to a broker. Raises ``Unreachable`` if there is none within ``seconds``.

    The attempt goes on without this caller.
    """
    try:
        async with asyncio.timeout(seconds):
            return await cluster.connection_to(node_id)
    except TimeoutError:
        where = cluster.brokers.get(node_id, f"broker {node_id}")
        raise Unreachable(f"{where}: no response within {seconds:.3g} s") from None
