"""Fencing a producer from outside, without making transactional ids or changing their time-outs."""

import pytest

from oncelog.clients.admin.fencing import fence_producers, force_terminate_transaction
from oncelog.clients.errors import BrokerRefused, Refusal
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.schema import Message
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.admin.coordinator_scripts import ORDERS, Scene, producer, transaction
from tests.unit.clients.scripted_cluster import cluster_of, in_turn

FENCED = InitProducerIdResponse(producer_id=7, producer_epoch=5)


def scene(response: object = FENCED) -> Scene:
    made = Scene(open_transactions=[producer()], says=transaction(ORDERS))
    made.broker.script[InitProducerIdRequest] = response  # type: ignore[assignment]
    return made


def requested(made: Scene) -> list[InitProducerIdRequest]:
    return [each for each in made.broker.requests if isinstance(each, InitProducerIdRequest)]


@in_virtual_time
async def test_fencing_keeps_the_time_out_and_names_no_producer() -> None:
    made = scene()
    async with cluster_of(made.broker) as cluster:
        fencing = await force_terminate_transaction(cluster, "billing")
        assert (fencing.before.producer_id, fencing.before.producer_epoch) == (7, 3)
        assert (fencing.producer_id, fencing.producer_epoch) == (7, 5)
        (request,) = requested(made)
        assert (request.transactional_id, request.transaction_timeout_ms) == ("billing", 45_000)
        assert (request.producer_id, request.producer_epoch) == (-1, -1)


@in_virtual_time
async def test_fencing_of_an_unknown_id_does_not_create_it() -> None:
    made = scene()
    async with cluster_of(made.broker) as cluster:
        with pytest.raises(BrokerRefused, match="TRANSACTIONAL_ID_NOT_FOUND"):
            await force_terminate_transaction(cluster, "shipping")
        outcomes = await fence_producers(cluster, ["shipping"])
        assert outcomes == {"shipping": Refusal(error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)}
        assert not requested(made)


@in_virtual_time
async def test_time_out_that_is_no_longer_allowed_is_replaced() -> None:
    """As that of a two-phase commit, which has none."""

    def respond(request: Message) -> Message:
        assert isinstance(request, InitProducerIdRequest)
        if request.transaction_timeout_ms == 30_000:
            return FENCED
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_TRANSACTION_TIMEOUT)

    async with cluster_of(scene(respond).broker) as cluster:
        assert (await force_terminate_transaction(cluster, "billing")).producer_epoch == 5


@in_virtual_time
async def test_fencing_returns_when_the_abort_is_complete() -> None:
    busy = InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
    made = scene(in_turn(busy, busy, FENCED))
    async with cluster_of(made.broker) as cluster:
        outcomes = await fence_producers(cluster, ["billing"])
        assert not isinstance(outcomes["billing"], Refusal)
        assert len(requested(made)) == 3
