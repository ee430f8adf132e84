"""Finding who is right, and asking again when it was the wrong one or too early. In virtual time."""

import asyncio
import re
from collections.abc import Iterator, Mapping
from random import Random

import pytest

from oncelog.clients.admin.offsets import LATEST, list_offsets
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Address
from oncelog.clients.errors import BrokerRefused, NoBrokerReachable
from oncelog.clients.routes import AnyBroker, Controller, Coordinator, Node
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.messages.find_coordinator import Coordinator as FoundCoordinator
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import Reaction, ScriptedBroker, metadata
from tests.unit.clients.scripted_cluster import OPERATION_SECONDS, cluster_of, in_turn


def created(error: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name="orders", error_code=error)])


def topic_errors(response: CreateTopicsResponse) -> list[int]:
    return [topic.error_code for topic in response.topics]


@in_virtual_time
async def test_request_for_the_controller_goes_to_it() -> None:
    first = ScriptedBroker({}, node_id=2)
    controller = ScriptedBroker({CreateTopicsRequest: created(ErrorCode.NONE)}, node_id=1)
    async with cluster_of(first, controller) as cluster:
        await cluster.call(Controller(), CreateTopicsRequest(), CreateTopicsResponse, errors=topic_errors)
        assert len(controller.seen(CreateTopicsRequest)) == 1


@in_virtual_time
async def test_controller_that_resigned_leads_to_new_metadata() -> None:
    former = ScriptedBroker({CreateTopicsRequest: created(ErrorCode.NOT_CONTROLLER)}, node_id=1)
    present = ScriptedBroker({CreateTopicsRequest: created(ErrorCode.NONE)}, node_id=2)
    async with cluster_of(former, present) as cluster:
        both = {1: former.address, 2: present.address}
        former.script[MetadataRequest] = in_turn(
            metadata(both, {}, controller_id=1), metadata(both, {}, controller_id=2)
        )
        response = await cluster.call(Controller(), CreateTopicsRequest(), CreateTopicsResponse, errors=topic_errors)
        assert topic_errors(response) == [ErrorCode.NONE]
        assert len(former.seen(CreateTopicsRequest)) == len(present.seen(CreateTopicsRequest)) == 1


@in_virtual_time
async def test_final_error_is_returned_at_once() -> None:
    broker = ScriptedBroker({CreateTopicsRequest: created(ErrorCode.TOPIC_ALREADY_EXISTS)})
    async with cluster_of(broker) as cluster:
        response = await cluster.call(Controller(), CreateTopicsRequest(), CreateTopicsResponse, errors=topic_errors)
        assert topic_errors(response) == [ErrorCode.TOPIC_ALREADY_EXISTS]
        assert len(broker.seen(CreateTopicsRequest)) == 1


@in_virtual_time
async def test_retriable_error_is_returned_when_the_time_is_up() -> None:
    broker = ScriptedBroker({CreateTopicsRequest: created(ErrorCode.NOT_CONTROLLER)})
    async with cluster_of(broker) as cluster:
        loop = asyncio.get_running_loop()
        started = loop.time()
        response = await cluster.call(Controller(), CreateTopicsRequest(), CreateTopicsResponse, errors=topic_errors)
        assert topic_errors(response) == [ErrorCode.NOT_CONTROLLER]
        assert OPERATION_SECONDS - 2 < loop.time() - started <= OPERATION_SECONDS
        assert len(broker.seen(CreateTopicsRequest)) < 40  # The pauses grow.


def found(node_id: int, address: Address, error: ErrorCode = ErrorCode.NONE) -> FindCoordinatorResponse:
    coordinator = FoundCoordinator(
        key="group", node_id=node_id, host=address.host, port=address.port, error_code=error, error_message=None
    )
    return FindCoordinatorResponse(coordinators=[coordinator])


def group_errors(response: ListGroupsResponse) -> list[int]:
    return [response.error_code]


@in_virtual_time
async def test_coordinator_is_looked_up_once_and_again_when_it_has_moved() -> None:
    refusing = ListGroupsResponse(error_code=ErrorCode.NOT_COORDINATOR)
    one = ScriptedBroker({ListGroupsRequest: in_turn(ListGroupsResponse(), ListGroupsResponse(), refusing)}, node_id=1)
    two = ScriptedBroker({ListGroupsRequest: ListGroupsResponse()}, node_id=2)
    async with cluster_of(one, two) as cluster:
        one.script[FindCoordinatorRequest] = in_turn(found(1, one.address), found(2, two.address))
        for _ in range(3):
            route = Coordinator.of_group("group")
            response = await cluster.call(route, ListGroupsRequest(), ListGroupsResponse, errors=group_errors)
            assert response.error_code == ErrorCode.NONE
        assert len(one.seen(ListGroupsRequest)) == 3
        assert len(two.seen(ListGroupsRequest)) == 1
        assert len(one.seen(FindCoordinatorRequest)) == 2


@in_virtual_time
async def test_coordinator_not_available_yet_is_retried() -> None:
    broker = ScriptedBroker({ListGroupsRequest: ListGroupsResponse()})
    async with cluster_of(broker) as cluster:
        unavailable = found(-1, Address("", -1), ErrorCode.COORDINATOR_NOT_AVAILABLE)
        broker.script[FindCoordinatorRequest] = in_turn(unavailable, unavailable, found(1, broker.address))
        await cluster.call(Coordinator.of_group("group"), ListGroupsRequest(), ListGroupsResponse, errors=group_errors)
        assert len(broker.seen(FindCoordinatorRequest)) == 3


@in_virtual_time
async def test_coordinator_lookup_refused_raises() -> None:
    broker = ScriptedBroker({ListGroupsRequest: ListGroupsResponse()})
    async with cluster_of(broker) as cluster:
        broker.script[FindCoordinatorRequest] = found(-1, Address("", -1), ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(BrokerRefused, match="GROUP_AUTHORIZATION_FAILED"):
            await cluster.call(Coordinator.of_group("group"), ListGroupsRequest(), ListGroupsResponse)


@in_virtual_time
async def test_broker_that_closes_the_connection_gets_a_retry() -> None:
    broker = ScriptedBroker({ListGroupsRequest: in_turn(Reaction.CLOSE, ListGroupsResponse())})
    async with cluster_of(broker) as cluster:
        await cluster.call(Node(1), ListGroupsRequest(), ListGroupsResponse, errors=group_errors)
        assert len(broker.seen(ListGroupsRequest)) == 2


@in_virtual_time
async def test_first_bootstrap_broker_down_uses_the_next() -> None:
    up = ScriptedBroker({MetadataRequest: MetadataResponse()})
    address = await up.start()
    async with Cluster([Address("127.0.0.1", 1), address], rng=Random(1)) as cluster:
        await cluster.call(AnyBroker(), MetadataRequest(), MetadataResponse)
        assert len(up.requests) == 1


@in_virtual_time
async def test_bootstrap_without_reachable_broker_raises_and_names_all_addresses() -> None:
    async with Cluster([Address("127.0.0.1", 1), Address("127.0.0.1", 2)], rng=Random(1)) as cluster:
        with pytest.raises(NoBrokerReachable, match=r"127\.0\.0\.1:1: .*; 127\.0\.0\.1:2: "):
            await cluster.call(AnyBroker(), MetadataRequest(), MetadataResponse)


@in_virtual_time
async def test_callers_of_the_same_broker_share_a_connection() -> None:
    broker = ScriptedBroker({ListGroupsRequest: ListGroupsResponse()})
    async with cluster_of(broker) as cluster:
        await cluster.refresh(())
        requested = [cluster.call(Node(1), ListGroupsRequest(), ListGroupsResponse) for _ in range(5)]
        await asyncio.gather(*requested)
        assert len(broker.connections) == 1


# Requests to leaders


class Leader:
    """Answers ListOffsets for the partitions it leads with an offset of its own, and refuses the others."""

    def __init__(self, offset: int, refuses: Mapping[int, ErrorCode] | None = None) -> None:
        self.offset = offset
        self.refuses = dict(refuses or {})

    def __call__(self, request: Message) -> ListOffsetsResponse:
        assert isinstance(request, ListOffsetsRequest)
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name, partitions=[self._partition(p.partition_index) for p in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _partition(self, index: int) -> ListOffsetsPartitionResponse:
        error = self.refuses.get(index, ErrorCode.NONE)
        return ListOffsetsPartitionResponse(partition_index=index, error_code=error, offset=self.offset + index)


def partitions(*indexes: int) -> Iterator[TopicPartition]:
    return (TopicPartition("orders", index) for index in indexes)


async def latest(cluster: Cluster, *indexes: int) -> tuple[dict[int, int | None], dict[int, ErrorCode]]:
    responses = await list_offsets(cluster, dict.fromkeys(partitions(*indexes), LATEST))
    return (
        {tp.partition: at.offset for tp, at in responses.found.items()},
        {tp.partition: error for tp, error in responses.failed.items()},
    )


@in_virtual_time
async def test_leader_gets_one_request_for_all_its_partitions() -> None:
    one = ScriptedBroker({ListOffsetsRequest: Leader(100)}, node_id=1)
    two = ScriptedBroker({ListOffsetsRequest: Leader(200)}, node_id=2)
    async with cluster_of(one, two, leaders={"orders": [1, 2, 1]}) as cluster:
        assert await latest(cluster, 0, 1, 2) == ({0: 100, 1: 201, 2: 102}, {})
        assert len(one.seen(ListOffsetsRequest)) == len(two.seen(ListOffsetsRequest)) == 1


@in_virtual_time
async def test_moved_leader_is_found_and_only_its_partitions_are_sent_again() -> None:
    former = Leader(100, refuses={1: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    one = ScriptedBroker({ListOffsetsRequest: former}, node_id=1)
    two = ScriptedBroker({ListOffsetsRequest: Leader(200)}, node_id=2)
    async with cluster_of(one, two) as cluster:
        both = {1: one.address, 2: two.address}
        one.script[MetadataRequest] = in_turn(metadata(both, {"orders": [1, 1]}), metadata(both, {"orders": [1, 2]}))
        assert await latest(cluster, 0, 1) == ({0: 100, 1: 201}, {})
        (request,) = two.seen(ListOffsetsRequest)
        assert isinstance(request, ListOffsetsRequest)
        assert [partition.partition_index for partition in request.topics[0].partitions] == [1]


@in_virtual_time
async def test_final_error_of_one_partition_does_not_delay_the_others() -> None:
    leader = Leader(100, refuses={1: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    broker = ScriptedBroker({ListOffsetsRequest: leader})
    async with cluster_of(broker, leaders={"orders": [1, 1]}) as cluster:
        assert await latest(cluster, 0, 1) == ({0: 100}, {1: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
        assert len(broker.seen(ListOffsetsRequest)) == 1


@in_virtual_time
async def test_leader_unaware_of_its_new_partition_gets_a_retry() -> None:
    leader = Leader(100, refuses={0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    broker = ScriptedBroker({ListOffsetsRequest: leader})
    async with cluster_of(broker, leaders={"orders": [1]}) as cluster:
        asyncio.get_running_loop().call_later(0.5, leader.refuses.clear)
        assert await latest(cluster, 0) == ({0: 100}, {})


@in_virtual_time
async def test_partition_that_does_not_exist_fails_with_its_error() -> None:
    broker = ScriptedBroker({ListOffsetsRequest: Leader(100)})
    async with cluster_of(broker, leaders={"orders": [1]}) as cluster:
        assert await latest(cluster, 0, 7) == ({0: 100}, {7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
        responses = await list_offsets(cluster, {TopicPartition("nothing", 0): LATEST})
        assert responses.failed == {TopicPartition("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@in_virtual_time
async def test_partition_without_a_leader_fails_when_the_time_is_up() -> None:
    broker = ScriptedBroker({ListOffsetsRequest: Leader(100)})
    async with cluster_of(broker, leaders={"orders": [1, -1]}) as cluster:
        assert await latest(cluster, 0, 1) == ({0: 100}, {1: ErrorCode.LEADER_NOT_AVAILABLE})


@in_virtual_time
async def test_unreachable_leader_fails_its_own_partitions_only() -> None:
    one = ScriptedBroker({ListOffsetsRequest: Leader(100)}, node_id=1)
    async with cluster_of(one) as cluster:
        both = {1: one.address, 2: Address("127.0.0.1", 1)}
        one.script[MetadataRequest] = metadata(both, {"orders": [1, 2]})
        assert await latest(cluster, 0, 1) == ({0: 100}, {1: ErrorCode.NETWORK_EXCEPTION})


@in_virtual_time
async def test_leader_without_the_api_fails_its_partitions() -> None:
    broker = ScriptedBroker({})
    async with cluster_of(broker, leaders={"orders": [1]}) as cluster:
        assert await latest(cluster, 0) == ({}, {0: ErrorCode.UNSUPPORTED_VERSION})


@in_virtual_time
async def test_partition_missing_in_a_response_fails() -> None:
    broker = ScriptedBroker({ListOffsetsRequest: ListOffsetsResponse()})
    async with cluster_of(broker, leaders={"orders": [1]}) as cluster:
        assert await latest(cluster, 0) == ({}, {0: ErrorCode.UNKNOWN_SERVER_ERROR})


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (" a:1 , b ", [("a", 1), ("b", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        ("PLAINTEXT://a:1,plaintext://[::1]:2", [("a", 1), ("::1", 2)]),
    ],
)
def test_bootstrap_text_is_parsed_into_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL", "SASL_PLAINTEXT", "ssl"])
def test_bootstrap_with_a_protocol_of_security_raises_and_names_its_setting(protocol: str) -> None:
    why = f"leave out {protocol}://; it is the setting security.protocol={protocol.upper()}"
    with pytest.raises(ValueError, match=f"{protocol}://a:1.*{why}$"):
        parse_bootstrap(f"b:2,{protocol}://a:1")


@pytest.mark.parametrize("text", ["a:1;b:2", "a:1 b:2", "a:1|b:2"])
def test_bootstrap_with_another_separator_raises_and_names_the_comma(text: str) -> None:
    with pytest.raises(ValueError, match="separated by commas"):
        parse_bootstrap(text)


def test_bootstrap_with_the_scheme_of_a_url_raises_and_names_it() -> None:
    with pytest.raises(ValueError, match="'http://a:1' is not HOST:PORT: an address has no http:// in front"):
        parse_bootstrap("http://a:1")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no address of a broker: pass HOST:PORT, such as localhost:9092"),
        ("a:1/path", "'a:1/path' is not HOST:PORT: pass HOST:PORT, such as localhost:9092"),
        ("a/path:1", "'a/path:1' is not HOST:PORT"),
        ("::1", "'::1' is not HOST:PORT: an IPv6 address stands in brackets, such as [::1]:9092"),
        ("fe80::1:9092", "'fe80::1:9092' is not HOST:PORT: an IPv6 address stands in brackets"),
        ("[::1", "'[::1' is not HOST:PORT"),
        ("[::1]9092x", "'[::1]9092x' is not HOST:PORT"),
        ("user:secret@h:1", "'…@h:1' is not HOST:PORT"),
        ("https://user:secret@h:1", "'…@h:1' is not HOST:PORT: an address has no https:// in front"),
    ],
)
def test_bootstrap_text_that_is_no_address_is_named_with_the_remedy(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(error)}") as raised:
        parse_bootstrap(text)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("port", ["0", "65536", "999999"])
def test_bootstrap_port_out_of_range_raises_and_is_named(port: str) -> None:
    with pytest.raises(ValueError, match=f"'a:{port}': there is no port {port}; ports are 1 to 65535"):
        parse_bootstrap(f"a:{port}")


@pytest.mark.parametrize(
    "text", ["", ",", "a:", ":1", "a:b", "a:-1", "a..b:9092", ".", "x" * 64, "PLAINTEXT://", "a:1:2", "[a:1]:2"]
)
def test_bootstrap_text_without_an_address_raises(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_bootstrap(text)
