"""A connection to one broker within the time of a caller, which may be shorter than that of an attempt to connect."""

import asyncio

from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Connection
from oncelog.clients.errors import BrokerSilent, Unreachable


async def connection_within(cluster: Cluster, node_id: int, seconds: float) -> Connection:
    """Return a connection to a broker. Raises ``Unreachable`` if there is none within ``seconds``.

    It is ``BrokerSilent`` if the address has accepted the connection. The attempt goes on without this caller.
    """
    try:
        async with asyncio.timeout(seconds):
            return await cluster.connection_to(node_id)
    except TimeoutError:
        address = cluster.brokers.get(node_id)
        where = address or f"broker {node_id}"
        if any(each.is_connected and each.address == address for each in cluster.obstacles()):
            event, causes = BrokerSilent.EVENT, BrokerSilent.CAUSES
            raise BrokerSilent(f"{where}: {event} within {seconds:.3g} s{causes}") from None
        raise Unreachable(f"{where}: no response within {seconds:.3g} s") from None
