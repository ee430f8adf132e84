"""The frame proxy does to frames what its script says, and clients find no way around it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from oncelog.clients import VERSION
from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.errors import ClientError
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import parse_request_header, parse_response
from oncelog.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.frame_proxy.exchange import Request
from tests.frame_proxy.proxy import FrameProxy
from tests.frame_proxy.proxy_thread import ProxyThread
from tests.frame_proxy.script import FORWARD, Action, Cut, Delay, ForwardEverything, LateFrame, Script
from tests.interop.broker_under_test import needs_one_broker
from tests.processes import LIMIT_SECONDS, BrokerProcess

pytestmark = needs_one_broker("about the proxy, in front of one")


class OneFault(ForwardEverything):
    """Does ``action`` to the first request of an API and copies it; all is late until the clients are gone."""

    def __init__(self, api: ApiKey, action: Action) -> None:
        self._api = api
        self._action = action
        self.late: list[LateFrame] = []
        self.order: list[tuple[str, ApiKey]] = []
        self.responses: list[memoryview | None] = []

    def requested(self, request: Request) -> Action:
        self.order.append(("request", request.api))
        if request.api is not self._api or self.late:
            return FORWARD
        held_on = request.connection if isinstance(self._action, Cut) else None
        self.late.append(LateFrame(request.frame, "proxy-test", held_on))
        return self._action

    def responded(self, request: Request, response: memoryview) -> Sequence[LateFrame]:
        self.order.append(("answer", request.api))
        return ()

    def remaining(self) -> Sequence[LateFrame]:
        return self.late

    def delivered(self, late: LateFrame, response: memoryview | None) -> None:
        self.responses.append(response)


@asynccontextmanager
async def proxied(broker: BrokerProcess, script: Script) -> AsyncIterator[tuple[FrameProxy, Address]]:
    async with asyncio.timeout(LIMIT_SECONDS), asyncio.TaskGroup() as tasks:
        proxy = FrameProxy([int(broker.address.rpartition(":")[2])], script)
        await proxy.start(tasks)
        (address,) = proxy.addresses
        yield proxy, Address(*address)
        proxy.stop()


def init_producer_id(transactional_id: str) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)


async def epoch_of(connection: Connection, transactional_id: str) -> int:
    """Initialise the producer until its coordinator is loaded; each time bumps its epoch."""
    while True:
        response = await connection.send(init_producer_id(transactional_id), InitProducerIdResponse)
        if response.error_code == ErrorCode.NONE:
            return response.producer_epoch
        await connection.send(
            FindCoordinatorRequest(key_type=1, key=transactional_id, coordinator_keys=[transactional_id]),
            FindCoordinatorResponse,
        )


async def test_responses_that_name_a_broker_name_the_proxy(broker: BrokerProcess) -> None:
    async with proxied(broker, ForwardEverything()) as (proxy, address):
        connection = await connect(address)
        ports = {b.port for b in (await connection.send(MetadataRequest(topics=[]), MetadataResponse)).brokers}
        ports |= {b.port for b in (await connection.send(DescribeClusterRequest(), DescribeClusterResponse)).brokers}
        await epoch_of(connection, "proxy-names")
        requested = FindCoordinatorRequest(key_type=1, coordinator_keys=["proxy-names"])
        ports |= {c.port for c in (await connection.send(requested, FindCoordinatorResponse)).coordinators}
        connection.close()
    assert ports == {address.port}
    assert proxy.record.software() == {f"oncelog {VERSION}"}
    assert proxy.record.versions(ApiKey.METADATA) == {MetadataRequest.versions.last}


async def test_held_frame_arrives_after_its_client_is_gone(broker: BrokerProcess) -> None:
    script = OneFault(ApiKey.INIT_PRODUCER_ID, Cut())
    async with proxied(broker, script) as (proxy, address):
        direct = await connect(Address("127.0.0.1", int(broker.address.rpartition(":")[2])))
        before = await epoch_of(direct, "proxy-held")
        client = await connect(address)
        try:
            await client.send(init_producer_id("proxy-held"), InitProducerIdResponse)
            raise AssertionError("the connection was to be cut")
        except ClientError:
            pass
        assert await epoch_of(direct, "proxy-held") == before + 1, "the held frame has not arrived"
        await proxy.deliver_remaining()
        assert await epoch_of(direct, "proxy-held") == before + 3, "the held frame has arrived"
        direct.close()
    assert len(script.responses) == 1
    assert script.responses[0] is not None


async def test_copied_frame_arrives_over_another_connection(broker: BrokerProcess) -> None:
    script = OneFault(ApiKey.LIST_TRANSACTIONS, FORWARD)
    async with proxied(broker, script) as (proxy, address):
        client = await connect(address)
        await client.send(ListTransactionsRequest(), ListTransactionsResponse)
        client.close()
        await proxy.deliver_remaining()
    (response,) = script.responses
    header, _ = parse_request_header(memoryview(script.late[0].frame))
    assert response is not None
    parse_response(ListTransactionsResponse, header.api_version, response)


async def test_delayed_frame_is_overtaken_by_other_connections_only(broker: BrokerProcess) -> None:
    script = OneFault(ApiKey.LIST_TRANSACTIONS, Delay(500))
    async with proxied(broker, script) as (_, address):
        delayed, other = await connect(address), await connect(address)
        listed = delayed.send(ListTransactionsRequest(), ListTransactionsResponse)
        behind = delayed.send(DescribeClusterRequest(), DescribeClusterResponse)
        await other.send(MetadataRequest(topics=[]), MetadataResponse)
        assert not listed.done()
        assert not behind.done()
        await behind
        assert listed.done()
        delayed.close()
        other.close()
    responded = [api for what, api in script.order if what == "answer" and api is not ApiKey.API_VERSIONS]
    assert responded == [ApiKey.METADATA, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_CLUSTER]


async def test_client_that_stays_connected_at_the_end_is_cut(broker: BrokerProcess) -> None:
    with ProxyThread(broker.address) as proxy:
        host, _, port = proxy.address.rpartition(":")
        client = await connect(Address(host, int(port)))
        await client.send(MetadataRequest(topics=[]), MetadataResponse)
    with pytest.raises(ClientError):
        async with asyncio.timeout(LIMIT_SECONDS):
            await client.send(MetadataRequest(topics=[]), MetadataResponse)
