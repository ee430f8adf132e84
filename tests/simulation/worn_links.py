"""Faults of the links between two brokers, in one direction: nothing passes, no connection is made, or all is late."""

import asyncio
import random

from tests.simulation.simulated_cluster import SimulatedCluster


class WornLinks:
    """Each method is a fault; ``Network.heal`` ends what a method leaves behind."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._network = cluster.loop.network
        self._journal = cluster.loop.journal

    async def cut_one_way(self, rng: random.Random) -> None:
        """Let nothing pass from one broker to another, while the way back is open."""
        sender, receiver = self._pair(rng)
        self._journal.note(sender, "one-way cut", f"to {receiver}")
        self._network.sever(sender, receiver)
        await asyncio.sleep(rng.choice([0.1, 1.0, 5.0]))
        if rng.random() < 0.7:
            self._network.heal()

    async def refuse(self, rng: random.Random) -> None:
        """Refuse connections from one broker to another; those that exist break, or stay."""
        caller, receiver = self._pair(rng)
        self._network.refuse(caller, receiver, breaks=rng.random() < 0.7)
        await asyncio.sleep(rng.choice([0.1, 1.0, 5.0]))
        self._network.accept_again(caller, receiver)

    async def deliver_late(self, rng: random.Random) -> None:
        """Keep what one broker has sent to another, also while their connections end, and deliver it then."""
        sender, receiver = self._pair(rng)
        held = self._network.hold(sender, receiver)
        await asyncio.sleep(rng.choice([0.5, 2.0, 6.0]))
        for transport in held:
            transport.release()

    def _pair(self, rng: random.Random) -> list[str]:
        return [f"broker {broker_id}" for broker_id in rng.sample(list(self._cluster.brokers), 2)]
