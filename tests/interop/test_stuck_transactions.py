"""Transactions that nobody ends, found and ended by Apache Kafka's tool and by ours, on our broker and on Kafka."""

import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest
from confluent_kafka import Producer

from oncelog.protocol.topic_partition import TopicPartition
from tests.command import Oncelog
from tests.interop.broker_under_test import BROKER
from tests.interop.drivers.confluent import ConfluentKafka
from tests.interop.drivers.driver import TIMEOUT_SECONDS
from tests.interop.drivers.kafka_tools import KafkaTools
from tests.interop.drivers.transaction_tools import Hanging, OncelogTxn, TransactionsCommand, TransactionTool
from tests.interop.stuck_transactions import WITHOUT_VERIFICATION, held_back, write_hanging_transaction
from tests.processes import BrokerProcess, ClusterProcess, KafkaProcess, OncelogProcess

Name = Callable[[str], str]
Kind: TypeAlias = type[OncelogProcess] | type[ClusterProcess] | type[KafkaProcess]
CARELESS: list[Kind] = [ClusterProcess] if BROKER == "cluster" else [OncelogProcess, KafkaProcess]


@pytest.fixture(params=["TransactionsCommand", "oncelog-txn"])
def tool(request: pytest.FixtureRequest, kafka_tools: KafkaTools) -> TransactionTool:
    return TransactionsCommand(kafka_tools) if request.param == "TransactionsCommand" else OncelogTxn()


@pytest.fixture(scope="module", params=CARELESS, ids=lambda kind: kind.name)
def careless(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that believes its clients, on which transactions can hang."""
    kind: Kind = request.param
    with kind(tmp_path_factory.mktemp("careless"), settings=[WITHOUT_VERIFICATION]) as broker:
        yield broker


def test_hanging_transaction_is_found_and_aborted(tool: TransactionTool, careless: BrokerProcess, name: Name) -> None:
    address, partition = careless.address, TopicPartition(name("topic"), 0)
    ConfluentKafka().create_topic(address, partition.topic, 1)
    ConfluentKafka().produce(address, partition.topic, ["before"])
    now_ms = time.time_ns() // 1_000_000
    producer_id = write_hanging_transaction(address, partition, name("hanging"), now_ms)
    assert held_back(careless, partition) == 1
    assert tool.find_hanging(address, partition.topic) == [Hanging(partition, producer_id, 1)]
    assert tool.open_since(address, partition) == {producer_id: 1}
    tool.abort(address, partition, 1)
    assert held_back(careless, partition) == 0
    assert tool.find_hanging(address, partition.topic) == []
    assert tool.open_since(address, partition) == {}
    ConfluentKafka().produce(address, partition.topic, ["after"])
    seen = ConfluentKafka().consume(address, partition.topic, 2, read_committed=True)
    assert [record.value for record in seen] == ["before", "after"]


def test_terminated_transaction_ends_on_all_of_its_partitions(
    tool: TransactionTool, careless: BrokerProcess, name: Name
) -> None:
    address, topic, transactional_id = careless.address, name("topic"), name("left-open")
    ConfluentKafka().create_topic(address, topic, 2)
    producer = Producer({"bootstrap.servers": address, "transactional.id": transactional_id})
    producer.init_transactions(TIMEOUT_SECONDS)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(topic, "left open", partition=partition)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    both = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert tool.states(address)[transactional_id] == "Ongoing"
    assert tool.partitions_of(address, transactional_id) == both
    assert all(tool.open_since(address, partition) for partition in both)
    assert tool.find_hanging(address, topic) == [], "its coordinator has it"
    tool.force_terminate(address, transactional_id)
    assert tool.states(address)[transactional_id] in ("PrepareAbort", "CompleteAbort", "Empty")
    successor = Producer({"bootstrap.servers": address, "transactional.id": transactional_id})
    successor.init_transactions(TIMEOUT_SECONDS)  # Waits until the aborted one is complete.
    assert [held_back(careless, partition) for partition in sorted(both)] == [0, 0]


def test_our_tool_aborts_a_transaction_that_is_well_through_its_coordinator(
    careless: BrokerProcess, name: Name
) -> None:
    """Kafka's would write a marker to the one partition, and the producer could commit the rest."""
    address, topic, transactional_id = careless.address, name("topic"), name("well")
    ConfluentKafka().create_topic(address, topic, 2)
    producer = Producer({"bootstrap.servers": address, "transactional.id": transactional_id})
    producer.init_transactions(TIMEOUT_SECONDS)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(topic, "well", partition=partition)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    done = Oncelog(address).json(f"txn abort --topic {topic} --partition 0 --start-offset 0")
    assert done["agreed"], done
    assert [held_back(careless, TopicPartition(topic, partition)) for partition in (0, 1)] == [0, 0]
    log = Oncelog(address).json(f"txn log {transactional_id}")
    assert "Ongoing" in {row["state"] for row in log["records"]}
    assert log["records"][-1]["state"] in ("CompleteAbort", "Empty")
