"""Kafka's own kafka-reassign-partitions on a cluster: replicas move as slowly as requested, and the throttle ends."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient, ConfigResource
from confluent_kafka.cimpl import NewTopic

from tests.interop.broker_under_test import needs_cluster
from tests.interop.drivers.confluent import ConfluentKafka
from tests.interop.drivers.deadline import Deadline
from tests.interop.drivers.kafka_tools import KafkaTools
from tests.processes import LIMIT_SECONDS, BrokerProcess

Name = Callable[[str], str]
pytestmark = needs_cluster
TOOL = "reassign.ReassignPartitionsCommand"
RECORDS, RECORD_BYTES = 800, 10_000
BYTES_A_SECOND = 1_000_000
LEAST_SECONDS = 6.0
"""Eight megabytes take nine, with what the tool does besides; without a throttle all of it took three."""


def throttles(address: str, topic: str) -> list[str | None]:
    """The settings of throttles that the topic and a broker have."""
    admin = AdminClient({"bootstrap.servers": address})
    of_topic = ConfigResource(ConfigResource.Type.TOPIC, topic)
    of_broker = ConfigResource(ConfigResource.Type.BROKER, "3")
    found = {}
    for resource in (of_topic, of_broker):
        found.update(admin.describe_configs([resource])[resource].result(LIMIT_SECONDS))
    return [entry.value for name, entry in found.items() if "throttled" in name and not entry.is_default]


def test_replicas_move_at_the_rate_of_the_throttle(
    broker: BrokerProcess, name: Name, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    client, topic = ConfluentKafka(), name("topic")
    new_topic = NewTopic(topic, 1, replica_assignment=[[1, 2]])
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([new_topic])[topic].result(LIMIT_SECONDS)
    values = [f"{number:0{RECORD_BYTES}}" for number in range(RECORDS)]
    client.produce(broker.address, topic, values)
    plan = tmp_path / "plan.json"
    partition = {"topic": topic, "partition": 0, "replicas": [3, 2], "log_dirs": ["any", "any"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    words = ["--reassignment-json-file", str(plan)]

    began = time.monotonic()  # noqa: TID251
    kafka_tools(broker.address, TOOL, *words, "--execute", "--throttle", str(BYTES_A_SECOND))
    assert str(BYTES_A_SECOND) in throttles(broker.address, topic)
    deadline = Deadline()
    while "is completed" not in (said := kafka_tools(broker.address, TOOL, *words, "--verify")):
        deadline.check(f"the replica has moved: {said}")
    assert time.monotonic() - began >= LEAST_SECONDS  # noqa: TID251

    while throttles(broker.address, topic):  # Each broker hears of it in its own time.
        deadline.check("the throttle is gone")
    described = kafka_tools(broker.address, "TopicCommand", "--describe", "--topic", topic)
    assert "Replicas: 3,2" in described, described
    assert {record.value for record in client.consume(broker.address, topic, RECORDS)} == set(values)
