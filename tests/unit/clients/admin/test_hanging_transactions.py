"""Which open transactions hang, and which only seem to while they end."""

from dataclasses import replace

import pytest

from oncelog.clients.admin.hanging_transactions import Reason, find_hanging_transactions, why_hanging
from oncelog.clients.admin.transactions import TransactionDescription
from oncelog.clients.errors import BrokerRefused
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_producers import DescribeProducersRequest
from oncelog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from oncelog.protocol.messages.list_transactions import ListTransactionsRequest
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.admin.coordinator_scripts import NOW_MS, ORDERS, Scene, opened, producer, transaction
from tests.unit.clients.scripted_cluster import cluster_of

BILLS = TopicPartition("bills", 0)


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (None, Reason.NO_COORDINATOR),
        (transaction(ORDERS), None),
        (transaction(ORDERS, BILLS, state="PrepareCommit"), None),
        (transaction(BILLS), Reason.NOT_IN_TRANSACTION),
        (transaction(BILLS, state="PrepareAbort"), Reason.NOT_IN_TRANSACTION),
        (transaction(state="CompleteCommit"), Reason.NOT_IN_TRANSACTION),
        (transaction(state="Empty", start_ms=None), Reason.NOT_IN_TRANSACTION),
        (transaction(ORDERS, start_ms=NOW_MS - 1), Reason.TOO_LONG),
    ],
)
def test_open_transaction_is_reported_by_age_and_coordinator(
    says: TransactionDescription | None, reason: Reason | None
) -> None:
    assert why_hanging(opened(), says, NOW_MS) is reason


@in_virtual_time
async def test_hanging_transaction_is_found_however_young_it_is() -> None:
    scene = Scene(open_transactions=[producer(7), producer(8, start=None)], says=transaction(state="CompleteCommit"))
    async with cluster_of(scene.broker, leaders=scene.leaders) as cluster:
        findings = await find_hanging_transactions(cluster, [ORDERS], now_ms=NOW_MS)
        (found,) = findings.hanging
        assert found.open == opened()
        assert found.reason is Reason.NOT_IN_TRANSACTION
        assert found.coordinator_says == transaction(state="CompleteCommit")


@in_virtual_time
async def test_transaction_that_ends_between_two_requests_is_not_reported() -> None:
    """The partition was asked before the end, the coordinator after it."""
    scene = Scene(open_transactions=[producer()], says=transaction(state="CompleteCommit"))

    def ended(request: Message) -> Message:
        scene.open[ORDERS] = [producer(start=None)]
        return scene._list(request)

    scene.broker.script[ListTransactionsRequest] = ended
    async with cluster_of(scene.broker, leaders=scene.leaders) as cluster:
        assert (await find_hanging_transactions(cluster, [ORDERS], now_ms=NOW_MS)).hanging == ()
        assert len(scene.broker.seen(DescribeProducersRequest)) == 2


@in_virtual_time
async def test_transaction_followed_by_the_next_one_is_not_reported() -> None:
    scene = Scene(open_transactions=[producer(start=10)], says=transaction(state="CompleteCommit"))

    def went_on(request: Message) -> Message:
        scene.open[ORDERS] = [producer(start=12)]
        return scene._list(request)

    scene.broker.script[ListTransactionsRequest] = went_on
    async with cluster_of(scene.broker, leaders=scene.leaders) as cluster:
        assert (await find_hanging_transactions(cluster, [ORDERS], now_ms=NOW_MS)).hanging == ()


@in_virtual_time
async def test_transactions_are_not_listed_when_none_is_open() -> None:
    """No filter at all would ask for everything that there is."""
    scene = Scene(open_transactions=[producer(start=None)], says=transaction(ORDERS))
    async with cluster_of(scene.broker, leaders=scene.leaders) as cluster:
        assert (await find_hanging_transactions(cluster, [ORDERS], now_ms=NOW_MS)).hanging == ()
        assert not scene.broker.seen(ListTransactionsRequest)


@in_virtual_time
async def test_coordinator_that_refuses_is_not_taken_for_one_without_the_transaction() -> None:
    scene = Scene(open_transactions=[producer()], says=transaction(ORDERS))
    denied = TransactionState(transactional_id="billing", error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    scene.broker.script[DescribeTransactionsRequest] = DescribeTransactionsResponse(transaction_states=[denied])
    async with cluster_of(scene.broker, leaders=scene.leaders) as cluster:
        with pytest.raises(BrokerRefused, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await find_hanging_transactions(cluster, [ORDERS], now_ms=NOW_MS)


@in_virtual_time
async def test_broker_id_limits_the_search_to_replicas_of_that_broker() -> None:
    scene = Scene(open_transactions=[producer()], says=None)
    follower = Scene(open_transactions=[replace(producer(), transaction_start_offset=11)], says=None)
    follower.broker.node_id = 2
    async with cluster_of(scene.broker, follower.broker, leaders=scene.leaders) as cluster:
        (found,) = (await find_hanging_transactions(cluster, [ORDERS], now_ms=NOW_MS, broker_id=2)).hanging
        assert found.open.start_offset == 11
        assert not scene.broker.seen(DescribeProducersRequest)
