"""Apache Kafka's own administrative tools against our broker."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.drivers.confluent import ConfluentKafka
from tests.interop.drivers.driver import Batch
from tests.interop.drivers.program import ProgramFailed, run
from tests.processes import KAFKA_4, BrokerProcess, class_path

Name = Callable[[str], str]
_PACKAGE = "org.apache.kafka.tools."


def tool(broker: BrokerProcess, name: str, *words: str) -> str:
    java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", class_path(KAFKA_4), _PACKAGE + name]
    return run([*java, "--bootstrap-server", broker.address, *words])


def test_topics(broker: BrokerProcess, name: Name) -> None:
    topic = name("topic")
    tool(broker, "TopicCommand", "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=60000")
    assert topic in tool(broker, "TopicCommand", "--list").split()
    tool(broker, "TopicCommand", "--alter", "--topic", topic, "--partitions", "5")
    described = tool(broker, "TopicCommand", "--describe", "--topic", topic)
    assert "PartitionCount: 5" in described
    assert "retention.ms=60000" in described
    tool(broker, "TopicCommand", "--delete", "--topic", topic)
    assert topic not in tool(broker, "TopicCommand", "--list").split()


def test_consumer_groups(broker: BrokerProcess, name: Name) -> None:
    client, topic, group = ConfluentKafka(), name("topic"), name("group")
    client.create_topic(broker.address, topic, 2)
    client.produce(broker.address, topic, [str(number) for number in range(20)])
    client.consume_with_two_members(broker.address, topic, group, 20)
    assert group in tool(broker, "consumer.group.ConsumerGroupCommand", "--list").split()
    described = tool(broker, "consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    lags = [line.split()[5] for line in described.splitlines() if line.startswith(group)]
    assert lags == ["0", "0"], described
    to_earliest = ["--reset-offsets", "--to-earliest", "--execute", "--topic", topic]
    tool(broker, "consumer.group.ConsumerGroupCommand", "--group", group, *to_earliest)
    described = tool(broker, "consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    assert sum(int(line.split()[5]) for line in described.splitlines() if line.startswith(group)) == 20
    tool(broker, "consumer.group.ConsumerGroupCommand", "--delete", "--group", group)
    assert group not in tool(broker, "consumer.group.ConsumerGroupCommand", "--list").split()


def test_transactions(broker: BrokerProcess, name: Name) -> None:
    client, topic, transactional_id = ConfluentKafka(), name("topic"), name("id")
    client.create_topic(broker.address, topic, 1)
    client.transact(
        broker.address, topic, transactional_id, [Batch(["one"], commit=True), Batch(["two"], commit=False)]
    )
    listed = tool(broker, "TransactionsCommand", "list")
    assert [line.split()[3] for line in listed.splitlines() if line.startswith(transactional_id)] == ["CompleteAbort"]
    described = tool(broker, "TransactionsCommand", "describe", "--transactional-id", transactional_id)
    assert "CompleteAbort" in described
    producers = tool(broker, "TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0")
    assert len(producers.splitlines()) == 2, producers


@pytest.mark.smoke
def test_offsets_and_records(broker: BrokerProcess, name: Name) -> None:
    client, topic = ConfluentKafka(), name("topic")
    client.create_topic(broker.address, topic, 1)
    client.produce(broker.address, topic, [str(number) for number in range(10)])
    assert tool(broker, "GetOffsetShell", "--topic", topic).split() == [f"{topic}:0:10"]
    assert tool(broker, "GetOffsetShell", "--topic", topic, "--time", "earliest").split() == [f"{topic}:0:0"]
    assert topic in tool(broker, "LogDirsCommand", "--describe", "--topic-list", topic)


@pytest.fixture
def own_broker(broker: BrokerProcess, tmp_path: Path) -> Iterator[BrokerProcess]:
    """Of the kind under test, for what would change the cluster under other tests."""
    with type(broker)(tmp_path) as process:
        yield process


def test_features(own_broker: BrokerProcess) -> None:
    def feature(*words: str) -> str:
        return tool(own_broker, "FeatureCommand", *words)

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
