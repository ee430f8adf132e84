"""Rights that are taken away, or sessions that end, while a transaction is open: nothing is torn, and nothing hangs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.command import Oncelog
from tests.processes import OncelogProcess, free_port

SECONDS = 30
SESSION_MS = 1_500
FATAL_OR_DENIED = "AUTHORIZATION_FAILED|_FATAL"
"""librdkafka names the refusal in the first call that meets it, and a fatal error in all that follow."""
ADMIN = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=admin\nsasl.password=secret\n"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OncelogProcess]:
    port = free_port()
    settings = [
        f"listeners=SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms=PLAIN",
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_admin="secret" user_alice="wonder";',
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:admin",
        f"connections.max.reauth.ms={SESSION_MS}",
    ]
    with OncelogProcess(tmp_path_factory.mktemp("broker"), settings, port) as process:
        yield process


@pytest.fixture(scope="module")
def admin(broker: OncelogProcess) -> Oncelog:
    login = broker.directory / "admin.properties"
    login.write_text(ADMIN)
    oncelog = Oncelog(broker.address)
    oncelog.environment["ONCELOG_COMMAND_CONFIG"] = str(login)
    return oncelog


def client(broker: OncelogProcess, user: str, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


def committed(broker: OncelogProcess, topic: str) -> list[str]:
    """Return what a reader of committed records sees, up to the end of the topic's partitions."""
    consumer = Consumer(
        client(broker, "admin", "secret") | {"group.id": "reader", "enable.partition.eof": "true"}  # type: ignore[arg-type]
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    found, ends = [], 0
    while ends < 2:
        message = consumer.poll(SECONDS)
        assert isinstance(message, Message), "the last stable offset stands still"
        if message.error() is not None:
            ends += 1
        else:
            found.append(str(message.value(), "ascii"))
    consumer.close()
    return sorted(found)


def set_up(broker: OncelogProcess, admin: Oncelog, name: str) -> Producer:
    """Return a producer that has all rights, for two topics."""
    topics = [f"{name}-a", f"{name}-b"]
    creator = AdminClient(client(broker, "admin", "secret"))
    for future in creator.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
        future.result(SECONDS)
    for topic in topics:
        admin(f"acl add User:alice write describe --topic {topic}")
    admin(f"acl add User:alice write describe --transactional-id {name}")
    admin(f"acl add User:alice read --group {name}")
    producer = Producer(
        client(broker, "alice", "wonder") | {"transactional.id": name, "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(SECONDS)
    return producer


def write(producer: Producer, name: str, value: str) -> None:
    for topic in (f"{name}-a", f"{name}-b"):
        for partition in range(2):
            producer.produce(topic, value.encode(), partition=partition)
    producer.flush(SECONDS)


def write_and_commit(producer: Producer, name: str, value: str) -> None:
    write(producer, name, value)
    producer.commit_transaction(SECONDS)


@pytest.mark.parametrize(
    ("right", "can_be_aborted"),
    [("--transactional-id {}", False), ("--topic {}-b", True)],
    ids=["transactional id", "topic"],
)
def test_right_that_is_taken_away_in_a_transaction_tears_nothing(
    broker: OncelogProcess, admin: Oncelog, right: str, can_be_aborted: bool
) -> None:
    name = f"taken-{'b' if can_be_aborted else 'x'}"
    producer = set_up(broker, admin, name)
    producer.begin_transaction()
    write_and_commit(producer, name, "first")
    producer.begin_transaction()
    write(producer, name, "torn?")
    admin(f"acl remove User:alice {right.format(name)}")
    with pytest.raises(KafkaException, match=FATAL_OR_DENIED):
        write_and_commit(producer, name, "more")
    if can_be_aborted:
        producer.abort_transaction(SECONDS)
    else:
        with pytest.raises(KafkaException, match=FATAL_OR_DENIED):
            producer.abort_transaction(SECONDS)
    admin(f"acl add User:alice write describe {right.format(name)}")
    settings = client(broker, "alice", "wonder") | {"transactional.id": name}
    successor = Producer(settings)
    successor.init_transactions(SECONDS)
    successor.begin_transaction()
    write_and_commit(successor, name, "last")
    for topic in (f"{name}-a", f"{name}-b"):
        assert committed(broker, topic) == ["first"] * 2 + ["last"] * 2


def test_group_that_is_taken_away_in_a_transaction_keeps_its_offset(broker: OncelogProcess, admin: Oncelog) -> None:
    name = "taken-g"
    producer = set_up(broker, admin, name)
    settings = client(broker, "alice", "wonder") | {"group.id": name}
    for topic in (f"{name}-a", f"{name}-b"):
        admin(f"acl add User:alice read --topic {topic}")
    consumer = Consumer(settings)  # type: ignore[arg-type]
    consumer.subscribe([f"{name}-a"])
    consumer.poll(1)
    for number in range(2):
        producer.begin_transaction()
        write(producer, name, str(number))
        position = TopicPartition(f"{name}-a", 0, number + 1)
        if number:
            admin(f"acl remove User:alice --group {name}")
            with pytest.raises(KafkaException) as refused:
                producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), SECONDS)
            assert refused.value.args[0].txn_requires_abort(), refused.value
            producer.abort_transaction(SECONDS)
        else:
            producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), SECONDS)
            producer.commit_transaction(SECONDS)
    consumer.close()
    offsets = json.loads(admin(f"group describe {name} --format json"))
    found = [row["committed"] for row in offsets["partitions"] if row["partition"] == 0]
    assert found == [1], offsets
    assert committed(broker, f"{name}-b") == ["0"] * 2


def test_sessions_that_end_in_a_transaction_tear_nothing(
    broker: OncelogProcess, admin: Oncelog, tmp_path: Path
) -> None:
    name = "expired"
    producer = set_up(broker, admin, name)
    for number in range(2):
        producer.begin_transaction()
        write(producer, name, f"{number} begins")
        for _ in range(2):
            producer.poll(SESSION_MS / 1_500)
        write(producer, name, f"{number} ends")
        producer.commit_transaction(SECONDS)
    expected = sorted(f"{number} {part}" for number in range(2) for part in ("begins", "ends") for _ in range(2))
    for topic in (f"{name}-a", f"{name}-b"):
        assert committed(broker, topic) == expected
