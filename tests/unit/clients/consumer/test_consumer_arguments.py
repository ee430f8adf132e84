"""Arguments that no request can hold: refused at the call, and every partition is read on."""

import asyncio
import math
import re
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from oncelog.clients.consumer import Consumer, ConsumerConfig
from oncelog.clients.errors import IllegalState
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.protocol.messages.offset_commit import OffsetCommitRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.consumer.fetched import ORDERS
from tests.unit.clients.consumer.scripted_group import GroupBroker
from tests.unit.clients.consumer.scripted_log import Leader, ScriptedMetadata, connected, reading

SECOND = TopicPartition("orders", 1)
BAD_TOPICS: dict[str, Any] = {"lone surrogate": "\ud800", "long": "x" * 40_000, "bytes": b"x", "null": None}
BAD_PARTITIONS: dict[str, Any] = {"large": 2**40, "negative": -1, "float": 1.5}
BAD_OFFSETS: dict[str, Any] = {
    "large": 2**63,
    "negative": -1,
    "float": 1.5,
    "float with metadata": OffsetAndMetadata(1.5),  # type: ignore[arg-type]
    "large leader epoch": OffsetAndMetadata(0, 2**40),
    "lone surrogate": OffsetAndMetadata(0, metadata="\ud800"),
}


def refused(call: Callable[[Consumer], Any]) -> None:
    """The call raises, and what is assigned is read as before."""

    @in_virtual_time
    async def play() -> None:
        broker = Leader(batches=1)
        async with reading(broker, reported=ScriptedMetadata([1, 1]), partitions=[ORDERS, SECOND]) as consumer:
            broker.batches[1] = 1
            with pytest.raises((ValueError, TypeError)):
                async with asyncio.timeout(10):
                    await call(consumer)
            records = [record for _ in range(3) for record in await consumer.poll(1.0)]
            assert sorted((record.partition, record.offset) for record in records) == [(0, 0), (0, 1), (1, 0), (1, 1)]

    play()


def test_poll_with_zero_records_takes_none_and_a_negative_number_raises() -> None:
    @in_virtual_time
    async def play() -> None:
        async with reading(Leader(batches=1), reported=ScriptedMetadata([1]), partitions=[ORDERS]) as consumer:
            assert await consumer.poll(0.0, 0) == []
            assert await consumer.poll(0.0, max_records=0) == []
            with pytest.raises(ValueError, match="max_records -1 is not between 0"):
                await consumer.poll(0.0, -1)
            assert [record.offset for record in await consumer.poll(1.0)] == [0, 1]

    play()


async def at_once(call: Callable[[], None]) -> None:
    call()


BAD_NAMES = [TopicPartition(topic, 0) for topic in BAD_TOPICS.values()]
BAD_NAMES += [TopicPartition("orders", partition) for partition in BAD_PARTITIONS.values()]
NAME_IDS = [*BAD_TOPICS, *BAD_PARTITIONS]


@pytest.mark.parametrize("bad", BAD_NAMES, ids=NAME_IDS)
def test_assign_of_name_that_no_request_can_hold_is_refused(bad: TopicPartition) -> None:
    refused(lambda consumer: at_once(lambda: consumer.assign([ORDERS, SECOND, bad])))


@pytest.mark.parametrize("bad", BAD_NAMES, ids=NAME_IDS)
def test_offsets_of_name_that_no_request_can_hold_are_refused(bad: TopicPartition) -> None:
    refused(lambda consumer: consumer.end_offsets([ORDERS, bad]))


@pytest.mark.parametrize("bad", BAD_OFFSETS.values(), ids=BAD_OFFSETS)
def test_seek_to_offset_that_no_request_can_hold_is_refused(bad: Any) -> None:
    refused(lambda consumer: at_once(lambda: consumer.seek(SECOND, bad)))


@pytest.mark.parametrize("bad", [2**70, -(2**70), 1.5])
def test_target_time_that_no_request_can_hold_is_refused(bad: Any) -> None:
    refused(lambda consumer: consumer.offsets_for_times({ORDERS: bad}))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -0.5, "1", True], ids=str)
def test_timeout_that_is_not_finite_or_is_negative_is_refused(bad: Any) -> None:
    refused(lambda consumer: consumer.poll(bad))
    refused(lambda consumer: consumer.position(ORDERS, bad))
    refused(lambda consumer: consumer.end_offsets([ORDERS], bad))
    refused(lambda consumer: consumer.close(bad))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.5], ids=str)
def test_timeout_of_commit_that_is_not_finite_or_is_negative_is_refused(bad: float) -> None:
    @in_virtual_time
    async def play() -> None:
        async with connected(GroupBroker(), reported=ScriptedMetadata([1]), group_id="group") as consumer:
            consumer.assign([ORDERS])
            for call in (consumer.commit({ORDERS: OffsetAndMetadata(1)}, bad), consumer.committed([ORDERS], bad)):
                with pytest.raises(ValueError, match="timeout_seconds"):
                    await call
            await consumer.commit({ORDERS: OffsetAndMetadata(1)})

    play()


@pytest.mark.parametrize("bad", BAD_TOPICS.values(), ids=BAD_TOPICS)
def test_subscription_to_name_that_no_request_can_hold_is_refused(bad: Any) -> None:
    @in_virtual_time
    async def play() -> None:
        async with connected(GroupBroker(), reported=ScriptedMetadata([1]), group_id="group") as consumer:
            with pytest.raises((ValueError, TypeError)):
                consumer.subscribe(["orders", bad])
            assert consumer.subscription == frozenset()

    play()


@pytest.mark.parametrize("bad", BAD_OFFSETS.values(), ids=BAD_OFFSETS)
def test_commit_of_offset_that_no_request_can_hold_is_refused(bad: Any) -> None:
    @in_virtual_time
    async def play() -> None:
        async with connected(GroupBroker(), reported=ScriptedMetadata([1]), group_id="group") as consumer:
            consumer.assign([ORDERS])
            with pytest.raises((ValueError, TypeError, AttributeError)):
                await consumer.commit({ORDERS: bad})
            await consumer.commit({ORDERS: OffsetAndMetadata(1)})

    play()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda c: c.assign(ORDERS), "partitions must be a collection of TopicPartition, not TopicPartition: put it"),
        (lambda c: c.assign("orders"), "partitions must be a collection of TopicPartition, not str"),
        (lambda c: c.assign(["orders"]), "a partition must be a TopicPartition, not str"),
        (lambda c: c.assign(None), "partitions must be a collection of TopicPartition, not NoneType"),
        (lambda c: c.seek("orders", 3), "a partition must be a TopicPartition, not str"),
        (lambda c: c.seek(ORDERS, "3"), "offset must be int, not str"),
        (lambda c: c.seek_to_beginning(ORDERS), "partitions must be a collection of TopicPartition"),
        (lambda c: c.seek_to_end("orders"), "partitions must be a collection of TopicPartition"),
        (lambda c: c.pause(ORDERS), "partitions must be a collection of TopicPartition"),
        (lambda c: c.resume(None), "partitions must be a collection of TopicPartition"),
        (lambda c: c.lag("orders"), "a partition must be a TopicPartition, not str"),
        (lambda c: c.position(["orders"]), "a partition must be a TopicPartition, not list"),
        (lambda c: c.poll(0.1, max_records="3"), "max_records must be int, not str"),
        (lambda c: c.commit({ORDERS: 3}), "the offset of orders-0 must be OffsetAndMetadata, not int: pass OffsetAndM"),
        (lambda c: c.commit([ORDERS]), "offsets must be a mapping of TopicPartition to OffsetAndMetadata, not list"),
        (lambda c: c.committed(ORDERS), "partitions must be a collection of TopicPartition"),
        (lambda c: c.offsets_for_times([ORDERS]), "timestamps must be a mapping of TopicPartition to timestamps"),
        (lambda c: c.end_offsets(ORDERS), "partitions must be a collection of TopicPartition"),
        (lambda c: c.beginning_offsets("orders"), "partitions must be a collection of TopicPartition"),
    ],
)
def test_argument_of_another_type_raises_type_error_that_names_it(call: Callable[[Consumer], Any], text: str) -> None:
    @in_virtual_time
    async def play() -> None:
        async with connected(GroupBroker(), reported=ScriptedMetadata([1]), group_id="group") as consumer:
            consumer.assign([ORDERS])
            with pytest.raises(TypeError, match=f"^{re.escape(text)}"):
                await call(consumer)
            assert consumer.assignment == {ORDERS}

    play()


@pytest.mark.parametrize(
    ("topics", "listener", "error", "text"),
    [
        ("orders", None, TypeError, "topics must be a collection of str, not str: put it into a list"),
        (3, None, TypeError, "topics must be a collection of str, not int"),
        ([3], None, TypeError, "topics[0] must be str, not int"),
        (re.compile(b"orders"), None, TypeError, "the pattern of a subscription must be str, not bytes"),
        ([], None, ValueError, "topics must not be empty: to end a subscription, call unsubscribe()"),
        (["orders"], print, TypeError, "listener must be RebalanceListener or None, not builtin_function_or_method"),
    ],
)
def test_subscription_of_another_type_raises_an_error_that_names_it(
    topics: Any, listener: Any, error: type[Exception], text: str
) -> None:
    @in_virtual_time
    async def play() -> None:
        async with connected(GroupBroker(), reported=ScriptedMetadata([1]), group_id="group") as consumer:
            with pytest.raises(error, match=f"^{re.escape(text)}"):
                consumer.subscribe(topics, listener)
            assert consumer.subscription == frozenset()

    play()


def test_commit_holds_offsets_as_they_were_at_the_call() -> None:
    @in_virtual_time
    async def play() -> None:
        broker = GroupBroker()
        async with connected(broker, reported=ScriptedMetadata([1]), group_id="group") as consumer:
            consumer.assign([ORDERS])
            offsets = {ORDERS: OffsetAndMetadata(7)}
            async with asyncio.TaskGroup() as group:
                group.create_task(consumer.commit({ORDERS: OffsetAndMetadata(1)}))
                group.create_task(consumer.commit(offsets))
                await asyncio.sleep(0)
                offsets[ORDERS] = OffsetAndMetadata(9)
            requests = broker.seen(OffsetCommitRequest)
            assert [request.topics[0].partitions[0].committed_offset for request in requests] == [1, 7]

    play()


@in_virtual_time
async def test_poll_before_start_is_refused_with_what_to_do() -> None:
    consumer = Consumer(ConsumerConfig(bootstrap="here", group_id="group"), rng=Random(1), wall_clock=lambda: 0)
    consumer.subscribe(["orders"])
    with pytest.raises(IllegalState, match=r"async with Consumer.* await start\(\)"):
        await consumer.poll(1.0)
    await consumer.close()
