"""``Admin`` against a broker process, each of its methods. ``INTEROP_BROKER=kafka`` plays the same on Apache Kafka."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from uuid import UUID

import pytest

from oncelog.clients.admin.admin import Admin
from oncelog.clients.admin.configs import ConfigChange, ConfigEntry, Operation, Resource, ResourceType
from oncelog.clients.admin.groups import MemberToRemove
from oncelog.clients.admin.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from oncelog.clients.admin.topics import NewTopic, TopicDescription
from oncelog.clients.admin.transaction_abort import WhichTransaction
from oncelog.clients.admin.txn_markers import AbortMarker
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerRefused, Refusal
from oncelog.protocol.config_source import ConfigSource
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from oncelog.protocol.topic_partition import TopicPartition
from tests.command import Oncelog
from tests.processes import BrokerProcess, KafkaProcess, OncelogProcess
from tests.scenarios.scripted_producer import ScriptedProducer, ok
from tests.simulation.requests import RECORD_TIMESTAMP
from tests.simulation.wire_client import WireClient

IS_KAFKA = os.environ.get("INTEROP_BROKER") == "kafka"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    kind = KafkaProcess if IS_KAFKA else OncelogProcess
    with kind(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture
async def admin(broker: BrokerProcess) -> AsyncIterator[Admin]:
    async with Admin(broker.address, rng=Random(1)) as admin:
        yield admin


@pytest.fixture
async def topic(admin: Admin, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions, named like the test."""
    name: str = request.node.name
    assert await admin.create_topics([NewTopic(name=name, partitions=2)]) == {name: None}
    return name


@asynccontextmanager
async def made_producer(broker: BrokerProcess, transactional_id: str | None = None) -> AsyncIterator[ScriptedProducer]:
    port = int(broker.address.rpartition(":")[2])
    producer = ScriptedProducer(lambda: WireClient.connect(port), transactional_id, timeout_ms=60_000)
    ok(await producer.init())
    yield producer
    producer.disconnect()


def described(response: TopicDescription | Refusal) -> TopicDescription:
    assert isinstance(response, TopicDescription), response
    return response


def one(entries: list[ConfigEntry] | Refusal) -> ConfigEntry:
    assert isinstance(entries, list), entries
    (entry,) = entries
    return entry


async def test_admin_with_an_address_alone_connects(broker: BrokerProcess) -> None:
    async with Admin(broker.address) as admin:
        assert (await admin.describe_cluster()).brokers


async def test_admin_with_a_cluster_leaves_it_to_its_owner_to_close(broker: BrokerProcess) -> None:
    async with Cluster(parse_bootstrap(broker.address), rng=Random(1)) as cluster:
        async with Admin(cluster) as admin:
            await admin.list_topics()
        assert (await cluster.connection_to_any()).is_open


async def test_describe_cluster_returns_brokers_and_controller(admin: Admin, broker: BrokerProcess) -> None:
    cluster = await admin.describe_cluster()
    (only,) = cluster.brokers
    assert f"{only.host}:{only.port}".replace("localhost", "127.0.0.1") == broker.address
    assert (only.broker_id, cluster.controller_id, only.is_fenced) == (1, 1, False)
    assert cluster.cluster_id
    features = {each.feature: each for each in (await admin.describe_features()).features}
    assert features["transaction.version"].finalized == 2
    assert await admin.update_features({}, validate_only=True) == {}


async def test_topics_are_created_listed_grown_and_deleted(admin: Admin, topic: str) -> None:
    assert topic in [each.name for each in await admin.list_topics()]
    responses = await admin.describe_topics([topic, "nothing"])
    assert responses["nothing"] == Refusal(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert [each.leader for each in described(responses[topic]).partitions] == [1, 1]
    paged = described((await admin.describe_topic_pages([topic], page_size=1))[topic])
    assert [(each.partition, each.isr) for each in paged.partitions] == [(0, (1,)), (1, (1,))]
    assert paged.topic_id == described(responses[topic]).topic_id
    assert topic in await admin.describe_topic_pages()
    assert await admin.create_partitions({topic: 3}) == {topic: None}
    assert len(described((await admin.describe_topic_pages([topic]))[topic]).partitions) == 3


async def test_topic_is_described_as_it_is_now(admin: Admin, topic: str) -> None:
    assert len(described((await admin.describe_topics([topic]))[topic]).partitions) == 2
    assert await admin.create_partitions({topic: 3}) == {topic: None}
    assert len(described((await admin.describe_topics([topic]))[topic]).partitions) == 3
    assert await admin.delete_topics([topic]) == {topic: None}
    assert (await admin.describe_topics([topic]))[topic] == Refusal(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_topics_are_deleted_by_name_and_by_id(admin: Admin, topic: str) -> None:
    topic_id = described((await admin.describe_topics([topic]))[topic]).topic_id
    assert topic_id is not None
    unknown = UUID(int=42)
    outcomes = await admin.delete_topics_by_id([topic_id, unknown])
    assert outcomes[topic_id] is None
    assert outcomes[unknown] is not None
    assert outcomes[unknown].error is ErrorCode.UNKNOWN_TOPIC_ID
    refused = (await admin.delete_topics([topic]))[topic]
    assert refused is not None
    assert refused.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def until_retention_is(admin: Admin, topic: Resource, source: ConfigSource) -> None:
    """Kafka's brokers hear of a change after its response."""
    attempts = admin.cluster.attempts()
    while one((await admin.describe_configs({topic: ["retention.ms"]}))[topic]).source is not source:
        assert await attempts.pause(), f"the retention never comes from {source.name}"


async def test_configurations_are_altered_and_described(admin: Admin, topic: str) -> None:
    orders, everybody = Resource(type=ResourceType.TOPIC, name=topic), Resource(type=ResourceType.BROKER, name="")
    this_broker = Resource(type=ResourceType.BROKER, name="1")
    change = [ConfigChange(name="retention.ms", operation=Operation.SET, value="60000")]
    assert await admin.alter_configs({orders: change}) == {orders: None}
    await until_retention_is(admin, orders, ConfigSource.DYNAMIC_TOPIC_CONFIG)
    both = await admin.describe_configs({orders: ["retention.ms"], this_broker: ["log.dirs"]})
    assert (one(both[orders]).value, one(both[this_broker]).name) == ("60000", "log.dirs")
    assert await admin.replace_configs({orders: {"segment.bytes": "2097152"}}) == {orders: None}
    await until_retention_is(admin, orders, ConfigSource.DEFAULT_CONFIG)  # It was not named, so it is gone.
    wrong = await admin.alter_configs({orders: [ConfigChange(name="retention.ms", operation=Operation.SET, value="x")]})
    assert wrong[orders] is not None
    assert isinstance((await admin.describe_configs({everybody: None}))[everybody], list)
    nothing = Resource(type=ResourceType.TOPIC, name="nothing")
    assert isinstance((await admin.describe_configs({nothing: None}))[nothing], Refusal)


async def test_records_and_offsets(admin: Admin, broker: BrokerProcess, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with made_producer(broker) as producer:
        ok(ErrorCode((await producer.send(first, b"a", b"b", b"c")).error_code))
    found = (await admin.list_offsets({first: LATEST, second: LATEST})).found
    assert {tp: at.offset for tp, at in found.items()} == {first: 3, second: 0}
    latest = (await admin.list_offsets({first: MAX_TIMESTAMP, second: MAX_TIMESTAMP})).found
    assert latest[first].timestamp == RECORD_TIMESTAMP
    assert latest[second].offset is None
    assert (await admin.list_offsets({first: RECORD_TIMESTAMP + 1})).found[first].offset is None
    assert (await admin.list_offsets({first: RECORD_TIMESTAMP})).found[first].offset == 0
    deleted = await admin.delete_records({first: 2, TopicPartition("nothing", 0): 0})
    assert deleted.found == {first: 2}
    assert list(deleted.failed.values()) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (await admin.list_offsets({first: EARLIEST})).found[first].offset == 2
    log_dirs = (await admin.describe_log_dirs([1], [first]))[1]
    assert not isinstance(log_dirs, Refusal)
    (directory,) = log_dirs
    assert list(directory.replicas) == [first]
    assert directory.replicas[first].size_bytes > 0
    assert directory.total_bytes is not None
    assert first in next(iter(dict(await admin.describe_log_dirs()).values()))[0].replicas  # type: ignore[index]


async def test_offsets_of_groups(admin: Admin, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    groups = [f"{topic}-a", f"{topic}-b"]
    for number, group in enumerate(groups):
        outcomes = await admin.alter_group_offsets(group, {first: number, second: 10 + number})
        assert outcomes == {first: None, second: None}
    responses = await admin.committed_offsets_of_groups({groups[0]: None, groups[1]: [second]})
    committed = {group: offsets.found for group, offsets in responses.items() if not isinstance(offsets, Refusal)}
    assert {tp: at.offset for tp, at in committed[groups[0]].items()} == {first: 0, second: 10}
    assert {tp: at.offset for tp, at in committed[groups[1]].items()} == {second: 11}
    assert await admin.delete_group_offsets(groups[0], [first]) == {first: None}
    assert list(await admin.committed_offsets(groups[0], require_stable=True)) == [second]
    assert set(groups) <= {each.group_id for each in await admin.list_groups(["Empty"])}
    outcomes_of_groups = await admin.delete_groups([*groups, "nobody"])
    assert [outcomes_of_groups[group] for group in groups] == [None, None]
    assert outcomes_of_groups["nobody"] == Refusal(error=ErrorCode.GROUP_ID_NOT_FOUND)
    descriptions = await admin.describe_groups(groups)
    assert all(isinstance(each, Refusal) for each in descriptions.values())


async def join(broker: BrokerProcess, group: str, instance_id: str | None) -> WireClient:
    """A member of a group that says no more: it waits for the others, or leads."""
    client = await WireClient.connect(int(broker.address.rpartition(":")[2]))
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
    )
    response: JoinGroupResponse = await client.call(request, 5)
    ok(ErrorCode(response.error_code))
    return client


async def test_members_of_groups(admin: Admin, broker: BrokerProcess, topic: str) -> None:
    await admin.describe_groups([topic])  # A request for a group creates __consumer_offsets.
    client = await join(broker, topic, "shelf-1")
    described_group = (await admin.describe_groups([topic]))[topic]
    assert not isinstance(described_group, Refusal)
    assert [member.group_instance_id for member in described_group.members] == ["shelf-1"]
    refused = (await admin.delete_groups([topic]))[topic]
    assert refused == Refusal(error=ErrorCode.NON_EMPTY_GROUP)
    nobody, static = MemberToRemove(member_id="nobody"), MemberToRemove(group_instance_id="shelf-1")
    outcomes = await admin.remove_members(topic, [nobody, static], reason="maintenance")
    assert outcomes == {nobody: Refusal(error=ErrorCode.UNKNOWN_MEMBER_ID), static: None}
    client.close()
    client = await join(broker, topic, "shelf-2")
    assert await admin.remove_all_members(topic) == {MemberToRemove(group_instance_id="shelf-2"): None}
    assert await admin.remove_all_members(topic) == {}
    client.close()
    assert await admin.delete_groups([topic]) == {topic: None}


async def test_members_are_removed_from_the_command_line(admin: Admin, broker: BrokerProcess, topic: str) -> None:
    await admin.describe_groups([topic])
    client = await join(broker, topic, "shelf-1")
    oncelog = Oncelog(broker.address)
    assert "UNKNOWN_MEMBER_ID" in oncelog.fails(f"group remove-members {topic} --member-id nobody")
    (removed,) = oncelog.json(f"group remove-members {topic} --all --reason maintenance")
    assert removed == {"member": "shelf-1", "result": "removed"}
    assert oncelog.json(f"group describe {topic}")["members"] == 0
    client.close()


async def test_log_directories_are_shown_from_the_command_line(broker: BrokerProcess, topic: str) -> None:
    oncelog = Oncelog(broker.address)
    (directory,) = oncelog.json("log-dirs --broker-id 1")
    assert directory["replicas"] >= 2
    assert 0 < directory["usable"] <= directory["total"]
    replicas = oncelog.json(f"log-dirs --topic {topic}")
    assert [(each["partition"], each["size"], each["offset_lag"]) for each in replicas] == [(0, 0, 0), (1, 0, 0)]
    assert "broker 9" in oncelog.fails("log-dirs --broker-id 9 --timeout 20", exit_code=3)


async def test_transactions_are_listed_and_described(admin: Admin, broker: BrokerProcess, topic: str) -> None:
    partition, transactional_id = TopicPartition(topic, 0), f"{topic}-id"
    async with made_producer(broker, transactional_id) as producer:
        await producer.open_transaction({partition: [b"one"]})
        (listed,) = await admin.list_transactions(
            states=["Ongoing"],
            producer_ids=[producer.producer_id],
            running_longer_than_ms=0,
            transactional_id_pattern=f"{topic}.*",
        )
        assert (listed.transactional_id, listed.coordinator) == (transactional_id, 1)
        transaction = (await admin.describe_transactions([transactional_id]))[transactional_id]
        assert not isinstance(transaction, Refusal)
        assert (transaction.partitions, transaction.timeout_ms) == ((partition,), 60_000)
        (active,) = (await admin.describe_producers([partition])).found[partition]
        assert active == (await admin.describe_producers([partition], broker_id=1)).found[partition][0]
        assert (active.producer_id, active.transaction_start_offset) == (producer.producer_id, 0)
        assert (await admin.find_hanging_transactions([partition], now_ms=0)).hanging == ()
        plan = await admin.prepare_abort(partition, WhichTransaction(start_offset=0))
        assert all(check.agrees for check in await admin.carry_out_abort(plan))
        fencing = await admin.force_terminate_transaction(transactional_id)
        outcomes = await admin.fence_producers([transactional_id, "nobody"])
        again = outcomes[transactional_id]
        assert not isinstance(again, Refusal)
        assert producer.epoch < fencing.producer_epoch < again.producer_epoch
        assert outcomes["nobody"] == Refusal(error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        history = await admin.transaction_history(transactional_id)
        states = [record.snapshot.state for record in history.records if record.snapshot is not None]
        assert states == ["Empty", "Ongoing", "PrepareAbort", "CompleteAbort", "Empty", "Empty", "Empty"]


async def test_marker_alone_is_what_it_is_in_kafka(admin: Admin, broker: BrokerProcess, topic: str) -> None:
    """It ends a transaction in one partition although its coordinator goes on with it: the reason for the other way."""
    partition = TopicPartition(topic, 0)
    async with made_producer(broker, f"{topic}-id") as producer:
        ok(await producer.init())
        await producer.open_transaction({partition: [b"one"]})
        stale = AbortMarker(
            topic_partition=partition, producer_id=producer.producer_id, producer_epoch=0, coordinator_epoch=None
        )
        assert await admin.abort_transaction(stale) == Refusal(error=ErrorCode.INVALID_PRODUCER_EPOCH)
        marker = AbortMarker(
            topic_partition=partition,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=None,
        )
        assert await admin.abort_transaction(marker) is None
        (active,) = (await admin.describe_producers([partition])).found[partition]
        assert active.transaction_start_offset is None
        transaction = (await admin.describe_transactions([f"{topic}-id"]))[f"{topic}-id"]
        assert not isinstance(transaction, Refusal)
        assert transaction.state == "Ongoing"
        ok(await producer.end(commit=True))  # And it commits what is elsewhere.


async def test_single_refused_item_is_raised_as_exception(admin: Admin) -> None:
    with pytest.raises(BrokerRefused, match="TRANSACTIONAL_ID_NOT_FOUND"):
        await admin.force_terminate_transaction("nobody")
