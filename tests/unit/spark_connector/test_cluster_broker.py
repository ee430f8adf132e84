"""The sink's requests to a cluster that is too old, or that does not answer; the rest is seen on real brokers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from clients.cluster import Cluster
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.schema import Versions
from spark_connector.sink.cluster_broker import ClusterBroker, SinkSettings
from spark_connector.sink.sink_broker import RowWriter
from spark_connector.sink.sink_errors import UnsupportedBroker
from spark_connector.sink.sink_transactions import TaskTransaction
from tests.unit.clients.scripted_broker import Reaction, ScriptedBroker

_SETTINGS = SinkSettings(state_topic="state", transaction_timeout_ms=60_000)


async def no_writer(transactional_id: str) -> RowWriter:
    raise AssertionError(transactional_id)


@asynccontextmanager
async def broker_over(scripted: ScriptedBroker) -> AsyncIterator[ClusterBroker]:
    address = await scripted.start()
    cluster = Cluster([address], rng=Random(1), operation_seconds=0.5)
    try:
        yield ClusterBroker(cluster, _SETTINGS, no_writer, {}, lambda: 0)
    finally:
        await cluster.close()
        scripted.stop()


def coordinates_all(request: FindCoordinatorRequest, scripted: ScriptedBroker) -> FindCoordinatorResponse:
    host, port = scripted.address
    found = [Coordinator(key=key, node_id=1, host=host, port=port) for key in request.coordinator_keys]
    return FindCoordinatorResponse(coordinators=found)


async def test_brokers_before_3_0_are_refused_by_what_they_lack() -> None:
    scripted = ScriptedBroker({})
    scripted.versions = {ApiKey.API_VERSIONS: Versions(0, 3), ApiKey.INIT_PRODUCER_ID: Versions(0, 4)}
    async with broker_over(scripted) as broker:
        with pytest.raises(UnsupportedBroker, match=r"LIST_TRANSACTIONS and DESCRIBE_TRANSACTIONS.*at-least-once"):
            await broker.require_support()


async def test_newer_brokers_are_not() -> None:
    scripted = ScriptedBroker({})
    served = (ApiKey.API_VERSIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_TRANSACTIONS)
    scripted.versions = {key: Versions(0, 0) for key in served}
    async with broker_over(scripted) as broker:
        await broker.require_support()
        assert await broker.transaction_version() == 1


@pytest.mark.parametrize(("version", "asked"), [(1, 4), (2, 5)])
async def test_a_transaction_ends_in_the_version_in_which_it_began(version: int, asked: int) -> None:
    """Version 5 and later of EndTxn bump the epoch, and mean version 2 of the protocol."""
    scripted = ScriptedBroker({EndTxnRequest: EndTxnResponse(producer_id=7, producer_epoch=4)})
    scripted.script[FindCoordinatorRequest] = lambda request: coordinates_all(request, scripted)  # type: ignore[arg-type]
    async with broker_over(scripted) as broker:
        (ended,) = await broker.end([TaskTransaction("s.1.p.0", 7, 3, version)], commit=True)
    assert ended.error is ErrorCode.NONE
    assert (EndTxnRequest, asked) in scripted.versions_asked


async def test_what_is_not_answered_is_to_be_asked_again() -> None:
    scripted = ScriptedBroker({EndTxnRequest: Reaction.CLOSE})
    scripted.script[FindCoordinatorRequest] = lambda request: coordinates_all(request, scripted)  # type: ignore[arg-type]
    async with broker_over(scripted) as broker:
        answers = await broker.end([TaskTransaction(f"s.1.p.{slot}", 7, 3, 2) for slot in range(3)], commit=True)
    assert [each.error for each in answers] == [ErrorCode.NETWORK_EXCEPTION] * 3
