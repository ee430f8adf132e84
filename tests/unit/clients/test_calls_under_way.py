"""``close`` ends every call under way at once, with the exception that says that the client is closed. Virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import pytest

from oncelog.clients.admin.admin import Admin
from oncelog.clients.calls_under_way import CallsUnderWay
from oncelog.clients.consumer.consumer import Consumer
from oncelog.clients.consumer.consumer_errors import ConsumerClosed
from oncelog.clients.errors import ClientClosed, ProducerClosed
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.producer.producer import Producer
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.list_offsets import ListOffsetsRequest
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.admin.test_unanswered_calls import CALLS as ADMIN_CALLS
from tests.unit.clients.scripted_broker import Reaction, ScriptedBroker, metadata, requested_only

_ORDERS: Final = TopicPartition("orders", 0)
_BEFORE_CLOSE_SECONDS: Final = (0.0, 0.01, 0.7, 3.0)
"""The moments at which the client is closed: before the first attempt, in it, and in the pauses between others."""
_AT_ONCE_SECONDS: Final = 0.05


PRODUCER_CALLS: Final[dict[str, Callable[[Producer], Awaitable[Any]]]] = {
    "send": lambda producer: producer.send("new", b"x"),
    "partitions_for": lambda producer: producer.partitions_for("new"),
    "init_transactions": lambda producer: producer.init_transactions(),
}
CONSUMER_CALLS: Final[dict[str, Callable[[Consumer], Awaitable[Any]]]] = {
    "poll": lambda consumer: consumer.poll(60),
    "position": lambda consumer: consumer.position(_ORDERS),
    "commit": lambda consumer: consumer.commit({_ORDERS: OffsetAndMetadata(1)}),
    "committed": lambda consumer: consumer.committed([_ORDERS]),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({_ORDERS: 1}),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([_ORDERS]),
    "end_offsets": lambda consumer: consumer.end_offsets([_ORDERS]),
}


async def seconds_after_close(
    call: Awaitable[Any], close: Callable[[], Coroutine[Any, Any, None]], before: float, error: type[ClientClosed]
) -> float:
    """How long a call goes on after the client is closed, which it ends with ``error``."""
    loop = asyncio.get_running_loop()

    async def ended_at() -> float:
        with pytest.raises(error, match="closed"):
            await call
        return loop.time()

    async with asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(ended_at())
        await asyncio.sleep(before)
        assert not calling.done()
        closed_at = loop.time()
        tasks.create_task(close())
        return await calling - closed_at


@pytest.mark.parametrize("before", _BEFORE_CLOSE_SECONDS)
@pytest.mark.parametrize(("client", "error"), [(Producer, ProducerClosed), (Consumer, ConsumerClosed)])
@in_virtual_time
async def test_start_ends_when_client_is_closed_and_its_address_is_silent(
    client: type[Producer | Consumer], error: type[ClientClosed], before: float
) -> None:
    broker = ScriptedBroker({MetadataRequest: Reaction.SILENCE})
    broker.api_versions = Reaction.SILENCE
    address = await broker.start()
    one = client(f"{address.host}:{address.port}")
    assert await seconds_after_close(one.start(), one.close, before, error) < _AT_ONCE_SECONDS
    broker.stop()


@in_virtual_time
async def test_consumer_start_ends_when_it_is_closed_between_two_attempts() -> None:
    """The address accepts and hangs up, so that most of the time is spent in pauses."""
    broker = ScriptedBroker({MetadataRequest: Reaction.CLOSE})
    address = await broker.start()
    consumer = Consumer(f"{address.host}:{address.port}")
    assert await seconds_after_close(consumer.start(), consumer.close, 2.0, ConsumerClosed) < _AT_ONCE_SECONDS
    broker.stop()


@pytest.mark.parametrize("before", _BEFORE_CLOSE_SECONDS)
@pytest.mark.parametrize("name", ADMIN_CALLS)
@in_virtual_time
async def test_admin_call_ends_when_admin_is_closed(name: str, before: float) -> None:
    broker = ScriptedBroker({MetadataRequest: Reaction.SILENCE})
    broker.api_versions = Reaction.SILENCE
    address = await broker.start()
    admin = Admin(f"{address.host}:{address.port}")
    call, _ = ADMIN_CALLS[name]
    assert await seconds_after_close(call(admin), admin.close, before, ClientClosed) < _AT_ONCE_SECONDS
    with pytest.raises(ClientClosed):
        await call(admin)
    broker.stop()


@in_virtual_time
async def test_admin_call_ends_when_admin_is_closed_between_two_attempts() -> None:
    broker = ScriptedBroker({MetadataRequest: Reaction.CLOSE})
    address = await broker.start()
    admin = Admin(f"{address.host}:{address.port}")
    assert await seconds_after_close(admin.list_topics(), admin.close, 2.0, ClientClosed) < _AT_ONCE_SECONDS
    broker.stop()


async def _started_broker() -> tuple[ScriptedBroker, str]:
    """A broker that tells of its topic, and says nothing to anything else."""
    silent = (FindCoordinatorRequest, InitProducerIdRequest, ListOffsetsRequest, ProduceRequest)
    broker = ScriptedBroker(dict.fromkeys(silent, Reaction.SILENCE))
    address = await broker.start()
    broker.script[MetadataRequest] = requested_only(metadata({1: address}, {"orders": [1]}))
    return broker, f"{address.host}:{address.port}"


@pytest.mark.parametrize("before", _BEFORE_CLOSE_SECONDS)
@pytest.mark.parametrize("name", PRODUCER_CALLS)
@in_virtual_time
async def test_producer_call_ends_when_producer_is_closed(name: str, before: float) -> None:
    broker, bootstrap = await _started_broker()
    transactional_id = "id" if name == "init_transactions" else None
    producer = Producer(bootstrap, transactional_id=transactional_id)
    await producer.start()

    async def close() -> None:
        await producer.close(0.01)  # The time that the call of a transaction has to end.

    call = PRODUCER_CALLS[name](producer)
    assert await seconds_after_close(call, close, before, ProducerClosed) < _AT_ONCE_SECONDS
    broker.stop()


@pytest.mark.parametrize("before", _BEFORE_CLOSE_SECONDS)
@in_virtual_time
async def test_send_that_waits_for_metadata_ends_while_producer_delivers_what_it_accepted(before: float) -> None:
    broker, bootstrap = await _started_broker()
    broker.script[InitProducerIdRequest] = InitProducerIdResponse(producer_id=1, producer_epoch=0)
    producer = Producer(bootstrap)
    await producer.start()
    delivery = await producer.send("orders", b"accepted")
    broker.script[MetadataRequest] = Reaction.SILENCE  # As of all that comes behind the produce.

    async def close() -> None:
        await producer.close(5)

    assert await seconds_after_close(producer.send("new", b"x"), close, before, ProducerClosed) < _AT_ONCE_SECONDS
    with pytest.raises(ProducerClosed):
        await delivery
    broker.stop()


@pytest.mark.parametrize("before", _BEFORE_CLOSE_SECONDS)
@pytest.mark.parametrize("name", CONSUMER_CALLS)
@in_virtual_time
async def test_consumer_call_ends_when_consumer_is_closed(name: str, before: float) -> None:
    broker, bootstrap = await _started_broker()
    consumer = Consumer(bootstrap, group_id="group")
    await consumer.start()
    consumer.assign([_ORDERS])

    async def close() -> None:
        await consumer.close(0.01)  # The time that a commit has to end.

    call = CONSUMER_CALLS[name](consumer)
    assert await seconds_after_close(call, close, before, ConsumerClosed) < _AT_ONCE_SECONDS
    broker.stop()


@in_virtual_time
async def test_consumer_call_that_waits_for_its_group_ends_when_consumer_is_closed() -> None:
    broker, bootstrap = await _started_broker()
    consumer = Consumer(bootstrap, group_id="group")
    await consumer.start()
    consumer.subscribe(["orders"])
    assert await seconds_after_close(consumer.poll(60), consumer.close, 3.0, ConsumerClosed) < _AT_ONCE_SECONDS
    broker.stop()


@in_virtual_time
async def test_call_that_closes_its_own_client_is_not_ended() -> None:
    calls = CallsUnderWay("client")
    async with calls.one():
        calls.close()
        await asyncio.sleep(1)
    with pytest.raises(ClientClosed, match="the client is closed"):
        async with calls.one():
            raise AssertionError("it does not begin")


@in_virtual_time
async def test_time_out_of_a_call_is_not_taken_for_the_end_of_its_client() -> None:
    calls = CallsUnderWay("client")
    with pytest.raises(TimeoutError):
        async with calls.one(), asyncio.timeout(0.1):
            await asyncio.sleep(1)


@pytest.mark.parametrize("turns", range(6))
@in_virtual_time
async def test_second_close_while_calls_are_ending_ends_them_as_one_does(turns: int) -> None:
    calls, outcomes = CallsUnderWay("client"), list[str]()

    async def wait() -> None:
        async with calls.one():
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0)

    async def call() -> None:
        with pytest.raises(ClientClosed):
            await wait()
        outcomes.append("closed")

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(call())
        await asyncio.sleep(0.01)
        calls.close()
        for _ in range(turns):
            await asyncio.sleep(0)
        calls.close()
    assert outcomes == ["closed"] * 3
