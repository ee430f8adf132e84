"""Crashes that come at any time: one machine loses power while others die, or all brokers die at once.

A crash comes without regard for the state of the cluster: followers may lag, partitions may be below their minimum, the
controller may be dead. One broker, two or all die within a moment, and each returns after a pause of its own, so in any
order. At most one of them loses what was not synced; the next one only after every replica is in sync and equal again,
because records that are acknowledged with ``min.insync.replicas=2`` may be on two disks only. Where every response
waits for a sync, all of them lose power.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

from tests.simulation.cluster_stories import assignments, known_state_of
from tests.simulation.simulated_cluster import SESSION_SECONDS, ClusterBroker, SimulatedCluster

_LOOK_SECONDS: Final = 0.1
_GAPS: Final = (0.0, 0.0, 0.02, 0.3)
"""Seconds between two crashes of one strike."""
_ABSENCES: Final = (0.0, 0.3, 2.0, 1.5 * SESSION_SECONDS)
"""Seconds until a broker is started again."""


class DamagedCopy:
    """Whether one copy of acknowledged records may be damaged, so that no other may be."""

    def __init__(self, cluster: SimulatedCluster, is_whole: Callable[[], bool]) -> None:
        """``is_whole``: whether every replica has all that is replicated."""
        self._cluster = cluster
        self._is_whole = is_whole
        self._is_damaged = False
        self._watching: asyncio.Future[None] | None = None

    def may_begin(self) -> bool:
        """Return whether no copy is damaged now."""
        return not self._is_damaged

    def begin(self) -> None:
        """Note that a copy is being damaged."""
        self._is_damaged = True

    def repair(self) -> None:
        """Note that no more damage is done: the copy counts until every replica is in sync and equal again."""
        self._watching = asyncio.ensure_future(self._until_repaired())  # noqa: TID251

    async def _until_repaired(self) -> None:
        for _ in count():
            await asyncio.sleep(_LOOK_SECONDS)
            if self.is_repaired():
                self._is_damaged = False
                return

    def is_repaired(self) -> bool:
        """Return whether every replica is in sync, and equal."""
        states = (
            (known_state_of(self._cluster, *partition), replicas)
            for partition, replicas in assignments(self._cluster).items()
        )
        in_sync = all(state is not None and set(state.isr) == set(replicas) for state, replicas in states)
        return in_sync and self._is_whole()


class HarshFaults:
    """See the module."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        *,
        busy: set[int],
        damaged: DamagedCopy,
        start: Callable[[ClusterBroker], Awaitable[None]],
        everything_is_synced: bool,
    ) -> None:
        """``busy``: the brokers that something else is being done to.

        ``everything_is_synced``: before it is acknowledged; then any number of machines may lose power.
        """
        self._cluster = cluster
        self._busy = busy
        self._damaged = damaged
        self._start = start
        self._everything_is_synced = everything_is_synced

    async def strike(self, rng: random.Random) -> None:
        """Crash one broker, two or all, and start them again in any order."""
        free = [broker for broker_id, broker in self._cluster.brokers.items() if broker_id not in self._busy]
        wanted = rng.choice([1, 1, 2, len(self._cluster.brokers)])
        victims = rng.sample(free, min(wanted, len(free)))
        self._busy.update(victim.broker_id for victim in victims)
        powerless = rng.choice([*victims, None])
        for victim in victims:
            self._crash(victim, loses_power=victim is powerless or self._everything_is_synced)
            await asyncio.sleep(rng.choice(_GAPS))
        await asyncio.gather(*(self._return(victim, rng.choice(_ABSENCES) * rng.random()) for victim in victims))

    def _crash(self, broker: ClusterBroker, *, loses_power: bool) -> None:
        if broker.process is None:
            return
        if loses_power and self._everything_is_synced:
            broker.crash("power")
        elif loses_power and self._damaged.may_begin():
            self._damaged.begin()
            broker.crash("power")
            self._damaged.repair()
        else:
            broker.kill()

    async def _return(self, broker: ClusterBroker, absence: float) -> None:
        await asyncio.sleep(absence)
        await self._start(broker)
        self._busy.discard(broker.broker_id)
