"""Each unmodified client does what its users do with it."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.broker_under_test import REPLICATION_FACTOR, TRANSACTION_VERSION
from tests.interop.drivers.aiokafka_client import AioKafka
from tests.interop.drivers.confluent import ConfluentKafka
from tests.interop.drivers.driver import TIMEOUT_SECONDS, Batch, Driver, TransactionalDriver
from tests.interop.drivers.kafka_python import KafkaPython
from tests.interop.drivers.oncelog_client import OncelogClient
from tests.interop.drivers.program import JavaClient, KafkaJs, Kcat
from tests.processes import BrokerProcess

TRANSACTIONAL: list[TransactionalDriver] = [
    ConfluentKafka(),
    AioKafka(),
    KafkaPython(),
    JavaClient("java-client-4"),
    JavaClient("java-client-3"),
    JavaClient("java-client-2"),
    KafkaJs(),
    OncelogClient("2" if TRANSACTION_VERSION == 2 else "auto"),
    OncelogClient("1"),
]
PLAIN: list[Driver] = [Kcat()]
CLIENTS: list[Driver] = [*TRANSACTIONAL, *PLAIN]

every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
every_transactional_client = pytest.mark.parametrize("client", TRANSACTIONAL, ids=lambda client: client.name)
Name = Callable[[str], str]


def values(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


@every_client
def test_creates_a_topic_produces_and_consumes(client: Driver, broker: BrokerProcess, name: Name) -> None:
    topic = name("topic")
    client.create_topic(broker.address, topic, 2)
    sent = values("record", 200)
    client.produce(broker.address, topic, sent)
    got = client.consume(broker.address, topic, len(sent))
    assert sorted(record.value for record in got) == sorted(sent)
    assert all(record.key == record.value for record in got)
    for partition in {record.partition for record in got}:
        offsets = [record.offset for record in got if record.partition == partition]
        assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize(
    ("client", "compression"),
    [(client, codec) for client in CLIENTS for codec in client.compressions if codec != "none"],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_produced_records_with_each_compression_are_read_back(
    client: Driver, compression: str, broker: BrokerProcess, name: Name
) -> None:
    topic = name("topic")
    client.create_topic(broker.address, topic, 2)
    sent = values("compressible " * 10, 100)
    client.produce(broker.address, topic, sent, compression=compression)
    assert sorted(r.value for r in client.consume(broker.address, topic, len(sent))) == sorted(sent)


def test_produce_without_keys_to_a_compacted_topic_fails_only_these_records(broker: BrokerProcess, name: Name) -> None:
    """KIP-467 as librdkafka understands it: the others were in the wrong batch, and could be sent again."""
    topic = name("compacted")
    admin = AdminClient({"bootstrap.servers": broker.address})
    wanted = NewTopic(topic, 1, REPLICATION_FACTOR, config={"cleanup.policy": "compact"})
    admin.create_topics([wanted])[topic].result(TIMEOUT_SECONDS)
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 500})
    outcomes: dict[int, int] = {}

    def deliver(error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert value is not None
        outcomes[int(value)] = 0 if error is None else error.code()

    for number in range(10):
        producer.produce(topic, str(number), key=None if number in (3, 7) else b"key", on_delivery=deliver)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    others = KafkaError._INVALID_DIFFERENT_RECORD
    assert outcomes == {n: KafkaError.INVALID_RECORD if n in (3, 7) else others for n in range(10)}


@every_client
def test_group_with_two_members_reads_every_record_once(client: Driver, broker: BrokerProcess, name: Name) -> None:
    topic, group = name("topic"), name("group")
    client.create_topic(broker.address, topic, 2)
    sent = values("record", 100)
    ConfluentKafka().produce(broker.address, topic, sent)
    if isinstance(client, Kcat):
        results = client.consume_with_two_members(broker.address, topic, group, len(sent))
        assert sorted(record.value for member in results for record in member) == sorted(sent)
        return
    first, second = client.consume_with_two_members(broker.address, topic, group, len(sent))
    assert first
    assert second
    assert not {record.partition for record in first} & {record.partition for record in second}
    assert sorted(record.value for record in first + second) == sorted(sent)


def test_group_of_kafkajs_shares_more_partitions_than_members(broker: BrokerProcess, name: Name) -> None:
    client, topic = KafkaJs(), name("topic")
    if lacking := client.lacking():
        pytest.fail(lacking)
    client.create_topic(broker.address, topic, 3)
    sent = values("record", 99)
    ConfluentKafka().produce(broker.address, topic, sent)
    members = client.consume_with_two_members(broker.address, topic, name("group"), len(sent))
    assert sorted(len({record.partition for record in member}) for member in members) == [1, 2]
    assert sorted(record.value for member in members for record in member) == sorted(sent)


@pytest.mark.smoke
@every_transactional_client
def test_commits_and_aborts_transactions(client: TransactionalDriver, broker: BrokerProcess, name: Name) -> None:
    topic = name("topic")
    client.create_topic(broker.address, topic, 2)
    batches = [
        Batch(values("first", 5), commit=True),
        Batch(values("aborted", 5), commit=False),
        Batch(values("last", 5), commit=True),
    ]
    client.transact(broker.address, topic, name("transactional-id"), batches)
    committed = client.consume(broker.address, topic, 10, read_committed=True)
    assert sorted(record.value for record in committed) == sorted(values("first", 5) + values("last", 5))
    everything = client.consume(broker.address, topic, 15)
    assert sorted(record.value for record in everything) == sorted(v for batch in batches for v in batch.values)


@every_transactional_client
def test_producer_of_the_same_transactional_id_continues_where_the_former_ended(
    client: TransactionalDriver, broker: BrokerProcess, name: Name
) -> None:
    topic, transactional_id = name("topic"), name("transactional-id")
    client.create_topic(broker.address, topic, 1)
    for generation in range(3):
        batch = Batch(values(f"generation-{generation}", 3), commit=True)
        client.transact(broker.address, topic, transactional_id, [batch])
    got = client.consume(broker.address, topic, 9, read_committed=True)
    assert [record.value for record in got] == [f"generation-{g}-{n}" for g in range(3) for n in range(3)]


@every_transactional_client
def test_consume_transform_produce(client: TransactionalDriver, broker: BrokerProcess, name: Name) -> None:
    source, target, group, transactional_id = name("source"), name("target"), name("group"), name("id")
    client.create_topic(broker.address, source, 2)
    client.create_topic(broker.address, target, 2)
    sent = values("purchase", 20)
    client.produce(broker.address, source, sent)
    client.consume_transform_produce(broker.address, source, target, group, transactional_id, len(sent))
    # The offsets went with the outputs: a second run of the same group finds only what is new.
    client.produce(broker.address, source, ["late"])
    client.consume_transform_produce(broker.address, source, target, group, transactional_id, 1)
    got = client.consume(broker.address, target, len(sent) + 1, read_committed=True)
    assert sorted(record.value for record in got) == sorted(value.upper() for value in [*sent, "late"])


@pytest.mark.smoke
def test_kcat_reads_what_librdkafka_wrote(broker: BrokerProcess, name: Name) -> None:
    topic = name("topic")
    kcat = Kcat()
    kcat.create_topic(broker.address, topic, 2)
    kcat.produce(broker.address, topic, values("record", 50))
    got = kcat.consume(broker.address, topic, 50, read_committed=True)
    assert sorted(record.value for record in got) == sorted(values("record", 50))
