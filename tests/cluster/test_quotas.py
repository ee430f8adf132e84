"""Client quotas in a real ZooKeeper: nested znodes, beside what other tools have written, and brokers that follow."""

import asyncio
import itertools
from contextlib import AsyncExitStack

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.rules import ConfigRules
from oncelog.broker.local_cluster.zookeeper_server import ZooKeeperServer
from oncelog.broker.quotas.client_quotas import ClientQuotas
from oncelog.coordinator.controller.api_error import NO_ERROR
from oncelog.coordinator.controller.config_changes import ConfigAlteration, ConfigOperation, OperationType
from oncelog.coordinator.controller.config_repository import ConfigRepository
from oncelog.coordinator.controller.quota_entities import resource_of_entity
from oncelog.coordinator.metadata_store import paths
from oncelog.coordinator.metadata_store.store import Session
from oncelog.coordinator.metadata_store.zookeeper import connect_zookeeper
from oncelog.protocol.client_quotas import DEFAULT, QuotaEntity

SECONDS = 60
PAIR, EVERYONE, ALICE = QuotaEntity("al/ice", "c 1"), QuotaEntity(DEFAULT, DEFAULT), QuotaEntity("alice")
_chroots = itertools.count()


class Member:
    """The repository of a broker, which follows changes as one does, and the quotas that it goes by."""

    def __init__(self, connect_string: str) -> None:
        self.connect_string = connect_string
        self.changed = asyncio.Event()
        self.quotas = ClientQuotas()

    async def open(self, resources: AsyncExitStack) -> None:
        self._store = await connect_zookeeper(
            self.connect_string, session_timeout_ms=4_000, connection_timeout_ms=SECONDS * 1_000
        )
        resources.push_async_callback(self._store.close)
        for path in paths.PERSISTENT_PATHS:
            await self.session.create(path)  # The other may have been first.
        self.configs = ConfigRepository(self._store, ConfigRules(BrokerConfig()))
        self.configs.add_listener(self.quotas.learn)
        await self.configs.load(self.session, self.changed.set)

    @property
    def session(self) -> Session:
        session = self._store.session
        assert session is not None
        return session

    async def set(self, entity: QuotaEntity, value: str) -> None:
        operation = ConfigOperation("producer_byte_rate", OperationType.SET, value)
        alteration = ConfigAlteration(resource_of_entity(entity), (operation,))
        assert await self.configs.alter([alteration]) == [NO_ERROR]

    async def until(self, user: str, client_id: str, value: float) -> None:
        """Follow changes until this limit holds for a client."""
        async with asyncio.timeout(SECONDS):
            while (found := self.quotas.produce.limits.find(user, client_id)) is None or found.value != value:
                await self.changed.wait()
                self.changed.clear()
                await self.configs.refresh(self.session, self.changed.set)


async def test_quotas_are_kept_in_nested_znodes_and_reach_the_other_broker(zookeeper: ZooKeeperServer) -> None:
    connect_string = f"{zookeeper.address}/quotas-{next(_chroots)}"
    async with AsyncExitStack() as resources:
        one, other = Member(connect_string), Member(connect_string)
        await one.open(resources)
        await other.open(resources)
        await one.session.create("/config/users/alice", b'{"version":1,"config":{"SCRAM-SHA-256":"x"}}')
        await one.set(PAIR, "5")
        await other.set(EVERYONE, "6")
        await one.set(ALICE, "7")
        for member in (one, other):
            await member.until("al/ice", "c 1", 5)
            await member.until("bob", "any", 6)
            await member.until("alice", "any", 7)
        late = Member(connect_string)
        await late.open(resources)
        assert late.quotas.produce.limits.find("al/ice", "c 1") == (("al/ice", "c 1"), 5)
        for path, data in {
            "/config/users/al%2Fice/clients/c%201": b'{"version":1,"config":{"producer_byte_rate":"5"}}',
            "/config/users/<default>/clients/<default>": b'{"version":1,"config":{"producer_byte_rate":"6"}}',
            "/config/users/alice": b'{"version":1,"config":{"SCRAM-SHA-256":"x","producer_byte_rate":"7"}}',
        }.items():
            znode = await one.session.get(path)
            assert znode is not None
            assert znode.data == data
