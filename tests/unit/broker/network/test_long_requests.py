"""Which requests are weighed, and how many bytes of them may be under way at once."""

import asyncio
from typing import Any

import pytest

from oncelog.broker.dispatch.api_handler import handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.network.long_requests import LARGE_BYTES, LONG_BYTES, MOST_DENSE_BYTES, Account, LongRequests
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.unit.broker.network.frame_client import frame, run, serve
from tests.unit.broker.network.test_connection import settle, until

_NOT_WEIGHED = {ApiKey.PRODUCE, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS}


def account_of(key: int, size: int) -> Account | None:
    return LongRequests().account_of(memoryview(key.to_bytes(2) + bytes(size - 2)))


@pytest.mark.parametrize("key", list(ApiKey))
def test_large_request_of_every_api_is_weighed_unless_it_is_bounded_otherwise(key: ApiKey) -> None:
    assert (account_of(key, LARGE_BYTES) is None) == (key in _NOT_WEIGHED)
    assert account_of(key, LONG_BYTES - 1) is None


def test_request_of_an_unknown_api_is_not_weighed() -> None:
    assert account_of(9_999, LARGE_BYTES) is None


def test_account_has_room_for_its_bytes_and_for_one_request_of_any_size() -> None:
    account = Account(100, 10)
    assert account.has_room(1_000)
    account.begun(60)
    assert account.has_room(40)
    assert not account.has_room(41)


def test_markers_and_changes_of_replicas_wait_for_no_request_that_may_wait_for_them() -> None:
    requests = LongRequests()
    keys = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS, ApiKey.ALTER_PARTITION, ApiKey.FETCH)
    accounts = [requests.account_of(memoryview(int(key).to_bytes(2) + bytes(LARGE_BYTES))) for key in keys]
    assert len(set(map(id, accounts))) == len(keys)


def adding() -> AddPartitionsToTxnRequest:
    topic = AddPartitionsToTxnTopic(name="t", partitions=list(range(65_000)))
    return AddPartitionsToTxnRequest(v3_and_below_transactional_id="t", v3_and_below_topics=[topic])


def epochs() -> OffsetForLeaderEpochRequest:
    partitions = [OffsetForLeaderPartition(partition=number) for number in range(22_000)]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=partitions)])


@pytest.mark.parametrize("loop_name", ["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("key", "version", "request_", "response"),
    [
        (ApiKey.ADD_PARTITIONS_TO_TXN, 0, adding(), AddPartitionsToTxnResponse()),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, epochs(), OffsetForLeaderEpochResponse()),
    ],
    ids=["adding", "epochs"],
)
def test_large_requests_are_few_at_a_time_and_delay_no_small_ones(
    loop_name: str, key: ApiKey, version: int, request_: Any, response: Any
) -> None:
    most_at_once = MOST_DENSE_BYTES // (len(frame(1, request_, version)) - 4)
    count = 3 * most_at_once

    async def scenario() -> None:
        under_way, most = 0, 0
        may_end = asyncio.Event()

        async def handle(broker: Any, context: RequestContext, request: Any) -> Any:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await may_end.wait()
            under_way -= 1
            return response

        handle.__annotations__["request"] = type(request_)

        @handles(ApiKey.HEARTBEAT, versions="0-4")
        def handle_heartbeat(broker: Any, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
            return HeartbeatResponse()

        async with serve([handles(key, versions=str(version))(handle), handle_heartbeat]) as served:
            clients = [await served.connect() for _ in range(count)]
            for number, client in enumerate(clients):
                client.send((number, request_, version))
                await settle()
            await until(lambda: under_way == most_at_once)
            other = await served.connect()
            other.send((1, HeartbeatRequest(), 0))
            assert await other.correlation_ids(1) == [1]
            may_end.set()
            for number, client in enumerate(clients):
                assert await client.correlation_ids(1) == [number]
        assert most == most_at_once > 1

    run(loop_name, scenario)
