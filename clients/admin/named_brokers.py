"""Brokers that a caller names by their ids."""

from typing import Final

from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerAbsent
from oncelog.clients.retry import Backoff, Retry

_ABSENT_SECONDS: Final = 2.0
"""How long to look for a broker that the cluster does not know: one that restarts is away for a moment."""


async def require_broker(cluster: Cluster, broker_id: int) -> None:
    """Return once the cluster has a broker of this id. Raises ``BrokerAbsent``, which names those that there are.

    Requests to a broker wait for it as long as an operation may take, because brokers come back. An id that the caller
    has mistyped never does.
    """
    retry = Retry(Backoff(rng=cluster.rng), _ABSENT_SECONDS)
    while broker_id not in cluster.brokers:
        await cluster.refresh(())
        if broker_id not in cluster.brokers and not await retry.pause():
            raise BrokerAbsent.among(broker_id, cluster.brokers)
