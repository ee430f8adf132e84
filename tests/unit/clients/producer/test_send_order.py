"""Calls of ``send`` that wait, in virtual time: in which order, for how long, and at what cost for brokers."""

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import Any

import pytest

from oncelog.clients.errors import BrokerRefused, BufferFull, ClientError, OperationTimedOut, ProducerClosed
from oncelog.clients.producer import FutureRecordMetadata, Producer
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.schema import Message
from tests.simulation.virtual_loop import VirtualLoop
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.producer.producing_brokers import TOPIC, Stage
from tests.unit.clients.scripted_broker import Reaction


def now() -> float:
    return asyncio.get_running_loop().time()


async def elapsed(call: Awaitable[Any]) -> tuple[Any, float]:
    """What a call returns or raises, and after how many seconds."""
    started = now()
    try:
        return await call, now() - started
    except ClientError as error:
        return error, now() - started


def refusing(stage: Stage, error: ErrorCode) -> Any:
    """Responses to Metadata that refuse the topic."""

    def respond(request: Message) -> MetadataResponse:
        response = stage.metadata()
        response.topics = [MetadataResponseTopic(name=TOPIC, error_code=error)]
        return response

    return respond


# Order


@pytest.mark.parametrize("seed", range(10))
@in_virtual_time
async def test_sends_of_many_tasks_are_written_in_the_order_of_the_calls(seed: int) -> None:
    """Whatever a call waits for: a topic that is new, the sender, or space."""
    rng = Random(seed)
    stage = Stage(partitions=1)
    called: list[bytes] = []
    settings = rng.choice(({}, {"batch_bytes": 512}, {"max_request_bytes": 4096, "buffer_bytes": 8192}))
    async with stage.producing(linger_ms=rng.choice((0, 5)), **settings) as producer:

        async def produce(task: int) -> None:
            for number in range(100):
                value = b"%02d %03d" % (task, number) + bytes(rng.choice((10, 400)))
                called.append(value)
                await producer.send(TOPIC, value)
                if rng.random() < 0.3:
                    await asyncio.sleep(rng.choice((0, 0, 0.001)))

        async with asyncio.TaskGroup() as group:
            for task in range(20):
                group.create_task(produce(task))
    assert stage.values() == called


@in_virtual_time
async def test_sends_that_wait_and_are_cancelled_leave_the_others_in_order() -> None:
    stage = Stage(partitions=1)
    stage.topic_exists = False
    async with stage.producing() as producer, asyncio.TaskGroup() as group:
        tasks = [group.create_task(producer.send(TOPIC, b"%03d" % number)) for number in range(100)]
        await asyncio.sleep(1)
        for task in tasks[::3]:
            task.cancel()
        stage.topic_exists = True
    assert stage.values() == [b"%03d" % number for number in range(100) if number % 3]


@in_virtual_time
async def test_send_to_known_partition_overtakes_sends_that_wait_for_others() -> None:
    stage = Stage(partitions=1)
    async with stage.producing(max_block_ms=10_000) as producer:
        await producer.partitions_for(TOPIC)
        async with asyncio.TaskGroup() as group:
            missing = group.create_task(elapsed(producer.send(TOPIC, b"missing", partition=7)))
            unknown = group.create_task(elapsed(producer.send("unknown", b"value")))
            await asyncio.sleep(0)
            with pytest.raises(BufferFull, match="other calls wait"):
                producer.send_nowait(TOPIC, b"missing", partition=7)
            for _ in range(3):
                _, seconds = await elapsed(producer.send(TOPIC, b"value"))
                assert seconds == 0
            assert await producer.send_nowait(TOPIC, b"value")
        assert [type((await task)[0]) for task in (missing, unknown)] == [BrokerRefused, BrokerRefused]


@in_virtual_time
async def test_sends_to_partition_that_comes_late_are_written_in_order() -> None:
    stage = Stage(partitions=1)
    async with stage.producing() as producer:
        await producer.partitions_for(TOPIC)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(producer.send(TOPIC, b"%03d" % number, partition=1)) for number in range(50)]
            await asyncio.sleep(10)
            assert not any(task.done() for task in tasks)
            stage.partitions += Stage(partitions=1).partitions
            stage.lead(1)
    assert stage.values() == [b"%03d" % number for number in range(50)]


@in_virtual_time
async def test_send_nowait_does_not_overtake_send_that_lets_the_sender_run() -> None:
    stage = Stage(partitions=2)
    refused: list[int | None] = []
    async with stage.producing(batch_bytes=512) as producer, asyncio.TaskGroup() as group:
        await producer.partitions_for(TOPIC)

        def overtake() -> None:
            for partition in (0, None, 1):
                try:
                    producer.send_nowait(TOPIC, b"nowait", partition=partition)
                except BufferFull:
                    refused.append(partition)

        group.create_task(producer.send(TOPIC, b"paused", partition=0))
        for _ in range(2):  # The second one closes the first one's batch, which has to leave.
            producer.send_nowait(TOPIC, bytes(400), partition=0)
        asyncio.get_running_loop().call_soon(overtake)
    assert refused == [0, None]
    assert stage.values() == [bytes(400), bytes(400), b"paused", b"nowait"]


# Costs


class Iterations:
    """Counts iterations of the running loop in a context; time stands still there."""

    def __init__(self) -> None:
        self.count = 0
        self._is_over = False

    def __enter__(self) -> "Iterations":
        self._tick()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over = True

    def _tick(self) -> None:
        if not self._is_over:
            self.count += 1
            asyncio.get_running_loop().call_soon(self._tick)


@pytest.mark.parametrize("batch_bytes", [512, 64 * 1024])
@in_virtual_time
async def test_sends_to_many_partitions_do_not_wait_in_one_line(batch_bytes: int) -> None:
    """A task for each partition: none has to wait for the records of the others."""
    stage = Stage(partitions=50)
    async with stage.producing(batch_bytes=batch_bytes) as producer:
        await producer.partitions_for(TOPIC)

        async def produce(partition: int) -> None:
            for _ in range(20):
                await producer.send(TOPIC, b"value", partition=partition)

        with Iterations() as iterations:
            async with asyncio.TaskGroup() as group:
                for partition in range(50):
                    group.create_task(produce(partition))
    assert len(stage.values()) == 1000
    assert iterations.count < 10


async def test_records_that_tasks_send_without_pause_share_batches() -> None:
    """However many other partitions are ready to leave meanwhile. In real time: in virtual time nothing takes any."""
    stage = Stage(partitions=50)
    batches = 0

    def produce_and_count(request: Message) -> Any:
        nonlocal batches
        assert isinstance(request, ProduceRequest)
        batches += sum(len(topic.partition_data) for topic in request.topic_data)
        return stage.produce(stage.broker, request)

    stage.broker.script[ProduceRequest] = produce_and_count
    async with stage.producing(linger_ms=5) as producer:
        await producer.partitions_for(TOPIC)

        async def produce(partition: int) -> None:
            for _ in range(10):
                for sent in [await producer.send(TOPIC, b"value", partition=partition) for _ in range(20)]:
                    await sent

        async with asyncio.TaskGroup() as group:
            for partition in range(50):
                group.create_task(produce(partition))
    assert len(stage.values()) == 50 * 10 * 20
    assert batches <= 50 * 10 * 2, "a batch, or two of them, each time"


@in_virtual_time
async def test_task_that_never_waits_does_not_keep_lingering_batches() -> None:
    """A caller that takes its time between records, and never gives the loop any."""
    stage = Stage(partitions=1)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with stage.producing(linger_ms=5) as producer:
        await producer.partitions_for(TOPIC)
        await (await producer.send(TOPIC, b"first"))
        second = await producer.send(TOPIC, b"second")
        spent = 0
        while not second.done():
            spent += 1
            assert spent < 1_000
            loop.advance(0.001)
            await producer.send(TOPIC, b"another")
    assert len(stage.values()) == spent + 2


# Questions


@in_virtual_time
async def test_many_sends_to_a_new_topic_ask_for_it_once() -> None:
    stage = Stage(partitions=1)
    async with stage.producing(linger_ms=0) as producer:
        before = len(stage.broker.seen(MetadataRequest))
        async with asyncio.TaskGroup() as group:
            for number in range(300):
                group.create_task(producer.send(TOPIC, b"%03d" % number))
            for _ in range(10):
                group.create_task(producer.partitions_for(TOPIC))
        assert len(stage.broker.seen(MetadataRequest)) == before + 1


@pytest.mark.parametrize("error", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION])
@in_virtual_time
async def test_many_sends_to_a_refused_topic_share_one_refusal_at_once(error: ErrorCode) -> None:
    stage = Stage(partitions=1)
    async with stage.producing() as producer:
        stage.broker.script[MetadataRequest] = refusing(stage, error)
        before = len(stage.broker.seen(MetadataRequest))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(elapsed(producer.send(TOPIC, b"value"))) for _ in range(300)]
        for task in tasks:
            refused, seconds = await task
            assert isinstance(refused, BrokerRefused)
            assert refused.refusal.error == error
            assert seconds < 0.1
        assert len(stage.broker.seen(MetadataRequest)) == before + 1


# Time


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE])
@pytest.mark.parametrize("call", ["send", "partitions_for"])
@in_virtual_time
async def test_send_to_missing_topic_waits_max_block_ms(call: str, error: ErrorCode) -> None:
    stage = Stage(partitions=1)
    async with stage.producing(max_block_ms=60_000) as producer:
        found = stage.broker.script[MetadataRequest]
        stage.broker.script[MetadataRequest] = refusing(stage, error)
        calls = {
            "send": lambda: producer.send(TOPIC, b"value"),
            "partitions_for": lambda: producer.partitions_for(TOPIC),
        }
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(elapsed(calls[call]())) for _ in range(100)]
        for task in tasks:
            refused, seconds = await task
            assert isinstance(refused, BrokerRefused)
            assert refused.refusal.error == error
            assert seconds == pytest.approx(60, abs=0.1)
        assert len(stage.broker.seen(MetadataRequest)) < 100
        waiting = asyncio.ensure_future(elapsed(calls[call]()))  # noqa: TID251
        await asyncio.sleep(40)
        stage.broker.script[MetadataRequest] = found
        result, seconds = await waiting
        assert isinstance(result, FutureRecordMetadata | int)
        assert seconds < 42


@in_virtual_time
async def test_send_to_missing_partition_waits_max_block_ms() -> None:
    stage = Stage(partitions=1)
    async with stage.producing(max_block_ms=60_000) as producer:
        await producer.partitions_for(TOPIC)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(elapsed(producer.send(TOPIC, b"value", partition=1))) for _ in range(3)]
        for task in tasks:
            refused, seconds = await task
            assert isinstance(refused, BrokerRefused)
            assert "orders-1: UNKNOWN_TOPIC_OR_PARTITION: orders has partitions 0 to 0" in str(refused)
            assert seconds == pytest.approx(60, abs=0.1)


@in_virtual_time
async def test_send_to_silent_broker_waits_max_block_ms() -> None:
    stage = Stage(partitions=1)
    async with stage.producing(max_block_ms=60_000, request_timeout_ms=5_000) as producer:
        stage.broker.script[MetadataRequest] = Reaction.SILENCE
        error, seconds = await elapsed(producer.send(TOPIC, b"value"))
        assert isinstance(error, OperationTimedOut)
        assert seconds == pytest.approx(60, abs=0.1)


@in_virtual_time
async def test_sends_that_wait_when_the_producer_is_closed_fail_at_once() -> None:
    stage = Stage(partitions=1)
    stage.topic_exists = False
    async with stage.producing() as producer:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(elapsed(producer.send(TOPIC, b"value"))) for _ in range(10)]
            await asyncio.sleep(10)
            await producer.close()
        for task in tasks:
            error, seconds = await task
            assert isinstance(error, ProducerClosed)
            assert seconds == pytest.approx(10, abs=0.1)


async def fill(producer: Producer, stage: Stage) -> None:
    """Take all the space."""
    stage.broker.script[ProduceRequest] = Reaction.HOLD
    while not producer._accumulator.is_full:
        await producer.send(TOPIC, bytes(1000))


@in_virtual_time
async def test_sends_that_wait_for_space_time_out_after_max_block_ms_each() -> None:
    stage = Stage(partitions=1)
    settings = {"max_request_bytes": 4096, "buffer_bytes": 4096, "max_block_ms": 2_000}
    async with stage.producing(**settings) as producer:
        await fill(producer, stage)
        async with asyncio.TaskGroup() as group:
            tasks = []
            for _ in range(5):
                tasks.append(group.create_task(elapsed(producer.send(TOPIC, b"value"))))
                await asyncio.sleep(0.5)
        for task in tasks:
            error, seconds = await task
            assert isinstance(error, OperationTimedOut)
            assert seconds == pytest.approx(2, abs=0.1)
        await producer.close(timeout_seconds=0)
