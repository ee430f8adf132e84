"""A broker that accepts connections and does not respond delays only what needs that broker. In virtual time."""

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import TypeVar

import pytest

from oncelog.clients.cluster import Cluster
from oncelog.clients.connection import Address, Connection
from oncelog.clients.errors import ClientClosed, ClientError, RequestTimedOut, Unreachable
from oncelog.clients.fan_out import call_every_broker
from oncelog.clients.routes import AnyBroker, Controller, Node
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import Reaction, ScriptedBroker, metadata
from tests.unit.clients.scripted_cluster import OPERATION_SECONDS, cluster_of, in_turn

T = TypeVar("T")
CALLS = 12
CONNECT_SECONDS = 10.0
SOON_SECONDS = 5.0
"""Far below the time of an attempt, which a caller has to wait for who waits for the hung broker."""


async def timed(call: Awaitable[T]) -> tuple[T, float]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    return await call, loop.time() - began


def hung() -> ScriptedBroker:
    """A process that is stopped: the kernel accepts connections, and nothing is ever said on them."""
    broker = ScriptedBroker({}, node_id=1)
    broker.api_versions = Reaction.SILENCE
    return broker


@in_virtual_time
async def test_calls_that_need_the_hung_broker_share_one_attempt_to_connect() -> None:
    stopped = hung()
    address = await stopped.start()
    async with Cluster([address], rng=Random(1), connect_seconds=CONNECT_SECONDS) as cluster:
        cluster.brokers[1] = address
        ended: list[float] = []

        async def connect() -> None:
            with pytest.raises(Unreachable):
                await cluster.connection_to(1)
            ended.append(asyncio.get_running_loop().time())

        _, seconds = await timed(asyncio.gather(*(connect() for _ in range(CALLS))))
        assert seconds < CONNECT_SECONDS + 1
        assert len(ended) == CALLS
    stopped.stop()


@in_virtual_time
async def test_cancelled_caller_leaves_the_attempt_to_the_others() -> None:
    broker = ScriptedBroker({})
    async with cluster_of(broker) as cluster:
        await cluster.refresh(())
        cluster.brokers[2] = broker.address._replace(host="localhost")
        first, second = (asyncio.get_running_loop().create_task(cluster.connection_to(2)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).is_open
        assert len(broker.connections) == 2


@in_virtual_time
async def test_client_closed_meanwhile_ends_the_attempt() -> None:
    stopped = hung()
    cluster = Cluster([await stopped.start()], rng=Random(1), connect_seconds=1e6)
    waiting = asyncio.get_running_loop().create_task(cluster.connection_to_any())
    await asyncio.sleep(1)
    _, seconds = await timed(cluster.close())
    assert seconds < SOON_SECONDS
    with pytest.raises(ClientClosed, match="closed"):
        await waiting
    with pytest.raises(ClientClosed, match="closed"):
        await cluster.connection_to_any()
    stopped.stop()


@in_virtual_time
async def test_hung_bootstrap_broker_is_skipped() -> None:
    stopped, healthy = hung(), ScriptedBroker({MetadataRequest: MetadataResponse()})
    addresses = [await stopped.start(), await healthy.start()]
    async with Cluster(addresses, rng=Random(1)) as cluster:
        _, seconds = await timed(cluster.refresh(()))
        assert seconds < SOON_SECONDS
    stopped.stop()
    healthy.stop()


@in_virtual_time
async def test_request_for_any_broker_goes_to_another_one_when_the_first_is_silent() -> None:
    first, second = ScriptedBroker({}, node_id=1), ScriptedBroker({}, node_id=2)
    async with cluster_of(first, second, leaders={"orders": [2]}) as cluster:
        await cluster.refresh(())
        first.script[MetadataRequest] = Reaction.SILENCE
        for _ in range(CALLS):
            cluster.metadata.forget("orders")
            topics, seconds = await timed(cluster.topics(["orders"]))
            assert topics["orders"].error_code == ErrorCode.NONE
            assert seconds < SOON_SECONDS
        assert len(first.seen(MetadataRequest)) == 2  # Asked once in vain, then not again.


@in_virtual_time
async def test_connection_without_requests_in_flight_is_preferred() -> None:
    first, second = ScriptedBroker({ListGroupsRequest: Reaction.HOLD}, node_id=1), ScriptedBroker({}, node_id=2)
    async with cluster_of(first, second) as cluster:
        await cluster.refresh(())
        await cluster.connection_to(2)
        busy = await cluster.connection_to(1)
        held = busy.send(ListGroupsRequest(), ListGroupsResponse)
        assert (await cluster.connection_to_any()).address == second.address
        held.cancel()


@in_virtual_time
async def test_late_response_is_used_where_there_is_no_other_broker() -> None:
    broker = ScriptedBroker({})
    async with cluster_of(broker) as cluster:
        await cluster.refresh(())
        broker.script[MetadataRequest] = Reaction.HOLD
        reported = metadata({1: broker.address}, {})
        asyncio.get_running_loop().call_later(OPERATION_SECONDS / 3, broker.release, reported)
        _, seconds = await timed(cluster.refresh(()))
        assert OPERATION_SECONDS / 3 <= seconds < OPERATION_SECONDS / 3 + 1
        assert len(broker.seen(MetadataRequest)) == 2


@in_virtual_time
async def test_hung_controller_is_left_for_its_successor() -> None:
    def topics(error: ErrorCode) -> CreateTopicsResponse:
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="orders", error_code=error)])

    former = ScriptedBroker({CreateTopicsRequest: Reaction.SILENCE}, node_id=1)
    present = ScriptedBroker({CreateTopicsRequest: topics(ErrorCode.NONE)}, node_id=2)
    async with cluster_of(former, present) as cluster:
        both = {1: former.address, 2: present.address}
        former.script[MetadataRequest] = in_turn(metadata(both, {}, controller_id=1), Reaction.SILENCE)
        present.script[MetadataRequest] = metadata(both, {}, controller_id=2)
        response, seconds = await timed(cluster.call(Controller(), CreateTopicsRequest(), CreateTopicsResponse))
        assert response.topics[0].error_code == ErrorCode.NONE
        assert seconds < OPERATION_SECONDS


@in_virtual_time
async def test_request_for_every_broker_waits_for_hung_ones_at_the_same_time() -> None:
    brokers = [ScriptedBroker({ListGroupsRequest: Reaction.SILENCE}, node_id=node_id) for node_id in (1, 2, 3)]
    async with cluster_of(*brokers) as cluster:
        call = call_every_broker(cluster, ListGroupsRequest(), ListGroupsResponse, lambda _: ())
        with pytest.raises(RequestTimedOut):
            await asyncio.wait_for(call, OPERATION_SECONDS + SOON_SECONDS)
        assert all(broker.seen(ListGroupsRequest) for broker in brokers)


@pytest.mark.parametrize("broker_id", [1, 2])
def test_broker_that_recovers_is_used_again(broker_id: int) -> None:
    @in_virtual_time
    async def play() -> None:
        brokers = [ScriptedBroker({ListGroupsRequest: ListGroupsResponse()}, node_id=node_id) for node_id in (1, 2)]
        async with cluster_of(*brokers) as cluster:
            await cluster.refresh(())
            paused = brokers[broker_id - 1]
            paused.script[ListGroupsRequest] = in_turn(Reaction.SILENCE, ListGroupsResponse())
            _, seconds = await timed(cluster.call(Node(broker_id), ListGroupsRequest(), ListGroupsResponse))
            assert seconds <= OPERATION_SECONDS / 2 + 1
            connection = await cluster.connection_to(broker_id)
            assert isinstance(connection, Connection)
            assert connection.requests_in_flight == 0

    play()


@in_virtual_time
async def test_call_without_a_response_times_out() -> None:
    first, second = ScriptedBroker({}, node_id=1), ScriptedBroker({}, node_id=2)
    async with cluster_of(first, second) as cluster:
        await cluster.refresh(())
        first.script[MetadataRequest] = second.script[MetadataRequest] = Reaction.SILENCE
        call = cluster.call(AnyBroker(), MetadataRequest(), MetadataResponse)
        with pytest.raises(ClientError):
            await asyncio.wait_for(call, OPERATION_SECONDS + SOON_SECONDS)


@in_virtual_time
async def test_addresses_that_refuse_connections_are_unreachable() -> None:
    async with Cluster([Address("127.0.0.1", 1)], rng=Random(1)) as cluster:
        for port in (-1, 0, 65536, 2**31 - 1):
            cluster.brokers[1] = Address("127.0.0.1", port)
            with pytest.raises(Unreachable, match=str(port)):
                await cluster.connection_to(1)
