"""Which in-sync replicas a silent leader waits for, as `oncelog produce` names them."""

import asyncio

import pytest

from oncelog.clients.cli.in_sync_replicas import InSyncReplicas, about_in_sync
from oncelog.clients.connection import Address
from oncelog.clients.obstacles import Obstacle
from oncelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import ScriptedBroker
from tests.unit.clients.scripted_cluster import cluster_of


def topic(*partitions: tuple[int, list[int]]) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name="t",
        partitions=[
            MetadataResponsePartition(partition_index=index, leader_id=leader, isr_nodes=isr)
            for index, (leader, isr) in enumerate(partitions)
        ],
    )


def test_silent_in_sync_replica_is_named_with_the_partitions_that_wait_for_it() -> None:
    seen = topic((1, [1, 2, 3]), (1, [1, 3]), (2, [2, 3]), (1, [1, 2]))
    assert about_in_sync(seen, 1, {2: "Connection refused"}) == (
        "t-0, t-3: broker 1, the leader, responds, and acknowledges nothing before all in-sync replicas (1, 2, 3) have "
        "it: broker 2 does not respond (Connection refused)"
    )
    assert about_in_sync(seen, 1, {4: "Connection refused"}) is None
    assert about_in_sync(seen, 1, {}) is None


class Silent:
    """A producer whose request to a leader has no response."""

    def __init__(self, leader: ScriptedBroker) -> None:
        self._leader = leader

    def obstacles(self) -> list[Obstacle]:
        return [
            Obstacle(
                reason="no response to Produce",
                seconds=2.0,
                address=self._leader.address,
                broker_id=self._leader.node_id,
                is_connected=True,
            )
        ]

    def is_connected(self, address: Address) -> bool:
        return True


@in_virtual_time
async def test_leader_that_responds_is_not_blamed_for_a_replica_that_does_not() -> None:
    leader, follower = ScriptedBroker({}, node_id=1), ScriptedBroker({}, node_id=2)
    async with cluster_of(leader, follower, leaders={"t": [1]}) as cluster:
        metadata = await cluster.refresh(["t"])
        metadata.topics[0].partitions[0].isr_nodes = [1, 2]
        replicas = InSyncReplicas(Silent(leader), cluster, "t")
        leader.script[MetadataRequest] = metadata
        follower.stop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3.0):
                await replicas.run()
        assert replicas.recent_cause is not None
        (found,) = replicas.obstacles()
        assert found.address is None
        assert "broker 2 does not respond" in found.reason
