"""Apache Kafka's own administrative tools against our broker."""

import re
from collections.abc import Callable

import pytest

from tests.interop.drivers.confluent import ConfluentKafka
from tests.interop.drivers.driver import Batch
from tests.interop.drivers.kafka_tools import KafkaTools
from tests.interop.drivers.program import ProgramFailed
from tests.processes import BrokerProcess

Name = Callable[[str], str]


def test_topic_command_creates_alters_and_deletes_a_topic(
    broker: BrokerProcess, name: Name, kafka_tools: KafkaTools
) -> None:
    topic = name("topic")
    kafka_tools(
        broker.address,
        "TopicCommand",
        "--create",
        "--topic",
        topic,
        "--partitions",
        "3",
        "--config",
        "retention.ms=60000",
    )
    assert topic in kafka_tools(broker.address, "TopicCommand", "--list").split()
    kafka_tools(broker.address, "TopicCommand", "--alter", "--topic", topic, "--partitions", "5")
    described = kafka_tools(broker.address, "TopicCommand", "--describe", "--topic", topic)
    assert "PartitionCount: 5" in described
    assert "retention.ms=60000" in described
    kafka_tools(broker.address, "TopicCommand", "--delete", "--topic", topic)
    assert topic not in kafka_tools(broker.address, "TopicCommand", "--list").split()


def test_consumer_group_command_describes_resets_and_deletes_a_group(
    broker: BrokerProcess, name: Name, kafka_tools: KafkaTools
) -> None:
    client, topic, group = ConfluentKafka(), name("topic"), name("group")
    client.create_topic(broker.address, topic, 2)
    client.produce(broker.address, topic, [str(number) for number in range(20)])
    client.consume_with_two_members(broker.address, topic, group, 20)
    assert group in kafka_tools(broker.address, "consumer.group.ConsumerGroupCommand", "--list").split()
    described = kafka_tools(broker.address, "consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    lags = [line.split()[5] for line in described.splitlines() if line.startswith(group)]
    assert lags == ["0", "0"], described
    to_earliest = ["--reset-offsets", "--to-earliest", "--execute", "--topic", topic]
    kafka_tools(broker.address, "consumer.group.ConsumerGroupCommand", "--group", group, *to_earliest)
    described = kafka_tools(broker.address, "consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    assert sum(int(line.split()[5]) for line in described.splitlines() if line.startswith(group)) == 20
    kafka_tools(broker.address, "consumer.group.ConsumerGroupCommand", "--delete", "--group", group)
    assert group not in kafka_tools(broker.address, "consumer.group.ConsumerGroupCommand", "--list").split()


def test_transactions_command_lists_and_describes_an_aborted_transaction(
    broker: BrokerProcess, name: Name, kafka_tools: KafkaTools
) -> None:
    client, topic, transactional_id = ConfluentKafka(), name("topic"), name("id")
    client.create_topic(broker.address, topic, 1)
    client.transact(
        broker.address, topic, transactional_id, [Batch(["one"], commit=True), Batch(["two"], commit=False)]
    )
    listed = kafka_tools(broker.address, "TransactionsCommand", "list")
    assert [line.split()[3] for line in listed.splitlines() if line.startswith(transactional_id)] == ["CompleteAbort"]
    described = kafka_tools(broker.address, "TransactionsCommand", "describe", "--transactional-id", transactional_id)
    assert "CompleteAbort" in described
    producers = kafka_tools(
        broker.address, "TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0"
    )
    assert len(producers.splitlines()) == 2, producers


@pytest.mark.smoke
def test_offsets_and_records(broker: BrokerProcess, name: Name, kafka_tools: KafkaTools) -> None:
    client, topic = ConfluentKafka(), name("topic")
    client.create_topic(broker.address, topic, 1)
    client.produce(broker.address, topic, [str(number) for number in range(10)])
    assert kafka_tools(broker.address, "GetOffsetShell", "--topic", topic).split() == [f"{topic}:0:10"]
    assert kafka_tools(broker.address, "GetOffsetShell", "--topic", topic, "--time", "earliest").split() == [
        f"{topic}:0:0"
    ]
    assert topic in kafka_tools(broker.address, "LogDirsCommand", "--describe", "--topic-list", topic)


def test_feature_command_moves_the_transaction_version(own_broker: BrokerProcess, kafka_tools: KafkaTools) -> None:
    def feature(*words: str) -> str:
        return kafka_tools(own_broker.address, "FeatureCommand", *words)

    def finalized() -> str:
        (line,) = (line for line in feature("describe").splitlines() if "transaction.version" in line)
        fields: dict[str, str] = dict(re.findall(r"(\w+): (\S+)", line))
        assert (fields["SupportedMinVersion"], fields["SupportedMaxVersion"]) == ("0", "2")
        assert int(fields["Epoch"]) >= 0
        return fields["FinalizedVersionLevel"]

    assert finalized() == "2"
    dry = feature("downgrade", "--feature", "transaction.version=1", "--dry-run")
    assert "transaction.version can be downgraded to 1." in dry
    with pytest.raises(ProgramFailed, match="1 out of 1 operation"):
        feature("upgrade", "--feature", "transaction.version=1")
    assert finalized() == "2"
    assert "was downgraded to 1." in feature("downgrade", "--feature", "transaction.version=1")
    assert finalized() == "1"
    assert "was disabled." in feature("disable", "--feature", "transaction.version", "--unsafe")
    assert finalized() == "0"
    assert "was upgraded to 2." in feature("upgrade", "--feature", "transaction.version=2")
    assert finalized() == "2"
