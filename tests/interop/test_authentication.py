"""Real clients on a listener with SASL: each mechanism, a user that Kafka's tool creates, sessions that end.

The broker is ours, whatever the other scenarios run on: Apache Kafka's side is recorded (tests/scenarios).
"""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from oncelog import Admin, Consumer, Producer
from oncelog.clients.admin.users import set_password
from oncelog.clients.errors import AuthenticationFailed, BrokerRefused
from tests.interop.drivers.program import java
from tests.processes import KAFKA_3_9, KAFKA_4, LIMIT_SECONDS, OncelogProcess, class_path, free_port

USER: Final = "alice"
PASSWORD: Final = "wonder,land=1"
TOKEN_KEY: Final = "sesame-open"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MODULE: Final = "org.apache.kafka.common.security"
seen_secrets: list[str] = []
"""Of delegation tokens that the tests have created."""
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)


class SaslProcess(OncelogProcess):
    """A broker with a listener that has SASL, and no other."""

    def __init__(self, directory: Path, *settings: str) -> None:
        port = free_port()
        prefix = "listener.name.sasl_plaintext"
        users = f'{MODULE}.plain.PlainLoginModule required user_{USER}="{PASSWORD}" user_admin="admin";'
        super().__init__(
            directory,
            [
                f"listeners=SASL_PLAINTEXT://127.0.0.1:{port}",
                f"{prefix}.sasl.enabled.mechanisms={','.join(MECHANISMS)}",
                f"{prefix}.plain.sasl.jaas.config={users}",
                f"delegation.token.secret.key={TOKEN_KEY}",
                *settings,
            ],
            port,
        )

    def own(self, mechanism: str, password: str = PASSWORD, user: str = USER) -> dict[str, str]:
        """Return the settings of our clients."""
        return {
            "bootstrap": self.address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_username": user,
            "sasl_password": password,
        }

    def librdkafka(self, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": mechanism,
            "sasl.username": USER,
            "sasl.password": password,
        }

    def aiokafka(self, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        return {
            "bootstrap_servers": self.address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": password,
        }

    def java(self, mechanism: str, user: str = USER, password: str = PASSWORD) -> Path:
        """Return a file of properties for Kafka's tools."""
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        path = self.directory / f"{mechanism}-{user}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={MODULE}.{module} required username="{user}" password="{password}";\n'
        )
        return path

    def java_with_token(self, token_id: str, hmac: str) -> Path:
        """Return a file of properties for Kafka's tools that authenticate by a delegation token."""
        path = self.directory / f"{token_id}.properties"
        login = f'username="{token_id}" password="{hmac}" tokenauth="true"'
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            f"sasl.jaas.config={MODULE}.scram.ScramLoginModule required {login};\n"
        )
        return path


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslProcess]:
    with SaslProcess(tmp_path_factory.mktemp("sasl"), "connections.max.reauth.ms=3000") as process:
        asyncio.run(_add_users(process))
        yield process


async def _add_users(process: SaslProcess) -> None:
    async with Admin(**process.own("PLAIN")) as admin:  # type: ignore[arg-type]
        for mechanism in MECHANISMS[1:]:
            assert await set_password(admin.cluster, USER, PASSWORD, mechanism=mechanism) is None


def run_java(library: Path, program: str, *words: object) -> "subprocess.CompletedProcess[str]":
    command = java(class_path(library), program, *words)
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)


@every_mechanism
def test_librdkafka_produces_through_several_sessions_and_consumes(process: SaslProcess, mechanism: str) -> None:
    topic, failed = f"librdkafka-{mechanism}", []
    producer = confluent_kafka.Producer(process.librdkafka(mechanism))
    for number in range(8):
        producer.produce(topic, str(number), on_delivery=lambda error, _: failed.append(error) if error else None)
        assert producer.flush(20) == 0
        producer.poll(1)
    assert failed == []
    settings = {**process.librdkafka(mechanism), "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    values = []
    while len(values) < 8:
        record = consumer.poll(20)
        assert record is not None
        assert record.error() is None
        values.append(record.value())
    consumer.close()
    assert values == [str(number).encode() for number in range(8)]


@every_mechanism
def test_librdkafka_with_a_wrong_password_says_so(process: SaslProcess, mechanism: str) -> None:
    errors: list[str] = []
    settings = {**process.librdkafka(mechanism, "wrong"), "error_cb": lambda error: errors.append(str(error))}
    producer = confluent_kafka.Producer({**settings, "log_level": 0})
    while not any("Authentication failed" in error for error in errors):
        producer.poll(20)


@every_mechanism
async def test_aiokafka_produces_and_consumes_and_a_wrong_password_fails(process: SaslProcess, mechanism: str) -> None:
    topic = f"aiokafka-{mechanism}"
    async with AIOKafkaProducer(**process.aiokafka(mechanism)) as producer:
        await producer.send_and_wait(topic, b"v")
    async with AIOKafkaConsumer(
        topic, **process.aiokafka(mechanism), group_id=topic, auto_offset_reset="earliest"
    ) as consumer:
        assert (await consumer.getone()).value == b"v"
    refused = AIOKafkaProducer(**process.aiokafka(mechanism, "wrong"))
    with pytest.raises(KafkaError):
        await refused.start()
    await refused.stop()


@every_mechanism
async def test_own_clients_go_on_through_several_sessions(process: SaslProcess, mechanism: str) -> None:
    topic = f"own-{mechanism}"
    settings = process.own(mechanism)
    async with Producer(transactional_id=topic, **settings) as producer:  # type: ignore[arg-type]
        await producer.init_transactions()
        for number in range(8):
            producer.begin_transaction()
            await producer.send(topic, str(number).encode())
            await producer.commit_transaction()
            await asyncio.sleep(1)  # As long as sessions must go by: their length is what is tested.
    async with Consumer(group_id=topic, auto_offset_reset="earliest", **settings) as consumer:  # type: ignore[arg-type]
        consumer.subscribe([topic])
        values: list[bytes | None] = []
        while len(values) < 8:
            values += [record.value for record in await consumer.poll()]
    assert values == [str(number).encode() for number in range(8)]
    with pytest.raises(AuthenticationFailed):
        async with Admin(**process.own(mechanism, "wrong")) as admin:  # type: ignore[arg-type]
            await admin.list_topics()


@every_mechanism
def test_java_produces_through_several_sessions(process: SaslProcess, mechanism: str) -> None:
    done = run_java(
        KAFKA_4,
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", process.address, "--command-config", process.java(mechanism)),
        *("--topic", f"java-{mechanism}", "--num-records", 80, "--throughput", 10, "--record-size", 10),
    )
    assert "80 records sent" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.parametrize("library", [KAFKA_4, KAFKA_3_9], ids=["4", "3.9"])
def test_kafkas_tool_creates_and_deletes_a_user(process: SaslProcess, library: Path) -> None:
    name = f"carol {library.parent.name}@x"

    def configs(*words: str) -> "subprocess.CompletedProcess[str]":
        config = process.java("PLAIN", "admin", "admin")
        where = ("--bootstrap-server", process.address, "--command-config", config)
        entity = ("--entity-type", "users", "--entity-name", name)
        return run_java(library, "kafka.admin.ConfigCommand", *where, "--alter", *entity, *words)

    password = "SCRAM-SHA-256=[iterations=8192,password=c],SCRAM-SHA-512=[password=c]"
    done = configs("--add-config", password)
    assert "Completed updating" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    for mechanism in MECHANISMS[1:]:
        asyncio.run(_list_topics(process, mechanism, name))
    done = configs("--delete-config", "SCRAM-SHA-256")
    assert "Completed updating" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    asyncio.run(_list_topics(process, "SCRAM-SHA-512", name))
    with pytest.raises(AuthenticationFailed):
        asyncio.run(_list_topics(process, "SCRAM-SHA-256", name))


async def _list_topics(process: SaslProcess, mechanism: str, user: str) -> None:
    async with Admin(**process.own(mechanism, "c", user)) as admin:  # type: ignore[arg-type]
        await admin.list_topics()


@pytest.mark.parametrize("library", [KAFKA_4, KAFKA_3_9], ids=["4", "3.9"])
async def test_kafkas_tool_manages_delegation_tokens_and_java_and_own_clients_use_them(
    process: SaslProcess, library: Path
) -> None:
    admin = ("--bootstrap-server", process.address, "--command-config", process.java("PLAIN", "admin", "admin"))

    def tokens(*words: object) -> str:
        done = run_java(library, "org.apache.kafka.tools.DelegationTokenCommand", *admin, *words)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    shown = tokens("--create", "--max-life-time-period", -1, "--renewer-principal", f"User:{USER}")
    (row,) = [line.split() for line in shown.splitlines() if "User:admin" in line]
    token_id, hmac = row[0], row[1]
    seen_secrets.append(hmac)
    assert f"User:{USER}" in shown
    assert token_id in tokens("--describe", "--owner-principal", "User:admin")
    assert "Completed renew" in tokens("--renew", "--renew-time-period", -1, "--hmac", hmac)
    done = run_java(
        KAFKA_4,
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", process.address, "--command-config", process.java_with_token(token_id, hmac)),
        *("--topic", "java-by-token", "--num-records", 80, "--throughput", 10, "--record-size", 10),
    )
    assert "80 records sent" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    by_token: dict[str, Any] = {**process.own("SCRAM-SHA-512", hmac, token_id), "sasl_tokenauth": True}
    async with Admin(**by_token) as own:
        assert "java-by-token" in [topic.name for topic in await own.list_topics()]
        with pytest.raises(BrokerRefused, match="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
            await own.create_delegation_token()
    assert "Completed expire" in tokens("--expire", "--expiry-time-period", -1, "--hmac", hmac)
    assert token_id not in tokens("--describe")
    with pytest.raises(AuthenticationFailed):
        async with Admin(**by_token) as own:
            await own.list_topics()


def test_log_of_the_broker_contains_no_password(process: SaslProcess) -> None:
    """Last in this file: the broker has seen all of them by now."""
    written = [path.read_bytes() for path in process.directory.rglob("*.log") if "data" not in path.parts]
    assert written
    for secret in (PASSWORD, "admin;", "stored_key", TOKEN_KEY, *seen_secrets):
        assert not [text for text in written if secret.encode() in text]
