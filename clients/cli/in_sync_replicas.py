"""In-sync replicas that do not respond, for which a leader waits before it acknowledges records.

A leader that waits for them sends no response to Produce, and looks as if it were stuck itself. So while it is silent,
``InSyncReplicas`` connects anew to the leader and to the in-sync replicas of the partitions that it leads.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from oncelog.clients.cli.waiting import Client
from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Address
from oncelog.clients.errors import ClientError
from oncelog.clients.obstacles import Obstacle
from oncelog.protocol.messages.metadata import MetadataResponseTopic

_SILENCE: Final = "no response to Produce"
_LOOK_SECONDS: Final = 0.5
_SILENT_SECONDS: Final = 1.0
"""How long a leader is silent before replicas are probed: shorter than the time to a notice."""
_PROBE_SECONDS: Final = 1.0
_RECENT_LOOKS: Final = 4
_SHOWN: Final = 3


class InSyncReplicas:
    """The obstacles of a producer to one topic. Where in-sync replicas are the cause, they name those."""

    def __init__(self, producer: Client, probe: Cluster, topic: str) -> None:
        """Take the obstacles of ``producer``; ``probe`` has connections of its own."""
        self._producer = producer
        self._probe = probe
        self._topic = topic
        self._causes: dict[int, str] = {}
        """By leader, what it waits for."""
        self._recent: deque[str | None] = deque(maxlen=_RECENT_LOOKS)

    @property
    def recent_cause(self) -> str | None:
        """What a leader waited for a moment ago. The obstacle is over when the request times out, and fails then."""
        return next(filter(None, reversed(self._recent)), None)

    def obstacles(self) -> list[Obstacle]:
        """Return the obstacles of the producer."""
        return [self._explained(each) for each in self._producer.obstacles()]

    def is_connected(self, address: Address) -> bool:
        """Return whether a connection of the producer to the address is open."""
        return self._producer.is_connected(address)

    def _explained(self, obstacle: Obstacle) -> Obstacle:
        cause = self._causes.get(obstacle.broker_id) if obstacle.broker_id is not None else None
        if cause is None or obstacle.reason != _SILENCE:
            return obstacle
        return replace(obstacle, reason=cause, address=None, broker_id=None, is_connected=False)

    async def run(self) -> None:
        """Look for the causes of silence until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            silent = [
                each.broker_id
                for each in self._producer.obstacles()
                if each.reason == _SILENCE and each.seconds >= _SILENT_SECONDS and each.broker_id is not None
            ]
            found = {leader: await self._cause(leader) for leader in dict.fromkeys(silent)}
            self._causes = {leader: cause for leader, cause in found.items() if cause is not None}
            self._recent.append(next(iter(self._causes.values()), None))

    async def _cause(self, leader: int) -> str | None:
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                metadata = await self._probe.refresh([self._topic])
        except (ClientError, TimeoutError):
            return None
        if await self._failure(leader) is not None:
            return None
        members = {
            member
            for topic in metadata.topics
            for partition in topic.partitions
            if partition.leader_id == leader
            for member in partition.isr_nodes
        }
        failures = {member: await self._failure(member) for member in sorted(members - {leader})}
        silent = {member: failure for member, failure in failures.items() if failure is not None}
        return next((about_in_sync(topic, leader, silent) for topic in metadata.topics), None)

    async def _failure(self, member: int) -> str | None:
        """Return why a broker does not respond; None if it does."""
        address = self._probe.brokers.get(member)
        if address is None:
            return "not in the cluster"
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                connection = await self._probe.connect(address)
        except TimeoutError:
            return f"no response within {_PROBE_SECONDS:g} s"
        except ClientError as error:
            return str(error).removeprefix(f"{address}: ")
        connection.close()
        return None


def about_in_sync(topic: MetadataResponseTopic, leader: int, silent: Mapping[int, str]) -> str | None:
    """Return for which in-sync replicas a leader waits; None if none of the silent brokers is one.

    ``silent``: by broker, why it does not respond.
    """
    waiting = [each for each in topic.partitions if each.leader_id == leader and set(each.isr_nodes) & silent.keys()]
    if not waiting:
        return None
    names = ", ".join(f"{topic.name}-{each.partition_index}" for each in waiting[:_SHOWN])
    more = f" and {len(waiting) - _SHOWN} more" if len(waiting) > _SHOWN else ""
    members = ", ".join(map(str, sorted({node for each in waiting for node in each.isr_nodes})))
    absent = sorted({node for each in waiting for node in each.isr_nodes if node in silent})
    reasons = "; ".join(f"broker {node} does not respond ({silent[node]})" for node in absent)
    return (
        f"{names}{more}: broker {leader}, the leader, responds, and acknowledges nothing before all in-sync replicas "
        f"({members}) have it: {reasons}"
    )
