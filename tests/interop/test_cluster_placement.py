"""Where the data of a cluster under test lies: on three brokers, whoever created the topic, and led by each of them."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from oncelog.clients.admin.admin import Admin
from oncelog.clients.admin.topics import TopicDescription
from tests.interop.broker_under_test import needs_cluster
from tests.interop.drivers.confluent import ConfluentKafka
from tests.interop.drivers.driver import Batch, Driver
from tests.interop.test_clients import CLIENTS
from tests.processes import LIMIT_SECONDS, BrokerProcess

Name = Callable[[str], str]
pytestmark = needs_cluster
BROKERS = [1, 2, 3]
PARTITIONS = 6
BY_DEFAULT = 2
"""Partitions of a topic that is created by asking for it, as kcat does."""


def described(address: str, topics: Sequence[str]) -> list[TopicDescription]:
    async def ask() -> list[TopicDescription]:
        async with Admin(address, rng=Random(1)) as admin:
            found = await admin.describe_topics(topics)
        topic_descriptions = [found[topic] for topic in topics]
        assert all(isinstance(each, TopicDescription) for each in topic_descriptions), found
        return [each for each in topic_descriptions if isinstance(each, TopicDescription)]

    return asyncio.run(ask())


def assert_on_all_brokers(topic: TopicDescription) -> None:
    assert [sorted(partition.replicas) for partition in topic.partitions] == [BROKERS] * len(topic.partitions)
    assert [sorted(partition.isr) for partition in topic.partitions] == [BROKERS] * len(topic.partitions)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_topics_of_every_client_are_on_all_brokers(client: Driver, broker: BrokerProcess, name: Name) -> None:
    topic = name("topic")
    client.create_topic(broker.address, topic, PARTITIONS)
    (found,) = described(broker.address, [topic])
    assert len(found.partitions) == (BY_DEFAULT if client.name == "kcat" else PARTITIONS)
    assert_on_all_brokers(found)
    leaders = {partition.leader for partition in found.partitions}
    assert leaders <= set(BROKERS)
    assert len(leaders) == min(len(BROKERS), len(found.partitions))


@pytest.mark.smoke
def test_coordinators_are_on_all_brokers(broker: BrokerProcess, name: Name) -> None:
    topic, client = name("topic"), ConfluentKafka()
    client.create_topic(broker.address, topic, 2)
    client.transact(broker.address, topic, name("id"), [Batch(["one"], commit=True)])
    client.consume_with_two_members(broker.address, topic, name("group"), 1)
    for internal in described(broker.address, ["__transaction_state", "__consumer_offsets"]):
        assert_on_all_brokers(internal)
        assert {partition.leader for partition in internal.partitions} == set(BROKERS)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": broker.address})
    settings = admin.describe_configs([resource])[resource].result(LIMIT_SECONDS)
    assert settings["min.insync.replicas"].value == "2"
