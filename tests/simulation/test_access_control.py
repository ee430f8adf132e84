"""Access control in a cluster: every broker goes by a change within a second, through restarts and lost sessions; and
brokers that are no super users refuse each other, with a line that names the setting."""

import asyncio
import logging

import pytest

from oncelog.broker.dispatch.request import ConnectionInfo, Principal, RequestContext
from oncelog.coordinator.controller.acl_changes import Addition, Change, Removal
from oncelog.coordinator.controller.api_error import NO_ERROR
from oncelog.protocol.acl import (
    AccessControlEntry,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from tests.simulation.cluster_stories import create, session_of, simulate, state_of
from tests.simulation.sim_zookeeper import Direction
from tests.simulation.simulated_cluster import SESSION_SECONDS, ClusterBroker, SimulatedCluster

AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
SETTINGS = {**AUTHORIZER, "super.users": "User:ANONYMOUS"}
ALICE = ConnectionInfo(client_host="10.0.0.1", listener_name="PLAINTEXT", principal=Principal("User", "alice"))
ORDERS = ResourcePattern(AclResourceType.TOPIC, "orders")
PREFIX = ResourcePattern(AclResourceType.TOPIC, "ord", PatternType.PREFIXED)
READ = AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)
ALLOW: Change = Addition(frozenset({READ}))
REMOVE: Change = Removal((AclBindingFilter(),))
FOLLOWED_SECONDS = 1.0


def may_read(broker: ClusterBroker) -> bool:
    context = RequestContext(0, 1, "client", ALICE)
    return broker.running.authorizer.authorize(context, AclOperation.READ, AclResourceType.TOPIC, "orders")


async def change(broker: ClusterBroker, pattern: ResourcePattern, change: Change) -> None:
    acls = broker.running.acls
    assert acls is not None
    assert (await acls.change({pattern: change}))[pattern].error == NO_ERROR


def test_change_through_any_broker_is_followed_by_all() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        for broker, pattern in ((cluster[1], ORDERS), (cluster[2], PREFIX), (cluster[3], ORDERS)):
            for made, allowed in ((ALLOW, True), (REMOVE, False)):
                await change(broker, pattern, made)
                assert may_read(broker) is allowed
                await asyncio.sleep(FOLLOWED_SECONDS)
                assert [may_read(each) for each in cluster.alive] == [allowed] * 3

    simulate(story, settings=SETTINGS)


def test_broker_that_was_away_goes_by_what_changed_meanwhile() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await change(cluster[1], ORDERS, ALLOW)
        await asyncio.sleep(FOLLOWED_SECONDS)
        cluster[3].kill()
        await change(cluster[1], ORDERS, REMOVE)
        assert await cluster[3].try_to_start()
        assert not may_read(cluster[3])

    simulate(story, settings=SETTINGS)


def test_broker_whose_session_expired_reads_everything_again() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        cluster[3].cut_from_ensemble(Direction.BOTH)
        await change(cluster[1], ORDERS, ALLOW)
        await asyncio.sleep(3 * SESSION_SECONDS)
        assert not may_read(cluster[3])
        assert cluster[3].store is not None
        cluster[3].store.cut = Direction.NONE
        await asyncio.sleep(2 * SESSION_SECONDS)
        assert may_read(cluster[3])

    simulate(story, settings=SETTINGS)


def test_znodes_are_those_of_kafka() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await change(cluster[2], ORDERS, ALLOW)
        znode = await session_of(cluster[1]).get("/kafka-acl/Topic/orders")
        assert znode is not None
        assert znode.data == (
            b'{"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Read"}],"version":1}'
        )

    simulate(story, settings=SETTINGS)


def test_brokers_that_are_super_users_replicate() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "orders", (1, 2, 3))
        await asyncio.sleep(5)
        assert state_of(cluster, "orders").isr == (1, 2, 3)

    simulate(story, settings=SETTINGS)


def test_brokers_that_are_no_super_users_refuse_each_other_and_say_why(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await create(cluster, "orders", (1, 2, 3))
        await asyncio.sleep(30)
        assert not cluster[2].running.metadata.topic_exists("orders")

    caplog.set_level(logging.INFO)
    simulate(story, settings={**AUTHORIZER, "super.users": "User:admin"})
    denials = [line for line in caplog.messages if line.startswith("Denied User:ANONYMOUS")]
    assert any("CLUSTER_ACTION on CLUSTER kafka-cluster" in line and "super.users" in line for line in denials)
    assert len(denials) < 50
