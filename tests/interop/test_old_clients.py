"""Clients from before Kafka 0.11 beside a transactional one of today, on one topic, before and after compaction."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.interop.broker_under_test import BROKER, REPLICATION_FACTOR, broker_process
from tests.interop.drivers.confluent import ConfluentKafka
from tests.interop.drivers.deadline import Deadline
from tests.interop.drivers.driver import TIMEOUT_SECONDS, Batch
from tests.interop.drivers.old_clients import OldClient, OldJavaClient, OldKafkaPython, OldLibrdkafka
from tests.processes import BrokerProcess, OncelogProcess

pytestmark = pytest.mark.skipif(
    BROKER.startswith("kafka"), reason="Kafka 4 has no old clients, and Kafka 3 shows them aborted records"
)

CLIENTS: list[OldClient] = [
    OldKafkaPython(0, 9),
    OldKafkaPython(0, 10, 0),
    OldKafkaPython(0, 10, 2),
    OldLibrdkafka(),
    OldJavaClient(),
]
Name = Callable[[str], str]
MODERN = ConfluentKafka()
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001"}

every_old_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


def create(address: str, topic: str, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    new = NewTopic(topic, 1, REPLICATION_FACTOR, config=config or {})
    admin.create_topics([new])[topic].result(TIMEOUT_SECONDS)


def let_segments_roll(address: str, topic: str) -> None:
    """The cleaner leaves the active segment alone."""
    change = ConfigEntry("segment.ms", "500", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": address})
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_SECONDS)


@every_old_client
def test_old_client_works_beside_a_transactional_one(client: OldClient, broker: BrokerProcess, name: Name) -> None:
    address, topic, group = broker.address, name("topic"), name("group")
    create(address, topic)
    committed = [f"committed-{number}" for number in range(20)]
    aborted = [f"aborted-{number}" for number in range(20)]
    MODERN.transact(address, topic, name("id"), [Batch(committed, True), Batch(aborted, False)])
    own = []
    for compression in client.compressions:
        values = [f"{compression}-{number}" for number in range(100)]
        client.produce(address, topic, values, compression=compression)
        own += values
    open_producer = Producer({"bootstrap.servers": address, "transactional.id": name("open")})
    open_producer.init_transactions(TIMEOUT_SECONDS)
    open_producer.begin_transaction()
    open_producer.produce(topic, key="open", value="open")
    assert open_producer.flush(TIMEOUT_SECONDS) == 0

    seen = client.consume(address, topic, group, len(committed) + len(own))
    assert [record.value for record in seen] == committed + own
    assert [record.key for record in seen] == committed + own
    modern = MODERN.consume(address, topic, len(seen), read_committed=True)
    assert modern == seen  # Offsets, too.

    open_producer.abort_transaction(TIMEOUT_SECONDS)
    MODERN.transact(address, topic, name("id"), [Batch(["last"], True)])
    assert [record.value for record in client.consume(address, topic, group, 1)] == ["last"]


@every_old_client
def test_old_client_reads_what_compaction_has_left(client: OldClient, tmp_path: Path, name: Name) -> None:
    """At the end there are ranges that hold only markers, where Kafka 3 leaves such a consumer stuck."""
    topic, group = name("topic"), name("group")
    with broker_process(tmp_path, ["log.cleaner.backoff.ms=100"]) as broker:
        address = broker.address
        create(address, topic, COMPACTED)
        for number in range(30):
            values = [f"key-{key}" for key in range(10)]
            MODERN.transact(address, topic, name("id"), [Batch(values, number % 3 != 1)])
        client.produce(address, topic, ["own-1", "own-2"], compression="gzip")
        assert len(client.consume(address, topic, name("early"), 202)) == 202
        let_segments_roll(address, topic)
        deadline = Deadline()
        while True:
            deadline.check("the cleaning")
            # A new batch rolls the segment by its timestamp, which messages of format 0 do not have.
            MODERN.produce(address, topic, ["filler"])
            latest = MODERN.consume(address, topic, 13, read_committed=True)
            if [record.offset for record in latest[:10]] != list(range(10)):
                break
        seen = client.consume(address, topic, group, 13)[:13]
        assert {record.value for record in seen} == {*(f"key-{key}" for key in range(10)), "own-1", "own-2", "filler"}
        assert seen[:-1] == latest[:-1]  # The last filler may be cleaned meanwhile.


@every_old_client
def test_old_client_goes_on_behind_a_range_of_markers(client: OldClient, tmp_path: Path, name: Name) -> None:
    topic, group = name("topic"), name("group")
    with OncelogProcess(tmp_path) as broker:
        create(broker.address, topic)
        batches = [Batch([f"aborted-{number}"], False) for number in range(200)]
        MODERN.transact(broker.address, topic, name("id"), batches)
        MODERN.transact(broker.address, topic, name("id"), [Batch(["behind"], True)])
        assert [record.value for record in client.consume(broker.address, topic, group, 1)] == ["behind"]
