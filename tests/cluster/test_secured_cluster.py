"""Three brokers that know each other by certificates and log in, under transactions while they are killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.command import Oncelog
from tests.processes import ClusterProcess

TRANSACTIONS = 30
PER_TRANSACTION = 20
SECONDS = 60
MOST_ATTEMPTS = 20


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    Oncelog("")(f"tls init {directory} --client tester")
    return directory


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[ClusterProcess]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = [
        "listener.security.protocol.map=PLAINTEXT:SASL_SSL",
        f"ssl.keystore.location={certificates / 'broker-localhost.pem'}",
        f"ssl.truststore.location={certificates / 'ca.pem'}",
        "listener.name.plaintext.ssl.client.auth=required",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        "listener.name.plaintext.sasl.enabled.mechanisms=PLAIN",
        f'listener.name.plaintext.plain.sasl.jaas.config={module} required username="broker" password="b" '
        'user_broker="b" user_alice="wonder";',
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:broker;User:alice",
    ]
    with ClusterProcess(tmp_path_factory.mktemp("cluster"), settings=settings) as running:
        yield running


def client(cluster: ClusterProcess, certificates: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": cluster.address,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "wonder",
        "ssl.ca.location": str(certificates / "ca.pem"),
        "ssl.certificate.location": str(certificates / "client-tester.pem"),
        "ssl.key.location": str(certificates / "client-tester.pem"),
    }


def write(producer: Producer, number: int) -> bool:
    """Write one transaction; returns whether it is committed."""
    producer.begin_transaction()
    for index in range(PER_TRANSACTION):
        producer.produce("orders", f"{number}:{index}".encode(), partition=index % 3)
    try:
        producer.commit_transaction(SECONDS)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        producer.abort_transaction(SECONDS)
        return False
    return True


def test_transactions_lose_and_double_nothing_while_brokers_are_killed(
    cluster: ClusterProcess, certificates: Path
) -> None:
    settings = client(cluster, certificates)
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(SECONDS)
    producer = Producer(settings | {"transactional.id": "t", "message.timeout.ms": 30_000})
    producer.init_transactions(SECONDS)
    committed = []
    for number in range(TRANSACTIONS):
        if number % 10 == 5:
            cluster.verb("kill", number // 10 + 1)
        if number % 10 == 9:
            cluster.verb("start", number // 10 + 1)
        for _ in range(MOST_ATTEMPTS):
            if write(producer, number):
                committed.append(number)
                break
    assert committed == list(range(TRANSACTIONS))
    consumer = Consumer(settings | {"group.id": "g", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("orders", partition, 0) for partition in range(3)])
    found = []
    while len(found) < TRANSACTIONS * PER_TRANSACTION:
        message = consumer.poll(SECONDS)
        assert message is not None, f"{len(found)} records"
        if message.error() is None:
            found.append(message.value().decode())
    more = consumer.poll(2)
    consumer.close()
    assert more is None
    assert sorted(found) == sorted(f"{number}:{index}" for number in committed for index in range(PER_TRANSACTION))


def test_brokers_accept_no_connection_without_a_certificate_or_with_a_wrong_password(
    cluster: ClusterProcess, certificates: Path, tmp_path: Path
) -> None:
    trusted = (
        f"security.protocol=SASL_SSL\nssl.truststore.location={certificates / 'ca.pem'}\nssl.truststore.type=PEM\n"
    )
    login = "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=alice\nsasl.password={}\n"
    own = f"ssl.keystore.location={certificates / 'client-tester.pem'}\nssl.keystore.type=PEM\n"
    oncelog = Oncelog(cluster.address)
    for text, code in (
        (trusted + login.format("wonder") + own, 0),
        (trusted + login.format("wrong") + own, 2),
        (trusted + login.format("wonder"), 2),
    ):
        (tmp_path / "client.properties").write_text(text)
        done = oncelog.run(f"topic list --timeout 10 --command-config {tmp_path / 'client.properties'}")
        assert (done.returncode == 0) == (code == 0), done.stdout + done.stderr
        assert "wonder" not in done.stdout + done.stderr


def test_secured_cluster_of_one_command_lets_its_administrator_in_and_no_stranger(tmp_path: Path) -> None:
    cluster = ClusterProcess(tmp_path, secure=True)
    with cluster:
        files = cluster.cluster_directory / "secured"
        assert {path.name: path.stat().st_mode & 0o777 for path in files.iterdir()} == {
            "ca.pem": 0o600, "broker.pem": 0o600, "server.properties": 0o600, "admin.properties": 0o600,
            "zookeeper.jaas": 0o600,
        }  # fmt: skip
        assert "can still change or remove" not in (cluster.cluster_directory / "broker-1.log").read_text()
        oncelog = Oncelog(cluster.address)
        oncelog.environment["ONCELOG_COMMAND_CONFIG"] = str(files / "admin.properties")
        oncelog("topic create orders")
        oncelog("user add alice", text="wonder\n")
        stranger = tmp_path / "stranger.properties"
        text = (files / "admin.properties").read_text()
        stranger.write_text(text.replace("sasl.mechanism=PLAIN", "sasl.mechanism=SCRAM-SHA-512").replace(
            "plain.PlainLoginModule", "scram.ScramLoginModule").replace('"admin"', '"alice"'))  # fmt: skip
        assert oncelog.run(f"topic list --timeout 5 --command-config {stranger}").returncode != 0
        assert Oncelog(cluster.address).run("topic list --timeout 3").returncode != 0
    cluster.secure = False
    with cluster:
        oncelog = Oncelog(cluster.address)
        oncelog.environment["ONCELOG_COMMAND_CONFIG"] = str(files / "admin.properties")
        assert [topic["topic"] for topic in oncelog.json("topic list")] == ["orders"]
        assert Oncelog(cluster.address).run("topic list --timeout 3").returncode != 0
