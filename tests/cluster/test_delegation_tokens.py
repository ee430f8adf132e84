"""A broker of Kafka 3.9 and this broker keep delegation tokens in the same znodes of one ZooKeeper.

Each accepts what the other created, with the same secret, and hears of it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from oncelog import Admin
from oncelog.broker.local_cluster.zookeeper_server import ZooKeeperServer
from oncelog.clients.errors import AuthenticationFailed
from oncelog.coordinator.controller.token_repository import TokenRepository
from oncelog.coordinator.metadata_store.store import Session
from oncelog.coordinator.metadata_store.zookeeper import connect_zookeeper
from oncelog.protocol.delegation_token import TokenInformation
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.principal import Principal
from tests.processes import KAFKA_3_9, KafkaProcess, free_port

KEY: Final = "sesame-open"
SECONDS: Final = 30.0
FOLLOWED_SECONDS: Final = 1.0
MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
ADMIN: Final = Principal("User", "admin")


class KafkaOnZooKeeper(KafkaProcess):
    """Kafka 3.9 as a broker on ZooKeeper, with delegation tokens."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        super().__init__(directory, library=KAFKA_3_9)
        self.zookeeper = zookeeper
        self.sasl_port = free_port()

    def prepare(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        prefix = "listener.name.sasl_plaintext"
        lines = [
            "broker.id=1",
            f"zookeeper.connect={self.zookeeper}",
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}",
            f"{prefix}.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f'{prefix}.plain.sasl.jaas.config={MODULE} required user_admin="admin";',
            f"{prefix}.scram-sha-256.sasl.jaas.config={SCRAM_MODULE} required;",
            f"{prefix}.scram-sha-512.sasl.jaas.config={SCRAM_MODULE} required;",
            f"delegation.token.secret.key={KEY}",
            f"log.dirs={self.data_directory}",
            "offsets.topic.replication.factor=1",
        ]
        self.properties_file.write_text("\n".join(lines) + "\n")

    def client(self, mechanism: str, name: str, password: str, **more: Any) -> Admin:
        return Admin(
            f"127.0.0.1:{self.sasl_port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_username=name,
            sasl_password=password,
            **more,
        )


class Broker:
    """The repository of a broker, which follows changes as one does."""

    def __init__(self, connect_string: str) -> None:
        self._connect_string = connect_string
        self.changed = asyncio.Event()

    async def __aenter__(self) -> "Broker":
        self._store = await connect_zookeeper(
            self._connect_string, session_timeout_ms=4_000, connection_timeout_ms=60_000
        )
        self.tokens = TokenRepository(self._store, KEY.encode(), max_count=100)
        await self.tokens.load(self.session, self.changed.set)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._store.close()

    @property
    def session(self) -> Session:
        session = self._store.session
        assert session is not None
        return session

    async def follow(self) -> None:
        async with asyncio.timeout(FOLLOWED_SECONDS):
            await self.changed.wait()
        self.changed.clear()
        await self.tokens.refresh(self.session, self.changed.set)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer) -> Iterator[KafkaOnZooKeeper]:
    with KafkaOnZooKeeper(tmp_path_factory.mktemp("kafka"), f"{zookeeper.address}/tokens") as process:
        yield process


@pytest.fixture
async def broker(kafka: KafkaOnZooKeeper) -> AsyncIterator[Broker]:
    async with Broker(kafka.zookeeper) as running:
        yield running


async def test_token_of_kafka_is_known_to_this_broker_with_its_secret(kafka: KafkaOnZooKeeper, broker: Broker) -> None:
    async with kafka.client("PLAIN", "admin", "admin") as admin:
        created = await admin.create_delegation_token(renewers=[Principal("User", "al ice")])
        await broker.follow()
        assert broker.tokens.tokens[created.token_id] == created.information
        assert broker.tokens.hmac_of(created.token_id) == created.hmac
        expires = await admin.renew_delegation_token(created.hmac, period_ms=60_000)
        await broker.follow()
        assert broker.tokens.tokens[created.token_id].expiry_timestamp_ms == expires
        await admin.expire_delegation_token(created.hmac)
        await broker.follow()
        assert created.token_id not in broker.tokens.tokens


async def test_token_of_this_broker_opens_kafka_until_it_is_removed(kafka: KafkaOnZooKeeper, broker: Broker) -> None:
    async with kafka.client("PLAIN", "admin", "admin") as admin:
        example = await admin.create_delegation_token()
        now_ms = example.information.issue_timestamp_ms
        token = TokenInformation(
            token_id="ua5cey91Qx2ffVPJ39yBcw",
            owner=ADMIN,
            requester=ADMIN,
            renewers=(Principal("User", "CN=Al ice*~,O=Ü"),),
            issue_timestamp_ms=now_ms,
            max_timestamp_ms=now_ms + 600_000,
            expiry_timestamp_ms=now_ms + 600_000,
        )
        assert await broker.tokens.create(token, timeout_seconds=SECONDS) is ErrorCode.NONE
        await asyncio.sleep(FOLLOWED_SECONDS)  # The time that Kafka has to hear of it is what is tested.
        seen = {each.token_id: each for each in await admin.describe_delegation_tokens()}
        assert seen[token.token_id].information == token
        password = seen[token.token_id].password
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            async with kafka.client(mechanism, token.token_id, password, sasl_tokenauth=True) as by_token:
                await by_token.list_topics()
        assert await broker.tokens.change(token.token_id, lambda stored: None, timeout_seconds=SECONDS) is None
        await asyncio.sleep(FOLLOWED_SECONDS)
        assert token.token_id not in {each.token_id for each in await admin.describe_delegation_tokens()}
        with pytest.raises(AuthenticationFailed):
            async with kafka.client("SCRAM-SHA-256", token.token_id, password, sasl_tokenauth=True) as by_token:
                await by_token.list_topics()
