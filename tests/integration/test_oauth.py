"""OAUTHBEARER over the wire: a broker process, an issuer of tokens on loopback, librdkafka and our own clients."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from oncelog import Admin, Consumer, Producer
from oncelog.broker.config.listeners import checked_listeners
from oncelog.broker.config.sources import load_config
from oncelog.broker.security.peer_security import read_peer_security
from oncelog.clients.admin.configs import Resource, ResourceType
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.connection import connect
from oncelog.clients.errors import AuthenticationFailed
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.command import Oncelog
from tests.processes import OncelogProcess, free_port
from tests.token_issuer import AUDIENCE, ISSUER, SECRETS, TokenIssuer, new_key

PREFIX = "listener.name.sasl_plaintext"
OAUTH = f"{PREFIX}.oauthbearer.sasl.oauthbearer"
LIFETIME_SECONDS = 4


class OauthProcess(OncelogProcess):
    """A broker whose only listener has OAUTHBEARER."""

    def __init__(self, directory: Path, issuer: TokenIssuer, *settings: str) -> None:
        port = free_port()
        self.settings_of_listener = [
            f"listeners=SASL_PLAINTEXT://127.0.0.1:{port}",
            f"{PREFIX}.sasl.enabled.mechanisms=OAUTHBEARER",
            f"{OAUTH}.jwks.endpoint.url={issuer.jwks_url}",
            f"{OAUTH}.expected.audience={AUDIENCE}",
            f"{OAUTH}.expected.issuer={ISSUER}",
            "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
            "super.users=User:alice;User:broker",
        ]
        super().__init__(directory, [*self.settings_of_listener, *settings], port)

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.directory.glob("std*.log")))


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer(lifetime_seconds=LIFETIME_SECONDS) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory, issuer: TokenIssuer) -> Iterator[OauthProcess]:
    with OauthProcess(tmp_path_factory.mktemp("oauth"), issuer) as process:
        yield process


def librdkafka(process: OauthProcess, issuer: TokenIssuer, **changes: Any) -> dict[str, Any]:
    def provide(_: str) -> tuple[str, float]:
        token = issuer.token(**changes)
        return token, time.time() + LIFETIME_SECONDS  # noqa: TID251 - librdkafka's callback returns a time

    return {
        "bootstrap.servers": process.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": provide,
    }


def endpoint(process: OauthProcess, issuer: TokenIssuer, client: str = "alice-app") -> dict[str, Any]:
    return {
        "bootstrap": process.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": issuer.token_url,
        "sasl_oauthbearer_client_credentials_client_id": client,
        "sasl_oauthbearer_client_credentials_client_secret": SECRETS[client],
    }


def test_librdkafka_produces_through_several_tokens_and_consumes(process: OauthProcess, issuer: TokenIssuer) -> None:
    failed: list[object] = []
    producer = confluent_kafka.Producer(librdkafka(process, issuer))
    for number in range(8):
        producer.produce("lib", str(number), on_delivery=lambda error, _: failed.append(error) if error else None)
        assert producer.flush(20) == 0
        producer.poll(1)
    assert failed == []
    settings = {**librdkafka(process, issuer), "group.id": "lib", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["lib"])
    values = []
    while len(values) < 8:
        record = consumer.poll(20)
        assert record is not None
        assert record.error() is None
        values.append(record.value())
    consumer.close()
    assert values == [str(number).encode() for number in range(8)]


def test_librdkafka_gets_its_own_token_from_the_endpoint(process: OauthProcess, issuer: TokenIssuer) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": process.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": issuer.token_url,
        "sasl.oauthbearer.client.id": "broker-app",
        "sasl.oauthbearer.client.secret": SECRETS["broker-app"],
        "sasl.oauthbearer.extensions": "pool=p",
    }
    producer = confluent_kafka.Producer(settings)
    producer.produce("oidc", b"v")
    assert producer.flush(20) == 0


def test_librdkafka_with_a_token_for_others_learns_that_it_is_invalid(
    process: OauthProcess, issuer: TokenIssuer
) -> None:
    errors: list[str] = []
    settings = {**librdkafka(process, issuer, aud="others"), "error_cb": lambda error: errors.append(str(error))}
    producer = confluent_kafka.Producer({**settings, "log_level": 0})
    while not any("invalid_token" in error for error in errors):
        producer.poll(20)


async def test_own_clients_go_on_through_several_tokens(process: OauthProcess, issuer: TokenIssuer) -> None:
    settings = endpoint(process, issuer)
    async with Producer(transactional_id="own", **settings) as producer:
        await producer.init_transactions()
        for number in range(8):
            producer.begin_transaction()
            await producer.send("own", str(number).encode())
            await producer.commit_transaction()
            await asyncio.sleep(1)  # As long as tokens must expire: their length is what is tested.
    async with Consumer(group_id="own", auto_offset_reset="earliest", **settings) as consumer:
        consumer.subscribe(["own"])
        values: list[bytes | None] = []
        while len(values) < 8:
            values += [record.value for record in await consumer.poll()]
    assert values == [str(number).encode() for number in range(8)]


async def test_callable_of_a_program_provides_the_token(process: OauthProcess, issuer: TokenIssuer) -> None:
    async def provide_later() -> str:
        return issuer.token()

    common = {
        "bootstrap": process.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
    }
    for provider in (issuer.token, provide_later):
        async with Admin(**common, sasl_oauthbearer_token_provider=provider) as admin:  # type: ignore[arg-type]
            await admin.list_topics()
    with pytest.raises(AuthenticationFailed, match=r'\{"status":"invalid_token"\}'):
        async with Admin(
            **common,  # type: ignore[arg-type]
            sasl_oauthbearer_token_provider=lambda: issuer.token(iss="https://other.example"),
        ) as admin:
            await admin.list_topics()


def test_command_gets_a_token_from_the_endpoint_or_a_file(
    process: OauthProcess, issuer: TokenIssuer, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(issuer.token() + "\n")
    common = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    secret = SECRETS["alice-app"]
    for number, lines in enumerate(
        (
            f"sasl.oauthbearer.token.endpoint.url=file://{tmp_path}/token\n",
            f"sasl.oauthbearer.token.endpoint.url={issuer.token_url}\n"
            f"sasl.oauthbearer.client.id=alice-app\nsasl.oauthbearer.client.secret={secret}\n",
            f"sasl.oauthbearer.token.endpoint.url={issuer.token_url}\n"
            f'sasl.jaas.config={module} required clientId="alice-app" clientSecret="{secret}" scope="kafka";\n',
        )
    ):
        path = tmp_path / f"{number}.properties"
        path.write_text(common + lines)
        command = Oncelog(process.address)
        command.environment["ONCELOG_COMMAND_CONFIG"] = str(path)
        command(f"topic create made-{number}")
    path.write_text(f"{common}sasl.oauthbearer.token.endpoint.url={issuer.token_url}\n"
                    "sasl.oauthbearer.client.id=alice-app\nsasl.oauthbearer.client.secret=wrong-secret\n")  # fmt: skip
    said = command.fails("topic list")
    assert "sasl.oauthbearer.token.endpoint.url: there is no token from it: it responds with HTTP status 401" in said
    assert "wrong-secret" not in said


async def test_broker_logs_in_to_others_with_a_token_of_its_own(process: OauthProcess, issuer: TokenIssuer) -> None:
    own = [
        *process.settings_of_listener,
        "zookeeper.connect=127.0.0.1:1",
        "security.inter.broker.protocol=SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol=OAUTHBEARER",
        f"{OAUTH}.token.endpoint.url={issuer.token_url}",
        f"{OAUTH}.client.credentials.client.id=broker-app",
        f"{OAUTH}.client.credentials.client.secret={SECRETS['broker-app']}",
    ]
    config = load_config(overrides=own, environment={}).config
    peers = read_peer_security(config, checked_listeners(config))
    (address,) = parse_bootstrap(process.address)
    connection = await connect(address, sasl=peers.sasl)
    assert (await connection.send(MetadataRequest(topics=[]), MetadataResponse)).brokers
    connection.close()
    await connection.closed


def test_new_key_is_fetched_once_and_the_last_good_keys_survive_the_issuer(tmp_path: Path) -> None:
    with TokenIssuer() as issuer, OauthProcess(tmp_path, issuer) as process:

        async def list_topics(token: str) -> None:
            async with Admin(
                bootstrap=process.address,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauthbearer_token_provider=lambda: token,
            ) as admin:
                await admin.list_topics()

        old = issuer.token()
        asyncio.run(list_topics(old))
        issuer.keys.insert(0, new_key("k2"))
        new = issuer.token()
        while True:
            try:
                asyncio.run(list_topics(new))
                break
            except AuthenticationFailed:
                pass
        issuer.is_down = True
        issuer.keys.insert(0, new_key("k3"))
        for _ in range(5):
            with pytest.raises(AuthenticationFailed):
                asyncio.run(list_topics(issuer.token()))
        asyncio.run(list_topics(new))
        asyncio.run(list_topics(old))
        assert issuer.fetches.count("/jwks") == 2
        log = process.log()
        assert "there is no key" not in log
        for secret in (old, new, old.split(".")[1]):
            assert secret not in log


def test_broker_starts_without_its_issuer_and_accepts_tokens_once_it_is_there(tmp_path: Path) -> None:
    secret = "hidden-secret"
    with TokenIssuer(is_down=True) as issuer, OauthProcess(
        tmp_path, issuer, f"{OAUTH}.client.credentials.client.secret={secret}"
    ) as process:  # fmt: skip
        assert "there are no keys, and no token is accepted" in process.log()

        async def shown() -> str:
            async with Admin(
                bootstrap=process.address,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauthbearer_token_provider=issuer.token,
            ) as admin:
                (only,) = (await admin.describe_cluster()).brokers
                broker = Resource(type=ResourceType.BROKER, name=str(only.broker_id))
                return str(await admin.describe_configs({broker: None}))

        with pytest.raises(AuthenticationFailed):
            asyncio.run(shown())
        issuer.is_down = False
        text = ""
        while not text:
            with suppress(AuthenticationFailed):
                text = asyncio.run(shown())
        assert "sasl.oauthbearer.expected.audience" in text
        assert secret not in text + process.log()


def test_listener_for_unsecured_tokens_says_so(tmp_path: Path) -> None:
    port = free_port()
    settings = [
        f"listeners=SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms=OAUTHBEARER",
        "oncelog.sasl.oauthbearer.allow.unsecured.tokens=true",
    ]
    with OncelogProcess(tmp_path, settings, port) as process:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": process.address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": True,
                "sasl.oauthbearer.config": "principal=alice",
            }
        )
        producer.produce("unsecured", b"v")
        assert producer.flush(20) == 0
        log = "".join(path.read_text() for path in tmp_path.glob("std*.log"))
        assert "accepts tokens without a signature, by which every client can be every user" in log
