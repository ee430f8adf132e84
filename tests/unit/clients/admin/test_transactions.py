"""Listing transactions: no filter is dropped on the way."""

from typing import Any

import pytest

from oncelog.clients.admin.transactions import list_transactions
from oncelog.clients.errors import VersionNotSupported
from oncelog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from oncelog.protocol.schema import Versions
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import ScriptedBroker
from tests.unit.clients.scripted_cluster import cluster_of


def lists(transactional_id: str) -> ListTransactionsResponse:
    listed = TransactionState(transactional_id=transactional_id, producer_id=7, transaction_state="Ongoing")
    return ListTransactionsResponse(transaction_states=[listed])


@in_virtual_time
async def test_list_transactions_joins_all_brokers_in_order_of_ids() -> None:
    one = ScriptedBroker({ListTransactionsRequest: lists("b")})
    two = ScriptedBroker({ListTransactionsRequest: lists("a")}, node_id=2)
    async with cluster_of(one, two) as cluster:
        listed = await list_transactions(cluster, states=["Ongoing"], producer_ids=[7])
        assert [(each.transactional_id, each.coordinator) for each in listed] == [("a", 2), ("b", 1)]
        (request,) = two.seen(ListTransactionsRequest)
        assert isinstance(request, ListTransactionsRequest)
        assert (request.state_filters, request.producer_id_filters, request.duration_filter) == (["Ongoing"], [7], -1)


@pytest.mark.parametrize(
    ("newest", "filters", "is_served"),
    [
        (0, {}, True),
        (0, {"running_longer_than_ms": 0}, False),
        (1, {"running_longer_than_ms": 0}, True),
        (1, {"transactional_id_pattern": "a.*"}, False),
        (2, {"transactional_id_pattern": "a.*"}, True),
    ],
)
def test_broker_without_a_filter_gets_no_request(newest: int, filters: dict[str, Any], is_served: bool) -> None:
    """It would list what was not requested."""

    @in_virtual_time
    async def play() -> None:
        broker = ScriptedBroker({ListTransactionsRequest: lists("a")})
        broker.versions[ListTransactionsRequest.api_key or 0] = Versions(0, newest)
        async with cluster_of(broker) as cluster:
            if is_served:
                assert len(await list_transactions(cluster, **filters)) == 1
            else:
                with pytest.raises(
                    VersionNotSupported,
                    match=f"versions 0 to {newest} of LIST_TRANSACTIONS, and this needs {newest + 1}",
                ):
                    await list_transactions(cluster, **filters)

    play()
