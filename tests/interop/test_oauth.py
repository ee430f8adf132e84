"""Kafka's own clients on a listener with OAUTHBEARER, with tokens of an issuer on loopback.

The broker is ours, whatever the other scenarios run on.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Producer

from tests.integration.test_oauth import OauthProcess
from tests.interop.drivers.program import java
from tests.processes import KAFKA_3_9, KAFKA_4, LIMIT_SECONDS, class_path
from tests.token_issuer import SECRETS, TokenIssuer

MODULE = "org.apache.kafka.common.security.oauthbearer"
LIBRARIES = pytest.mark.parametrize("library", [KAFKA_4, KAFKA_3_9], ids=["4", "3.9"])
LIFETIME_SECONDS = 4


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer(lifetime_seconds=LIFETIME_SECONDS) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory, issuer: TokenIssuer) -> Iterator[OauthProcess]:
    with OauthProcess(tmp_path_factory.mktemp("oauth"), issuer) as process:
        yield process


def properties(process: OauthProcess, issuer: TokenIssuer, secret: str) -> Path:
    """Return a file of properties for Kafka's tools."""
    path = process.directory / f"{len(secret)}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={issuer.token_url}\nsasl.oauthbearer.header.urlencode=true\n"
        f"sasl.login.callback.handler.class={MODULE}.OAuthBearerLoginCallbackHandler\n"
        f'sasl.jaas.config={MODULE}.OAuthBearerLoginModule required clientId="alice-app" clientSecret="{secret}"'
        ' extension_pool="p";\n'
    )
    return path


def run_java(issuer: TokenIssuer, library: Path, program: str, *words: object) -> "subprocess.CompletedProcess[str]":
    command = java(class_path(library), program, *words)
    options = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.token_url}"
    environment = {**os.environ, "JDK_JAVA_OPTIONS": options}
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, env=environment)


class Provider(AbstractTokenProvider):
    """Returns a token of an issuer."""

    def __init__(self, issuer: TokenIssuer) -> None:
        self._issuer = issuer

    async def token(self) -> str:
        return self._issuer.token()


async def test_aiokafka_produces_with_a_token(process: OauthProcess, issuer: TokenIssuer) -> None:
    settings = {
        "bootstrap_servers": process.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(issuer),
    }
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait("aiokafka", b"v")


def test_librdkafka_produces_with_tokens_of_an_endpoint(process: OauthProcess, issuer: TokenIssuer) -> None:
    delivered: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": process.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": issuer.token_url,
            "sasl.oauthbearer.client.id": "broker-app",
            "sasl.oauthbearer.client.secret": SECRETS["broker-app"],  # It sends them as they are, not form-encoded.
        }
    )
    producer.produce("librdkafka", b"v", on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(LIMIT_SECONDS) == 0
    assert delivered == [None]


@LIBRARIES
def test_java_produces_through_several_tokens(process: OauthProcess, issuer: TokenIssuer, library: Path) -> None:
    done = run_java(
        issuer,
        library,
        "org.apache.kafka.tools.ProducerPerformance",
        *("--producer-props", f"bootstrap.servers={process.address}"),
        *("--producer.config", properties(process, issuer, SECRETS["alice-app"])),
        *("--topic", f"java-{library.parent.name}", "--num-records", 120, "--throughput", 10, "--record-size", 10),
    )
    assert "120 records sent" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
