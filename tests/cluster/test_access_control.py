"""Kafka 3.9's own authorizer and ours keep access control lists in the same znodes of one ZooKeeper.

Each decides by what the other wrote, and hears of it.
"""

import asyncio
import itertools
import subprocess
from collections.abc import AsyncIterator, Mapping

import pytest

from oncelog.broker.local_cluster.zookeeper_server import ZooKeeperServer
from oncelog.coordinator.controller.acl_changes import Addition, Entries, Removal
from oncelog.coordinator.controller.acl_repository import AclRepository
from oncelog.coordinator.controller.api_error import NO_ERROR
from oncelog.coordinator.metadata_store.store import Session
from oncelog.coordinator.metadata_store.zookeeper import connect_zookeeper
from oncelog.protocol.acl import (
    AccessControlEntry,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from tests.processes import PEERS, class_path

FOLLOWED_SECONDS = 1.0
SECONDS = 60
ORDERS = ResourcePattern(AclResourceType.TOPIC, "orders")
GROUPS = ResourcePattern(AclResourceType.GROUP, "g", PatternType.PREFIXED)
READ = AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)
DENIED = AccessControlEntry("User:bob", "10.0.0.7", AclOperation.ALL, AclPermissionType.DENY)
_chroots = itertools.count()


def acl_command(connect_string: str, *arguments: str) -> str:
    """What Kafka's tool says, which uses the authorizer without a broker."""
    words = ["java", "-cp", class_path(PEERS / "kafka-3.9" / "lib"), "kafka.admin.AclCommand"]
    words += ["--authorizer-properties", f"zookeeper.connect={connect_string}", *arguments]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=True)
    return done.stdout


class Broker:
    """The repository of a broker, which follows changes as one does."""

    def __init__(self, connect_string: str) -> None:
        self.connect_string = connect_string
        self.changed = asyncio.Event()

    async def __aenter__(self) -> "Broker":
        self._store = await connect_zookeeper(
            self.connect_string, session_timeout_ms=4_000, connection_timeout_ms=SECONDS * 1_000
        )
        self.acls = AclRepository(self._store, self._ignore)
        await self.acls.load(self.session, self.changed.set)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._store.close()

    @property
    def session(self) -> Session:
        session = self._store.session
        assert session is not None
        return session

    @staticmethod
    def _ignore(news: Mapping[ResourcePattern, Entries]) -> None:
        """Nothing decides here."""

    async def follow(self) -> None:
        async with asyncio.timeout(FOLLOWED_SECONDS):
            await self.changed.wait()
        self.changed.clear()
        await self.acls.refresh(self.session, self.changed.set)


@pytest.fixture
async def broker(zookeeper: ZooKeeperServer) -> AsyncIterator[Broker]:
    async with Broker(f"{zookeeper.address}/acl/{next(_chroots)}") as running:
        yield running


async def test_kafka_lists_what_this_broker_created(broker: Broker) -> None:
    results = await broker.acls.change({ORDERS: Addition(frozenset({READ})), GROUPS: Addition(frozenset({DENIED}))})
    assert [result.error for result in results.values()] == [NO_ERROR, NO_ERROR]
    listed = await asyncio.to_thread(acl_command, broker.connect_string, "--list")
    assert "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)" in listed
    assert "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)" in listed
    assert "ResourcePattern(resourceType=GROUP, name=g, patternType=PREFIXED)" in listed
    assert "(principal=User:bob, host=10.0.0.7, operation=ALL, permissionType=DENY)" in listed


async def test_changes_of_kafka_are_followed_by_this_broker(broker: Broker) -> None:
    async def kafka(*arguments: str) -> None:
        await asyncio.to_thread(acl_command, broker.connect_string, *arguments)

    orders = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    groups = ("--deny-principal", "User:bob", "--deny-host", "10.0.0.7", "--operation", "All", "--group", "g")
    await kafka("--add", *orders)
    await broker.follow()
    assert broker.acls.acls == {ORDERS: {READ}}
    await kafka("--add", *groups, "--resource-pattern-type", "prefixed")
    await broker.follow()
    assert broker.acls.acls == {ORDERS: {READ}, GROUPS: {DENIED}}
    await kafka("--remove", "--force", *orders)
    await broker.follow()
    assert broker.acls.acls == {GROUPS: {DENIED}}
    result = (await broker.acls.change({GROUPS: Removal((AclBindingFilter(),))}))[GROUPS]
    assert (result.error, result.removed) == (NO_ERROR, {DENIED})
    listed = await asyncio.to_thread(acl_command, broker.connect_string, "--list")
    assert "principal=" not in listed
