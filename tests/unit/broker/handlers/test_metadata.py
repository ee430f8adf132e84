"""Metadata in all of its versions, and topics that come into being because a client requested them."""

import asyncio
import dataclasses
from collections.abc import Sequence

import pytest

from oncelog.broker.handlers.metadata import handle_metadata
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation
from oncelog.coordinator.controller.config_changes import ConfigResource, ResourceType
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_response
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.unit.broker.handlers.administration import Denies, ask, running_broker, settle
from tests.unit.broker.handlers.cluster_tales import broker_with, partition, tell


async def metadata(
    broker: Broker,
    names: Sequence[str] | None = None,
    *,
    version: int = 13,
    create: bool = True,
    ids: Sequence[bytes] = (),
    topic_operations: bool = False,
    cluster_operations: bool = False,
) -> MetadataResponse:
    topics = None if names is None and not ids else [MetadataRequestTopic(name=name) for name in names or ()]
    for topic_id in ids:
        assert topics is not None
        topics.append(MetadataRequestTopic(name=None, topic_id=topic_id))
    request = MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=topic_operations,
        include_cluster_authorized_operations=cluster_operations,
    )
    response = await ask(broker, handle_metadata, request, MetadataResponse, version)
    assert encode_response(1, response, version), "every answer has a form in its version"
    return response


def errors(response: MetadataResponse) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in response.topics}


async def test_broker_that_is_alone_is_broker_and_controller() -> None:
    async with running_broker() as broker:
        response = await metadata(broker)
        (reported,) = response.brokers
        assert (reported.node_id, reported.host, reported.rack) == (1, "localhost", None)
        assert reported.port == broker.listeners.bound[0].port
        assert response.controller_id == 1
        assert response.cluster_id == broker.cluster_id
        assert response.topics == []


async def test_unknown_topic_is_created_and_complete_in_the_same_response() -> None:
    async with running_broker(num_partitions="3") as broker:
        response = await metadata(broker, ["orders"])
        (topic,) = response.topics
        assert topic.error_code == ErrorCode.NONE
        assert topic.topic_id != bytes(16)
        assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
        assert {(p.leader_id, p.error_code) for p in topic.partitions} == {(1, 0)}
        assert [(p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [([1], [1])] * 3
        again = await metadata(broker, None)
        assert again.topics == response.topics


async def test_metadata_request_before_the_first_update_waits_for_it() -> None:
    """A client that hears that its topics do not exist may believe it for minutes, as librdkafka does."""
    async with running_broker() as broker, asyncio.TaskGroup() as group:
        await metadata(broker, ["orders"])
        started = dataclasses.replace(broker, metadata_received=asyncio.get_running_loop().create_future())
        requested = group.create_task(metadata(started, ["orders"], create=False))
        await settle()
        assert not requested.done()
        started.metadata_received.set_result(None)
        assert errors(await requested) == {"orders": ErrorCode.NONE}


def limit_mutations(broker: Broker) -> None:
    """Let a client create 22 partitions at once, and two a second."""
    limits = {"controller_mutation_rate": "2"}
    broker.quotas.learn(ConfigResource(ResourceType.QUOTA, "clients/<default>"), limits)


async def test_topics_beyond_the_quota_of_their_client_are_not_created(caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(num_partitions="10") as broker:
        limit_mutations(broker)
        response = await metadata(broker, ["a", "b", "c", "d", "e"])
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert errors(response) == {"a": 0, "b": 0, "c": 0, "d": unknown, "e": unknown}
        assert broker.metadata.image.topics.keys() == {"a", "b", "c"}
        assert errors(await metadata(broker, ["a", "d"])) == {"a": 0, "d": unknown}
        logged = [record.message for record in caplog.records if "controller_mutation_rate" in record.message]
        assert logged == ["2 topics, one is d, were not created: their client's controller_mutation_rate"]


async def test_topics_that_cannot_be_created_do_not_count_for_the_quota() -> None:
    async with running_broker(num_partitions="20", default_replication_factor="3") as broker:
        limit_mutations(broker)
        for name in ("a", "b", "c"):
            assert errors(await metadata(broker, [name])) == {name: ErrorCode.INVALID_REPLICATION_FACTOR}


async def test_internal_topics_count_for_no_client() -> None:
    async with running_broker(offsets_topic_num_partitions="50", num_partitions="20") as broker:
        limit_mutations(broker)
        assert await broker.auto_topics.create(["__consumer_offsets"]) == {}
        assert errors(await metadata(broker, ["a"])) == {"a": 0}


async def test_topic_requested_by_many_at_once_is_created_once() -> None:
    async with running_broker() as broker:
        responses = await asyncio.gather(*(metadata(broker, ["orders", f"t{n}"]) for n in range(10)))
        assert all(set(errors(response).values()) == {0} for response in responses)
        ids = {topic.topic_id for response in responses for topic in response.topics if topic.name == "orders"}
        assert len(ids) == 1


async def test_metadata_without_permission_to_create_creates_no_topic() -> None:
    async with running_broker() as broker:
        response = await metadata(broker, ["orders"], create=False)
        assert errors(response) == {"orders": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        await metadata(broker, None)
        await metadata(broker, [])
    async with running_broker(auto_create_topics_enable="false") as broker:
        assert errors(await metadata(broker, ["orders"])) == {"orders": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert broker.metadata.image.topics == {}


async def test_metadata_of_the_cluster_metadata_log_creates_no_topic() -> None:
    async with running_broker() as broker:
        unknown = {"__cluster_metadata": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert errors(await metadata(broker, ["__cluster_metadata"])) == unknown
        assert broker.metadata.image.topics == {}


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "x" * 250, "a/b", "a\x00b"])
async def test_metadata_of_an_invalid_name_is_invalid_topic(name: str) -> None:
    async with running_broker() as broker:
        assert errors(await metadata(broker, [name])) == {name: ErrorCode.INVALID_TOPIC_EXCEPTION}


async def test_name_that_collides_with_a_topic_is_invalid() -> None:
    async with running_broker() as broker:
        await metadata(broker, ["my.orders"])
        response = await metadata(broker, ["my_orders"])
        assert errors(response) == {"my_orders": ErrorCode.INVALID_TOPIC_EXCEPTION}


async def test_automatic_creation_with_too_few_brokers_is_invalid_replication_factor() -> None:
    async with running_broker(default_replication_factor="3") as broker:
        assert errors(await metadata(broker, ["orders"])) == {"orders": ErrorCode.INVALID_REPLICATION_FACTOR}


async def test_internal_topic_created_by_metadata_has_its_own_settings() -> None:
    async with running_broker(offsets_topic_num_partitions="4") as broker:
        response = await metadata(broker, ["__consumer_offsets"])
        (topic,) = response.topics
        assert topic.is_internal
        assert len(topic.partitions) == 4
        assert broker.configs.topic_overrides("__consumer_offsets")["cleanup.policy"] == "compact"


async def test_metadata_of_empty_list_means_all_topics_in_version_0_only() -> None:
    async with running_broker() as broker:
        await metadata(broker, ["a", "b"])
        assert errors(await metadata(broker, [], version=0)) == {"a": 0, "b": 0}
        assert (await metadata(broker, [], version=1)).topics == []
        assert errors(await metadata(broker, None, version=1)) == {"a": 0, "b": 0}


async def test_name_requested_twice_is_returned_once() -> None:
    async with running_broker() as broker:
        assert len((await metadata(broker, ["a", "a"])).topics) == 1


async def test_topics_by_their_ids() -> None:
    async with running_broker() as broker:
        (created,) = (await metadata(broker, ["a"])).topics
        unknown = b"u" * 16
        response = await metadata(broker, ids=[created.topic_id, unknown], version=12)
        assert response.topics[0] == created
        assert response.topics[1].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert (response.topics[1].name, response.topics[1].topic_id) == (None, unknown)


@pytest.mark.parametrize("version", [10, 11])
async def test_versions_10_and_11_have_ids_in_requests_and_do_not_serve_them(version: int) -> None:
    async with running_broker() as broker:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="a", topic_id=b"u" * 16)])
        response = await ask(broker, handle_metadata, request, MetadataResponse, version)
        assert errors(response) == {"a": ErrorCode.INVALID_REQUEST}
        request = MetadataRequest(topics=[MetadataRequestTopic(name=None)])
        response = await ask(broker, handle_metadata, request, MetadataResponse, version)
        assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]
        assert encode_response(1, response, version)


async def test_addresses_and_leaders_are_those_of_the_listener() -> None:
    async with running_broker() as broker:
        tell(
            broker,
            [broker_with(1, "PLAINTEXT", "OTHER", rack="r1"), broker_with(2, "OTHER")],
            {
                "t": [
                    partition(0, 1, [1, 2], [1, 2]),
                    partition(1, 2, [2, 1], [2]),
                    partition(2, 3, [3, 1], [3], [3]),
                    partition(3, -1, [3], [3], [3]),
                ]
            },
        )
        response = await metadata(broker, ["t"])
        assert [(reported.node_id, reported.host, reported.port, reported.rack) for reported in response.brokers] == [
            (1, "host1", 9001, "r1")
        ]
        rows = [(p.error_code, p.leader_id, p.leader_epoch, p.offline_replicas) for p in response.topics[0].partitions]
        assert rows == [
            (ErrorCode.NONE, 1, 5, []),
            (ErrorCode.LISTENER_NOT_FOUND, -1, 5, []),
            (ErrorCode.LEADER_NOT_AVAILABLE, -1, 5, [3]),
            (ErrorCode.LEADER_NOT_AVAILABLE, -1, 5, [3]),
        ]
        old = await metadata(broker, ["t"], version=5)
        assert old.topics[0].partitions[1].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert old.topics[0].partitions[0].replica_nodes == [1, 2]


async def test_version_0_leaves_out_replicas_that_cannot_be_reached() -> None:
    async with running_broker() as broker:
        tell(broker, [broker_with(1)], {"t": [partition(0, 1, [1, 2], [1]), partition(1, 1, [1], [1, 2])]})
        first, second = (await metadata(broker, ["t"], version=0)).topics[0].partitions
        assert (first.error_code, first.replica_nodes, first.isr_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [1], [1])
        assert (second.error_code, second.isr_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [1])


async def test_controller_that_is_not_alive_is_not_returned() -> None:
    async with running_broker() as broker:
        tell(broker, [broker_with(1)], {}, controller_id=9)
        assert (await metadata(broker)).controller_id == -1


async def test_authorized_operations_are_returned_on_request() -> None:
    nothing = -(2**31)
    async with running_broker() as broker:
        plain = await metadata(broker, ["a"], version=9)
        assert plain.cluster_authorized_operations == plain.topics[0].topic_authorized_operations == nothing
        full = await metadata(broker, ["a"], version=9, topic_operations=True, cluster_operations=True)
        assert full.topics[0].topic_authorized_operations == 0b1101_1111_1000
        assert full.cluster_authorized_operations == 0b1_1111_1010_0000
        assert (await metadata(broker, ["a"], cluster_operations=True)).cluster_authorized_operations == nothing


async def test_client_that_may_not_describe_sees_nothing() -> None:
    async with running_broker() as broker:
        (created,) = (await metadata(broker, ["a"])).topics
        broker.authorizer = Denies([Operation.DESCRIBE])
        assert (await metadata(broker, None)).topics == []
        denied = await metadata(broker, ["a", "no-such-topic"])
        assert set(errors(denied).values()) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert {topic.topic_id for topic in denied.topics} == {bytes(16)}
        (by_id,) = (await metadata(broker, ids=[created.topic_id])).topics
        assert (by_id.error_code, by_id.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)


async def test_client_that_may_not_create_creates_nothing() -> None:
    async with running_broker() as broker:
        broker.authorizer = Denies([Operation.CREATE])
        await metadata(broker, ["a"])
        assert broker.metadata.image.topics == {}
