"""Brokers that a caller names by their ids."""

from typing import Final

from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerAbsent
from oncelog.clients.retry import Backoff, Retry

_ABSENT_SECONDS: Final = 2.0
"""Seconds to wait for a broker that the cluster does not know: a broker that restarts is absent for a moment."""


async def require_broker(cluster: Cluster, broker_id: int) -> None:
    """Return once the cluster has a broker of this id. Raises ``BrokerAbsent``, which lists the brokers of the cluster.

    A request to an absent broker waits for the whole time of an operation, because brokers return. This call finds a
    mistyped id sooner.
    """
    retry = Retry(Backoff(rng=cluster.rng), _ABSENT_SECONDS)
    while broker_id not in cluster.brokers:
        await cluster.refresh(())
        if broker_id not in cluster.brokers and not await retry.pause():
            raise BrokerAbsent.among(broker_id, cluster.brokers)
