"""What a process does while no broker can be reached: it logs that soon, and gives up after a while.

An unreachable address, in the options or advertised by a broker, makes every call wait and retry. ``reach`` is the
first call of a process and bounds that wait; ``ReachabilityWatch`` checks a cluster's failed attempts while a call
runs, so that the log names address and reason long before the call times out.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Address
from oncelog.clients.errors import ClientError, NoBrokerReachable
from oncelog.clients.retry import Backoff, Retry

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.5
"""The interval of checks. An address that fails in two of them is reported: within 3 s of the first attempt."""
_REPEAT_SECONDS: Final = 30.0
"""The interval of reports of one call."""


def advice(addresses: Collection[Address]) -> str:
    """Return the remedy for addresses that cannot be reached."""
    bootstrap = ",".join(str(address) for address in addresses)
    return f"`oncelog doctor --bootstrap {bootstrap}` reports why this machine cannot use the brokers"


async def reach(cluster: Cluster, seconds: float) -> None:
    """Connect to any broker. Raises ``NoBrokerReachable`` after ``seconds``; errors that are not retriable at once."""
    retry = Retry(Backoff(rng=cluster.rng), seconds)
    while True:
        try:
            async with asyncio.timeout(retry.remaining_seconds):
                await cluster.connection_to_any()
            return
        except TimeoutError:
            failure = NoBrokerReachable("; ".join(cluster.unreachable.values()))
        except ClientError as error:
            if not error.is_retriable:
                raise
            failure = NoBrokerReachable(str(error))
        if not await retry.pause():
            raise NoBrokerReachable(
                f"no broker was reached within {seconds:g} s: {failure}. {advice(cluster.unreachable)}"
            )


class ReachabilityWatch:
    """Checks a cluster's failed connection attempts while its loop runs, and logs those that last."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._timer: asyncio.TimerHandle | None = None
        self._seen_before: frozenset[Address] = frozenset()
        self._quiet_until = 0.0
        """Loop time until which nothing is reported again."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to check; failures of an earlier call are forgotten."""
        self._cluster.unreachable.clear()
        self._seen_before = frozenset()
        self._timer = loop.call_later(_LOOK_SECONDS, self._look, loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        unreachable = dict(self._cluster.unreachable)
        lasting = sorted(self._seen_before & unreachable.keys())
        if lasting and loop.time() >= self._quiet_until:
            self._quiet_until = loop.time() + _REPEAT_SECONDS
            reasons = "; ".join(unreachable[address] for address in lasting)
            _log.warning("no connection, still trying: %s. %s", reasons, advice(lasting))
        self._seen_before = frozenset(unreachable)
        self._timer = loop.call_later(_LOOK_SECONDS, self._look, loop)
