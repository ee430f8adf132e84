"""Brokers on a ZooKeeper with TLS, logins and protected znodes, and Kafka 3.9 there with the same user.

Both give their znodes the same access control lists, and each works with what the other has left.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from kazoo.exceptions import NoAuthError

from tests.cluster.secured_zookeeper import SecuredZooKeeper, access_lists
from tests.command import Oncelog
from tests.processes import KAFKA_3_9, LIMIT_SECONDS, KafkaProcess, OncelogProcess, class_path, free_port

SECONDS = LIMIT_SECONDS
RECORDS = 50
MOST_LOOKS = 30
"""A broker of Kafka's serves before it knows the topics."""
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PREFIX = "listener.name.sasl_plaintext"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, zookeeper_jars: None) -> Iterator[SecuredZooKeeper]:
    made = SecuredZooKeeper(tmp_path_factory.mktemp("secured"))
    with made.server:
        yield made


def broker_settings(broker_id: int, plain_port: int, sasl_port: int) -> list[str]:
    """What brokers of either kind have in common: SCRAM users, lists and tokens, all in ZooKeeper."""
    return [
        f"broker.id={broker_id}",
        f"listeners=PLAINTEXT://127.0.0.1:{plain_port},SASL_PLAINTEXT://127.0.0.1:{sasl_port}",
        f"{PREFIX}.sasl.enabled.mechanisms=SCRAM-SHA-256",
        f"{PREFIX}.scram-sha-256.sasl.jaas.config={MODULE} required;",
        "delegation.token.secret.key=a key of the brokers",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:ANONYMOUS;User:alice",
        "offsets.topic.replication.factor=1",
        "group.initial.rebalance.delay.ms=0",
        "zookeeper.connection.timeout.ms=60000",
    ]


class Broker(OncelogProcess):
    """One of ours."""

    def __init__(self, directory: Path, secured: SecuredZooKeeper, chroot: str, broker_id: int = 1) -> None:
        self.sasl_port, port = free_port(), free_port()
        features = [
            "oncelog.transaction.version=0",
            "oncelog.eligible.leader.replicas.version=0",
        ]  # Kafka 3.9 has none.
        settings = [*broker_settings(broker_id, port, self.sasl_port), *secured.settings(chroot), *features]
        super().__init__(directory, settings, port)

    def command(self) -> list[str]:
        words = super().command()
        del words[words.index("--port") : words.index("--port") + 2]  # It would replace the listeners.
        return words


class Kafka(KafkaProcess):
    """Kafka 3.9, with the same settings but for the login, which is in a file."""

    def __init__(self, directory: Path, secured: SecuredZooKeeper, chroot: str) -> None:
        super().__init__(directory, library=KAFKA_3_9)
        self.sasl_port = free_port()
        self._jaas = secured.client_jaas
        self._lines = [
            *broker_settings(1, self.port, self.sasl_port),
            f"zookeeper.connect={secured.address}{chroot}",
            *secured.tls(),
            "zookeeper.set.acl=true",
            f"log.dirs={self.data_directory}",
        ]

    def java(self, *words: str, heap: str = "-Xmx1G") -> list[str]:
        return super().java(f"-Djava.security.auth.login.config={self._jaas}", *words, heap=heap)

    def prepare(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.properties_file.write_text("\n".join(self._lines) + "\n")


class Administrator:
    """Our commands, at a broker of either kind."""

    def __init__(self, broker: Broker | Kafka, directory: Path) -> None:
        self.run = Oncelog(broker.address)
        login = f'{MODULE} required username="alice" password="wonder";'
        lines = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-256", f"sasl.jaas.config={login}"]
        self._file = directory / "alice.properties"
        self._file.write_text("\n".join(lines) + "\n")
        self._as_alice = f"--bootstrap 127.0.0.1:{broker.sasl_port} --command-config {self._file}"

    def leave_znodes(self) -> None:
        """Leave one of each kind."""
        self.run("topic create orders --partitions 2")
        self.run("user add alice --mechanism SCRAM-SHA-256", text="wonder\n")
        self.run("quota set --user alice --producer-byte-rate 1MB")
        self.run("quota set --client app --producer-byte-rate 1MB")
        self.run("acl add User:bob read --topic orders")
        self.run("acl add User:bob read --topic ord --prefixed")
        self.run("config alter topic orders --set retention.ms=100000")
        self.run("config alter broker --default --set log.cleaner.backoff.ms=16000")
        self.run(f"token create {self._as_alice}")

    def check(self) -> None:
        """See what ``leave_znodes`` has left, of which the user is the one that can log in."""
        assert any("orders" in self.run(f"topic list {self._as_alice}") for _ in range(MOST_LOOKS))
        assert "retention.ms" in self.run("config describe topic orders")
        assert self.run("acl list").count("User:bob") == 2
        assert "alice" in self.run("quota list")
        assert len(self.run.json(f"token list {self._as_alice}")) == 1


def by_pattern(lists: Mapping[str, frozenset[tuple[int, str, str]]]) -> Mapping[str, frozenset[tuple[int, str, str]]]:
    """Lists of znodes whose names are numbers or random under one name each."""
    return {re.sub(r"tokens/[^/]+", "tokens/ID", re.sub(r"_\d{10}", "_N", path)): of for path, of in lists.items()}


def test_znodes_have_the_same_lists_as_those_of_kafka(secured: SecuredZooKeeper, tmp_path: Path) -> None:
    found = []
    for broker in (Broker(tmp_path / "ours", secured, "/ours"), Kafka(tmp_path / "kafka", secured, "/kafka")):
        with broker:
            administrator = Administrator(broker, tmp_path)
            administrator.leave_znodes()
            administrator.check()
            with secured.observer(as_user=True) as client:
                found.append(by_pattern(access_lists(client, f"/{broker.directory.name}")))
    ours, kafkas = found
    common = set(ours) & set(kafkas)
    assert {path: ours[path] for path in common} == {path: kafkas[path] for path in common}
    assert common >= {
        "/", "/brokers/ids/1", "/brokers/topics/orders/partitions/0/state", "/config/users/alice", "/config/brokers",
        "/config/clients/app", "/config/topics/orders", "/kafka-acl/Topic/orders", "/delegation_token/tokens/ID",
        "/kafka-acl-extended/prefixed/Topic/ord", "/controller", "/controller_epoch", "/consumers", "/cluster/id",
    }  # fmt: skip
    left = {path: of for path, of in ours.items() if path not in common}
    assert set(left.values()) <= {ours["/"]}, left


def test_brokers_of_both_kinds_work_with_what_the_other_has_left(secured: SecuredZooKeeper, tmp_path: Path) -> None:
    """One after the other: they are no members of one cluster at the same time."""
    for first, second in (("kafka", "ours"), ("ours", "kafka")):
        chroot = f"/{first}-first"
        kinds = {"ours": Broker, "kafka": Kafka}
        with kinds[first](tmp_path / f"{first}-1", secured, chroot) as broker:
            Administrator(broker, tmp_path).leave_znodes()
        with kinds[second](tmp_path / f"{second}-2", secured, chroot) as broker:
            administrator = Administrator(broker, tmp_path)
            administrator.check()
            administrator.run("topic create more")
            administrator.run("user remove alice")
            administrator.run("acl remove User:bob read --topic orders")


def test_protection_of_open_znodes_is_that_of_kafkas_migration(secured: SecuredZooKeeper, tmp_path: Path) -> None:
    with Kafka(tmp_path / "kafka", secured, "/migrated") as broker:
        Administrator(broker, tmp_path).leave_znodes()
    file = tmp_path / "tls.properties"
    file.write_text("\n".join(secured.tls()) + "\n")
    words = ["--zookeeper.connect", f"{secured.address}/migrated", "--zk-tls-config-file", str(file)]
    tool = ["java", "-Xmx256m", f"-Djava.security.auth.login.config={secured.client_jaas}", "-cp"]
    tool += [class_path(KAFKA_3_9), "kafka.admin.ZkSecurityMigrator", *words]
    ours = ["znodes", "PLACE", "--zookeeper", f"{secured.address}/migrated"]
    ours += [f"--set={each}" for each in (*secured.tls(), secured.login())]
    with secured.observer(as_user=True) as client:
        subprocess.run([*tool, "--zookeeper.acl", "unsecure"], check=True, capture_output=True, timeout=SECONDS)
        opened = [access_lists(client, "/migrated")]
        Oncelog("")([each.replace("PLACE", "protect") for each in ours])
        protected = [access_lists(client, "/migrated")]
        Oncelog("")([each.replace("PLACE", "unprotect") for each in ours])
        opened.append(access_lists(client, "/migrated"))
        subprocess.run([*tool, "--zookeeper.acl", "secure"], check=True, capture_output=True, timeout=SECONDS)
        protected.append(access_lists(client, "/migrated"))
    assert protected[0] == protected[1]
    assert opened[0] == opened[1]
    assert protected[0] != opened[0]


def test_transactions_go_on_while_a_broker_of_a_secured_cluster_is_killed(
    secured: SecuredZooKeeper, tmp_path: Path
) -> None:
    brokers = [Broker(tmp_path / str(number), secured, "/cluster", number) for number in (1, 2, 3)]
    with brokers[0], brokers[1], brokers[2]:
        bootstrap = ",".join(broker.address for broker in brokers)
        oncelog = Oncelog(bootstrap)
        oncelog("topic create orders --partitions 3 --replication-factor 3 --config min.insync.replicas=2")
        written = []
        timeouts = {"message.timeout.ms": 300_000, "transaction.timeout.ms": 300_000}
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t", **timeouts})
        producer.init_transactions(SECONDS)
        for number in range(RECORDS):
            if number == 10:
                brokers[0].kill()
            if number == 30:
                brokers[0].start()
            producer.begin_transaction()
            for partition in range(3):
                producer.produce("orders", f"{number}-{partition}".encode(), partition=partition)
                written.append(f"{number}-{partition}")
            producer.commit_transaction(SECONDS)
        assert sorted(read(bootstrap, len(written))) == sorted(written)
        for broker in brokers:
            log = (broker.directory / "stderr.log").read_text()
            assert "sesame" not in log
            assert "Traceback" not in log
        with secured.observer(as_user=False) as stranger:
            assert sorted(stranger.get_children("/cluster/brokers/ids")) == ["1", "2", "3"]
            for attempt in (
                lambda: stranger.get_children("/cluster/config/users"),
                lambda: stranger.create("/cluster/brokers/ids/9", b"", ephemeral=True),
                lambda: stranger.delete("/cluster/controller"),
            ):
                with pytest.raises(NoAuthError):
                    attempt()


def read(bootstrap: str, count: int) -> list[str]:
    """All committed records, and no more."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.subscribe(["orders"])
    found: list[str] = []
    while len(found) < count:
        message = consumer.poll(SECONDS)
        assert message is not None, f"{len(found)} records"
        if message.error() is None:
            found.append(message.value().decode())
    more = consumer.poll(2)
    consumer.close()
    assert more is None
    return found
