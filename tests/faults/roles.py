"""Who does what in the cluster at the moment, as its brokers tell: so that a fault can strike where it hurts."""

import asyncio
from random import Random
from typing import Final

from oncelog.clients.admin.admin import Admin
from oncelog.clients.admin.topics import PartitionDescription, TopicDescription
from oncelog.clients.errors import Refusal
from oncelog.clients.routes import Coordinator
from oncelog.protocol.topic_partition import TopicPartition
from tests.faults.access import Access

_LOOK_SECONDS: Final = 0.1


class RoleUnknown(Exception):
    """The cluster does not say who has a role."""


class Roles:
    """Asks afresh each time."""

    def __init__(self, access: Access) -> None:
        self.access = access
        """Where and as whom it asks; it may change, and counts from the next request on."""

    def admin(self) -> Admin:
        """With no memory of who was what."""
        return Admin(
            self.access.bootstrap,
            rng=Random(0),
            connect_timeout_ms=3000,
            default_api_timeout_ms=20_000,
            **self.access.of_oncelog(),
        )

    async def partition(self, partition: TopicPartition) -> PartitionDescription:
        """Leader, replicas and ISR of a partition that has a leader."""
        async with self.admin() as admin:
            described = (await admin.describe_topics([partition.topic]))[partition.topic]
        if not isinstance(described, TopicDescription):
            raise RoleUnknown(f"{partition.topic}: {described}")
        found = next(each for each in described.partitions if each.partition == partition.partition)
        if found.leader is None:
            raise RoleUnknown(f"{partition} has no leader")
        return found

    async def leader(self, partition: TopicPartition) -> int:
        leader = (await self.partition(partition)).leader
        assert leader is not None
        return leader

    async def followers(self, partition: TopicPartition) -> list[int]:
        """The replicas in the ISR that do not lead."""
        found = await self.partition(partition)
        return [replica for replica in found.isr if replica != found.leader]

    async def transaction_coordinator(self, transactional_id: str) -> int:
        return await self._coordinator(Coordinator.of_transactional_id(transactional_id))

    async def group_coordinator(self, group_id: str) -> int:
        return await self._coordinator(Coordinator.of_group(group_id))

    async def _coordinator(self, which: Coordinator) -> int:
        async with self.admin() as admin:
            found = (await admin.cluster.coordinators([which]))[which]
        if isinstance(found, Refusal):
            raise RoleUnknown(f"{which.key}: {found}")
        return found

    async def controller(self) -> int:
        async with self.admin() as admin:
            found = (await admin.describe_cluster()).controller_id
        if found is None:
            raise RoleUnknown("there is no controller")
        return found

    async def out_of_sync(self) -> list[TopicPartition]:
        """The partitions, also of internal topics, that lack a leader or a replica in their ISR."""
        async with self.admin() as admin:
            topics = await admin.list_topics()
        return [
            TopicPartition(topic.name, each.partition)
            for topic in topics
            for each in topic.partitions
            if each.leader is None or set(each.isr) != set(each.replicas)
        ]

    async def until_in_sync(self, seconds: float) -> None:
        """Wait until every partition has all its replicas in its ISR; go on without after a while."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while loop.time() < deadline:
            if not await self.out_of_sync():
                return
            await asyncio.sleep(_LOOK_SECONDS)
