"""The producer against brokers that do what the script says, in virtual time: what the wire and the clock do to it."""

import asyncio
import gc
from collections.abc import Awaitable
from typing import Any

import pytest

from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import (
    BrokerRefused,
    BufferFull,
    ClientError,
    CommitFailed,
    DeliveryTimedOut,
    FatalProducerError,
    IllegalState,
    NoBrokerReachable,
    OperationTimedOut,
    ProducerClosed,
    ProducerFenced,
    RecordTooLarge,
    TransactionAbortable,
    TransactionAborted,
)
from oncelog.clients.group_metadata import ConsumerGroupMetadata
from oncelog.clients.offset_and_metadata import OffsetAndMetadata
from oncelog.clients.producer import FutureRecordMetadata, Producer, RecordMetadata
from oncelog.clients.producer.producer_batch import ProducerBatch
from oncelog.clients.producer.transaction_requests import InitProducerId
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.protocol.messages.produce import ProduceRequest, ProduceResponse
from oncelog.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from oncelog.protocol.records.record_batch import read_header
from oncelog.protocol.schema import Message, Versions
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.producer.producing_brokers import NOW_MS, TOPIC, Stage
from tests.unit.clients.scripted_broker import Reaction, ScriptedResponse

GROUP = ConsumerGroupMetadata(group_id="readers", generation_id=3, member_id="me")
OFFSETS = {TopicPartition("input", 0): OffsetAndMetadata(5)}


async def outcome(future: Awaitable[Any]) -> Any:
    """What it gives or raises."""
    try:
        return await future
    except ClientError as error:
        return error


async def send_all(producer: Producer, count: int, size: int = 10, partition: int = 0) -> list[FutureRecordMetadata]:
    return [await producer.send(TOPIC, b"%06d" % number + bytes(size), partition=partition) for number in range(count)]


def numbers(values: list[bytes]) -> list[int]:
    return [int(value[:6]) for value in values]


# Records


@in_virtual_time
async def test_record_metadata_has_partition_and_offset() -> None:
    stage = Stage()
    async with stage.producing() as producer:
        future = await producer.send(TOPIC, b"value", key=b"key", headers=[("name", b"of header")])
        assert not future.done()
        metadata = await future
        assert metadata == RecordMetadata(TOPIC, metadata.partition, 0, NOW_MS)
        assert future.result() == metadata
        assert await future == metadata
        assert await producer.partitions_for(TOPIC) == 2


@in_virtual_time
async def test_record_future_can_be_awaited_by_many_and_cancelled() -> None:
    stage = Stage()
    async with stage.producing() as producer:
        future = await producer.send(TOPIC, b"value")
        reported: list[FutureRecordMetadata] = []
        future.add_done_callback(reported.append)
        waits = [asyncio.ensure_future(future) for _ in range(3)]  # noqa: TID251
        await asyncio.sleep(0)
        waits[0].cancel()
        assert (await waits[1]).offset == (await waits[2]).offset == 0
        assert waits[0].cancelled()
        assert reported == [future]


@in_virtual_time
async def test_records_that_come_together_share_a_batch() -> None:
    stage = Stage()
    async with stage.producing(linger_ms=100) as producer:
        futures = await send_all(producer, 20)
        assert [(await future).offset for future in futures] == list(range(20))
        assert len(stage.broker.seen(ProduceRequest)) == 1


@in_virtual_time
async def test_batch_does_not_linger_beyond_its_time() -> None:
    stage = Stage()
    async with stage.producing(linger_ms=5_000) as producer:
        started = asyncio.get_running_loop().time()
        await (await producer.send(TOPIC, b"value"))
        assert 5.0 <= asyncio.get_running_loop().time() - started < 5.1


@in_virtual_time
async def test_flush_does_not_wait_for_the_linger() -> None:
    stage = Stage()
    async with stage.producing(linger_ms=60_000) as producer:
        futures = await send_all(producer, 3)
        await producer.flush()
        assert all(future.done() for future in futures)
        assert asyncio.get_running_loop().time() < 1.0
        await producer.flush()


@in_virtual_time
async def test_requests_without_response_are_at_most_five() -> None:
    stage = Stage(partitions=2)
    async with stage.producing(linger_ms=0, batch_bytes=512, max_request_bytes=1024) as producer:
        for partition in range(2):
            await (await producer.send(TOPIC, b"first", partition=partition))  # Several may be under way from now on.
        stage.broker.script[ProduceRequest] = Reaction.HOLD
        futures = [await producer.send(TOPIC, bytes(600), partition=number % 2) for number in range(20)]
        await asyncio.sleep(1)
        assert len(stage.broker.held) == 5
        stage.broker.script[ProduceRequest] = lambda request: stage.produce(stage.broker, request)
        while stage.broker.held:
            stage.broker.release(lambda request: stage.produce(stage.broker, request))
        assert [(await future).offset for future in futures] == [1 + number // 2 for number in range(20)]


@in_virtual_time
async def test_partition_is_javas_hash_of_the_key_or_the_partitioners_choice() -> None:
    stage = Stage(partitions=2)
    async with stage.producing() as producer:
        keys = (b"21", b"abc", b"a-little-bit-longer-string")
        assert [(await (await producer.send(TOPIC, b"", key=key))).partition for key in keys] == [0, 1, 1]
        assert (await (await producer.send(TOPIC, b"", key=b"21", partition=1))).partition == 1
    stage = Stage(partitions=2)
    async with stage.producing(partitioner=lambda topic, key, value, count: count - 1) as producer:
        assert (await (await producer.send(TOPIC, b"", key=b"21"))).partition == 1
        assert (await (await producer.send(TOPIC, b""))).partition == 1


@in_virtual_time
async def test_acks_0_completes_records_without_response() -> None:
    stage = Stage(partitions=1)
    stage.broker.script[ProduceRequest] = lambda request: (stage.produce(stage.broker, request), Reaction.SILENCE)[1]
    async with stage.producing(acks="0", enable_idempotence=False) as producer:
        futures = await send_all(producer, 100)
        assert {(await future).offset for future in futures} == {-1}
        await asyncio.sleep(1)
    assert numbers(stage.values()) == list(range(100))


@in_virtual_time
async def test_blocked_connection_is_not_written_to() -> None:
    """With ``acks=0`` there are no responses to wait for."""
    stage = Stage(partitions=1)
    stage.broker.script[ProduceRequest] = Reaction.SILENCE
    async with stage.producing(acks="0", enable_idempotence=False, batch_bytes=64 * 1024) as producer:
        await (await producer.send(TOPIC, b"first"))
        connection = producer._sender._links[1].connection
        assert connection is not None
        futures = [producer.send_nowait(TOPIC, bytes(60_000)) for _ in range(100)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not all(future.done() for future in futures)
        await producer.flush()
        assert len(stage.broker.seen(ProduceRequest)) > 90


# Versions


@in_virtual_time
async def test_topics_are_sent_by_id_where_brokers_know_ids() -> None:
    stage = Stage()
    async with stage.producing() as producer:
        await (await producer.send(TOPIC, b"value"))
    assert stage.broker.versions_of(ProduceRequest) == [13]
    stage = Stage()
    stage.broker.versions[ApiKey.METADATA] = Versions(0, 9)
    async with stage.producing() as producer:
        await (await producer.send(TOPIC, b"value"))
    assert stage.broker.versions_of(ProduceRequest) == [12]


@in_virtual_time
async def test_broker_that_cannot_be_produced_to_ends_the_producer() -> None:
    stage = Stage()
    stage.broker.versions[ApiKey.PRODUCE] = Versions(0, 2)
    async with stage.producing() as producer:
        assert isinstance(await outcome(await producer.send(TOPIC, b"value")), ClientError)
        with pytest.raises(FatalProducerError):
            await producer.send(TOPIC, b"value")


# What goes wrong


@in_virtual_time
async def test_lost_response_does_not_write_a_record_twice() -> None:
    stage = Stage(partitions=1)
    responses: list[ScriptedResponse] = [Reaction.CLOSE, Reaction.CLOSE]

    def produce(request: Message) -> ScriptedResponse:
        stored = stage.produce(stage.broker, request)
        return responses.pop() if responses else stored

    stage.broker.script[ProduceRequest] = produce
    async with stage.producing() as producer:
        futures = await send_all(producer, 10)
        assert [(await future).offset for future in futures] == list(range(10))
    assert numbers(stage.values()) == list(range(10))
    assert len(stage.broker.seen(ProduceRequest)) == 3


@in_virtual_time
async def test_new_leader_in_a_response_is_used_without_metadata_request() -> None:
    """KIP-951."""
    stage = Stage(partitions=1, brokers=2)
    async with stage.producing(retry_backoff_ms=10_000, retry_backoff_max_ms=10_000) as producer:
        await (await producer.send(TOPIC, b"%06d" % 0))
        stage.lead(2)
        for broker in stage.brokers:
            broker.script[MetadataRequest] = Reaction.SILENCE
        await (await producer.send(TOPIC, b"%06d" % 1))
        assert asyncio.get_running_loop().time() < 1.0
        assert numbers(stage.values()) == [0, 1]


@in_virtual_time
async def test_lost_leader_is_looked_up() -> None:
    stage = Stage(partitions=1, brokers=2)
    async with stage.producing() as producer:
        stage.lead(2)
        await (await producer.send(TOPIC, b"%06d" % 0))
        stage.brokers[1].stop()
        stage.lead(1)
        await (await producer.send(TOPIC, b"%06d" % 1))
        assert numbers(stage.values()) == [0, 1]


@in_virtual_time
async def test_missing_topics_leave_no_state_behind() -> None:
    stage = Stage(partitions=1)
    async with stage.producing(max_block_ms=500) as producer:
        for number in range(50):
            with pytest.raises(BrokerRefused, match=f"nothing-{number}: UNKNOWN_TOPIC_OR_PARTITION"):
                await producer.send(f"nothing-{number}", b"value")
        await asyncio.sleep(60)
        gc.collect()
        kept = [each for each in gc.get_objects() if isinstance(each, BrokerRefused)]
        assert len(kept) <= 1  # That of the last ``raises``.


@in_virtual_time
async def test_missing_topic_is_warned_of_early_and_its_error_names_the_remedy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage(partitions=1)
    async with stage.producing(max_block_ms=60_000) as producer:
        sending = asyncio.get_running_loop().create_task(producer.send("nothing", b"value"))
        await asyncio.sleep(5)
        assert "topic nothing: UNKNOWN_TOPIC_OR_PARTITION: create it" in caplog.text
        assert "max_block_ms" in caplog.text
        with pytest.raises(BrokerRefused, match=r"auto\.create\.topics\.enable"):
            await sending


@in_virtual_time
async def test_partition_without_leader_is_sent_to_once_it_has_one() -> None:
    stage = Stage(partitions=1)
    async with stage.producing() as producer:
        await producer.partitions_for(TOPIC)
        stage.lead(-1)
        producer._metadata.refresh.request()
        await asyncio.sleep(1)
        future = await producer.send(TOPIC, b"%06d" % 0)
        await asyncio.sleep(3)
        assert not future.done()
        (obstacle,) = producer.obstacles()
        assert obstacle.reason == f"{TOPIC}-0: no replica can lead now"
        assert obstacle.seconds >= 3
        stage.lead(1)
        await future
        assert producer.obstacles() == []


@in_virtual_time
async def test_transient_refusal_is_an_obstacle_while_it_lasts() -> None:
    stage = Stage(partitions=2)
    refusing = True

    def produce(request: Message) -> ScriptedResponse:
        if refusing:
            return stage.refuse(request, ErrorCode.NOT_ENOUGH_REPLICAS)
        return stage.produce(stage.broker, request)

    stage.broker.script[ProduceRequest] = produce
    async with stage.producing(linger_ms=0) as producer:
        futures = [await producer.send(TOPIC, b"%06d" % index, partition=index) for index in (1, 0)]
        await asyncio.sleep(4)
        (obstacle,) = producer.obstacles()
        assert obstacle.reason == f"{TOPIC}-1: NOT_ENOUGH_REPLICAS"
        assert obstacle.error is ErrorCode.NOT_ENOUGH_REPLICAS
        assert 3 <= obstacle.seconds <= 4
        refusing = False
        await asyncio.gather(*map(outcome, futures))
        assert producer.obstacles() == []


@in_virtual_time
async def test_order_is_kept_through_failures_in_the_middle() -> None:
    stage = Stage(partitions=1)
    refused = 0

    def produce(request: Message) -> ScriptedResponse:
        nonlocal refused
        refused += 1
        if refused % 3 == 2:
            return stage.refuse(request, ErrorCode.NOT_ENOUGH_REPLICAS)
        return stage.produce(stage.broker, request)

    stage.broker.script[ProduceRequest] = produce
    async with stage.producing(linger_ms=0, batch_bytes=512) as producer:
        futures = await send_all(producer, 60, size=300)
        await producer.flush()
        assert [future.result().offset for future in futures] == list(range(60))
    assert numbers(stage.values()) == list(range(60))


@in_virtual_time
async def test_silent_broker_fails_records_after_the_delivery_timeout() -> None:
    stage = Stage(partitions=1)
    stage.broker.script[ProduceRequest] = Reaction.SILENCE
    async with stage.producing(delivery_timeout_ms=5_000, request_timeout_ms=2_000, linger_ms=0) as producer:
        future = await producer.send(TOPIC, b"value")
        error = await outcome(future)
        assert isinstance(error, DeliveryTimedOut)
        assert error.maybe_written
        assert 5.0 <= asyncio.get_running_loop().time() < 5.5


@in_virtual_time
async def test_producer_continues_after_an_expired_record() -> None:
    stage = Stage(partitions=1)
    async with stage.producing(delivery_timeout_ms=5_000, request_timeout_ms=2_000, linger_ms=0) as producer:
        await (await producer.send(TOPIC, b"%06d" % 0))
        stage.broker.script[ProduceRequest] = Reaction.SILENCE
        assert isinstance(await outcome(await producer.send(TOPIC, b"%06d" % 1)), DeliveryTimedOut)
        stage.broker.script[ProduceRequest] = lambda request: stage.produce(stage.broker, request)
        assert (await (await producer.send(TOPIC, b"%06d" % 2))).offset == 1
        (request,) = stage.broker.seen(ProduceRequest)[-1:]
        assert isinstance(request, ProduceRequest)
        records = request.topic_data[0].partition_data[0].records
        assert records is not None
        header = read_header(bytes(records))  # type: ignore[arg-type]
        assert (header.producer_epoch, header.base_sequence) == (1, 0)


@in_virtual_time
async def test_throttled_producer_waits() -> None:
    """KIP-219: the client holds its requests back."""
    stage = Stage(partitions=1)

    def throttled(request: Message) -> ProduceResponse:
        response = stage.produce(stage.broker, request)
        response.throttle_time_ms = 3_000
        return response

    stage.broker.script[ProduceRequest] = throttled
    async with stage.producing(linger_ms=0) as producer:
        await (await producer.send(TOPIC, b"one"))
        started = asyncio.get_running_loop().time()
        await (await producer.send(TOPIC, b"two"))
        assert asyncio.get_running_loop().time() - started >= 3.0


@in_virtual_time
async def test_partitions_missing_in_a_response_are_retried() -> None:
    stage = Stage(partitions=1)
    responses: list[ScriptedResponse] = [ProduceResponse()]
    stage.broker.script[ProduceRequest] = lambda request: (
        responses.pop() if responses else stage.produce(stage.broker, request)
    )
    async with stage.producing() as producer:
        assert (await (await producer.send(TOPIC, b"value"))).offset == 0


@in_virtual_time
async def test_start_without_reachable_broker_raises_and_can_be_repeated() -> None:
    stage = Stage()
    async with stage.playing():
        pass
    producer = stage.producer()
    with pytest.raises(NoBrokerReachable):
        await producer.start()
    await stage.broker.start(port=stage.broker.address.port)
    await producer.start()
    await (await producer.send(TOPIC, b"value"))
    await producer.close()
    stage.broker.stop()


@in_virtual_time
async def test_failure_of_the_sender_fails_all_records_and_calls(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    async with stage.producing(linger_ms=60_000) as producer:
        future = await producer.send(TOPIC, b"value")

        def broken(now: float) -> None:
            raise ZeroDivisionError("a bug")

        producer._sender._delivery.expire = broken  # type: ignore[method-assign]
        flushing = asyncio.ensure_future(producer.flush())  # noqa: TID251
        assert isinstance(await outcome(future), FatalProducerError)
        await flushing
        with pytest.raises(FatalProducerError, match="a bug"):
            await producer.send(TOPIC, b"value")
        assert "the producer failed" in caplog.text


BAD_ADDRESSES = {
    "empty label": ("a..b", 9092),
    "label that is too long": ("a" * 64, 9092),
    "null": ("a\0b", 9092),
    "port out of range": ("127.0.0.1", 70_000),
    "negative port": ("127.0.0.1", -1),
}


@pytest.mark.parametrize(("host", "port"), BAD_ADDRESSES.values(), ids=BAD_ADDRESSES)
def test_leader_with_impossible_address_delays_only_its_partitions(host: str, port: int) -> None:
    """On a real loop, because the one in virtual time knows neither names nor ports."""

    async def work() -> None:
        stage = Stage(partitions=2, brokers=2)
        stage.leaders = [1, 2]

        def metadata(request: Message) -> MetadataResponse:
            response = stage.metadata()
            response.brokers[1].host, response.brokers[1].port = host, port
            return response

        async with stage.playing():
            stage.broker.script[MetadataRequest] = metadata
            async with stage.producer(retry_backoff_ms=1, retry_backoff_max_ms=1, linger_ms=0) as producer:
                stuck = await producer.send(TOPIC, b"stuck", partition=1)
                while len(stage.broker.seen(MetadataRequest)) < 5:
                    await (await producer.send(TOPIC, b"value", partition=0))
                assert not stuck.done()
                stage.broker.script[MetadataRequest] = lambda request: stage.metadata()
                await stuck
        assert stage.partitions[1].log == [b"stuck"]

    asyncio.run(work())


@pytest.mark.parametrize(("host", "port"), BAD_ADDRESSES.values(), ids=BAD_ADDRESSES)
def test_coordinator_at_an_impossible_address_is_found_again(host: str, port: int) -> None:
    async def work() -> None:
        stage = Stage(partitions=1)

        def find_coordinator(request: Message) -> FindCoordinatorResponse:
            response = stage.find_coordinator(request)
            if len(stage.broker.seen(FindCoordinatorRequest)) <= 3:
                (found,) = response.coordinators
                found.node_id, found.host, found.port = 9, host, port
            return response

        stage.broker.script[FindCoordinatorRequest] = find_coordinator
        async with stage.transacting(retry_backoff_ms=1, retry_backoff_max_ms=1) as producer:
            await producer.send(TOPIC, b"value")
            await producer.commit_transaction()
        assert stage.values() == [b"value"]

    asyncio.run(work())


@pytest.mark.parametrize("place", ["connect", "encode", "coordinator", "metadata"])
@in_virtual_time
async def test_transient_memory_error_loses_no_record(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(partitions=2)
    owner, name = {
        "connect": (Cluster, "connection_to"),
        "encode": (ProducerBatch, "encode"),
        "coordinator": (InitProducerId, "message"),
        "metadata": (Cluster, "refresh"),
    }[place]
    working = getattr(owner, name)
    failures = 0

    def failing(*args: Any, **settings: Any) -> Any:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise MemoryError
        return working(*args, **settings)

    async with stage.producing() as producer:
        await producer.partitions_for(TOPIC)
        monkeypatch.setattr(owner, name, failing)
        if place == "metadata":
            stage.lead(2)
            producer._metadata.refresh.request()
            await asyncio.sleep(60)
            stage.lead(1)
        await send_all(producer, 10)
        await producer.flush()
    assert failures == 3
    assert numbers(stage.values()) == list(range(10))
    assert "MemoryError" in caplog.text


# Space


@in_virtual_time
async def test_send_waits_for_space_in_the_order_of_the_calls() -> None:
    stage = Stage(partitions=1)
    stage.broker.script[ProduceRequest] = Reaction.HOLD
    settings = {"linger_ms": 0, "batch_bytes": 1024, "max_request_bytes": 4096, "buffer_bytes": 8192}
    async with stage.producing(**settings) as producer:
        sending = [
            asyncio.ensure_future(producer.send(TOPIC, b"%06d" % number + bytes(900), partition=0))  # noqa: TID251
            for number in range(30)
        ]
        await asyncio.sleep(1)
        assert sum(task.done() for task in sending) == 9
        with pytest.raises(BufferFull):
            producer.send_nowait(TOPIC, b"value")
        sending[20].cancel()
        stage.broker.script[ProduceRequest] = lambda request: stage.produce(stage.broker, request)
        stage.broker.release(lambda request: stage.produce(stage.broker, request))
        await asyncio.wait(sending)
        await producer.flush()
    assert numbers(stage.values()) == [number for number in range(30) if number != 20]


@in_virtual_time
async def test_send_nowait_does_not_overtake_waiting_sends() -> None:
    stage = Stage(partitions=1)
    stage.broker.script[ProduceRequest] = Reaction.HOLD
    async with stage.producing(linger_ms=0, max_request_bytes=4096, buffer_bytes=4096) as producer:
        first = await producer.send(TOPIC, b"%06d" % 0 + bytes(4000))
        second = await producer.send(TOPIC, b"%06d" % 1 + bytes(80))
        waiting = asyncio.ensure_future(producer.send(TOPIC, b"%06d" % 2))  # noqa: TID251
        await asyncio.sleep(1)
        refused: list[BufferFull] = []

        def overtake(future: FutureRecordMetadata) -> None:
            try:
                producer.send_nowait(TOPIC, b"%06d" % 3)
            except BufferFull as error:
                refused.append(error)

        first.add_done_callback(overtake)  # Space is free then, and the one who waits for it has not run yet.
        stage.broker.script[ProduceRequest] = lambda request: stage.produce(stage.broker, request)
        stage.broker.release(lambda request: stage.produce(stage.broker, request))
        await (await waiting)
        assert len(refused) == 1
        assert second.done()
        await producer.send(TOPIC, b"%06d" % 3)
    assert numbers(stage.values()) == [0, 1, 2, 3]


@in_virtual_time
async def test_send_after_waiting_does_not_overtake_other_waiting_sends() -> None:
    stage = Stage(partitions=1)
    stage.broker.script[ProduceRequest] = Reaction.HOLD
    settings = {"linger_ms": 60_000, "batch_bytes": 1024, "max_request_bytes": 4096, "buffer_bytes": 4096}
    async with stage.producing(**settings) as producer:
        await producer.send(TOPIC, b"%06d" % 0 + bytes(4000))
        await producer.send(TOPIC, b"%06d" % 1 + bytes(80))

        async def send(*values: int) -> None:
            for number in values:
                await producer.send(TOPIC, b"%06d" % number)

        async with asyncio.TaskGroup() as group:
            group.create_task(send(2, 4))
            group.create_task(send(3))
            await asyncio.sleep(1)
            stage.broker.script[ProduceRequest] = lambda request: stage.produce(stage.broker, request)
            stage.broker.release(lambda request: stage.produce(stage.broker, request))
    assert numbers(stage.values()) == [0, 1, 2, 3, 4]


@in_virtual_time
async def test_send_without_space_times_out() -> None:
    stage = Stage(partitions=1)
    stage.broker.script[ProduceRequest] = Reaction.HOLD
    settings = {"max_request_bytes": 4096, "buffer_bytes": 4096, "max_block_ms": 2_000}
    async with stage.producing(**settings) as producer:
        await producer.send(TOPIC, bytes(4000))
        await producer.send(TOPIC, bytes(4000))
        started = asyncio.get_running_loop().time()
        with pytest.raises(OperationTimedOut):
            await producer.send(TOPIC, b"value")
        assert asyncio.get_running_loop().time() - started == pytest.approx(2.0, abs=0.1)
        stage.broker.release(lambda request: stage.produce(stage.broker, request))
        stage.broker.script[ProduceRequest] = lambda request: stage.produce(stage.broker, request)


@in_virtual_time
async def test_send_without_pause_lets_the_sender_run() -> None:
    stage = Stage(partitions=1)
    async with stage.producing(linger_ms=60_000, batch_bytes=1024) as producer:
        await send_all(producer, 1)
        await producer.flush()
        await send_all(producer, 100, size=100)
        assert producer._sender._links[1].in_flight == 5
        await producer.flush()


@in_virtual_time
async def test_send_nowait_raises_where_send_would_wait() -> None:
    stage = Stage()
    async with stage.producing() as producer:
        with pytest.raises(BufferFull, match="not known"):
            producer.send_nowait(TOPIC, b"value")
        await producer.partitions_for(TOPIC)
        future = producer.send_nowait(TOPIC, b"value")
        with pytest.raises(BufferFull, match="partition 2"):
            producer.send_nowait(TOPIC, b"value", partition=2)
        with pytest.raises(RecordTooLarge):
            producer.send_nowait(TOPIC, bytes(2_000_000))
        assert (await future).offset == 0


# The end


@in_virtual_time
async def test_producer_before_start_and_after_close_raises() -> None:
    stage = Stage()
    async with stage.playing():
        producer = stage.producer()
        with pytest.raises(IllegalState, match=r"async with Producer.* await start\(\)"):
            await producer.send(TOPIC, b"value")
        await producer.start()
        with pytest.raises(IllegalState):
            await producer.start()
        await producer.close()
        await producer.close()
        with pytest.raises(ProducerClosed):
            await producer.send(TOPIC, b"value")
        with pytest.raises(ProducerClosed):
            producer.send_nowait(TOPIC, b"value")


@in_virtual_time
async def test_close_sends_accepted_records() -> None:
    stage = Stage(partitions=1)
    async with stage.producing(linger_ms=60_000) as producer:
        futures = await send_all(producer, 10)
    assert [future.result().offset for future in futures] == list(range(10))


@in_virtual_time
async def test_close_ends_in_time_and_fails_remaining_records(caplog: pytest.LogCaptureFixture) -> None:
    """B78."""
    stage = Stage(partitions=1)
    stage.broker.script[ProduceRequest] = Reaction.SILENCE
    async with stage.producing(max_request_bytes=4096, buffer_bytes=4096) as producer:
        futures = [await producer.send(TOPIC, bytes(4000)) for _ in range(2)]
        waiting = asyncio.ensure_future(producer.send(TOPIC, b"value"))  # noqa: TID251
        await asyncio.sleep(1)
        started = asyncio.get_running_loop().time()
        await producer.close(timeout_seconds=3)
        assert asyncio.get_running_loop().time() - started == pytest.approx(3.0, abs=0.1)
        assert [type(future.exception()) for future in futures] == [ProducerClosed, ProducerClosed]
        assert isinstance(await outcome(waiting), ProducerClosed)
    del producer, waiting, futures
    gc.collect()
    assert "asyncio" not in {each.name for each in caplog.records}  # No future whose exception was never retrieved.


@in_virtual_time
async def test_close_fails_waiting_transactional_calls() -> None:
    stage = Stage(partitions=1, transaction_version=2)
    async with stage.transacting() as producer:
        stage.broker.script[TxnOffsetCommitRequest] = Reaction.HOLD
        offsets = asyncio.ensure_future(producer.send_offsets_to_transaction(OFFSETS, GROUP))  # noqa: TID251
        await asyncio.sleep(1)
        committing = asyncio.ensure_future(producer.commit_transaction())  # noqa: TID251
        await asyncio.sleep(1)
        await producer.close(timeout_seconds=1)
        assert isinstance(await outcome(offsets), ProducerClosed)
        assert isinstance(await outcome(committing), ProducerClosed)


@in_virtual_time
async def test_cancelled_close_leaves_no_task_or_connection() -> None:
    stage = Stage(partitions=1)
    stage.broker.script[ProduceRequest] = Reaction.SILENCE
    async with stage.producing() as producer:
        future = await producer.send(TOPIC, b"value")
        closing = asyncio.ensure_future(producer.close())  # noqa: TID251
        await asyncio.sleep(1)
        closing.cancel()
        await asyncio.wait([closing])
        assert isinstance(future.exception(), ProducerClosed)
        assert len(asyncio.all_tasks()) == 1


async def seconds_of(closing: Awaitable[None]) -> float:
    started = asyncio.get_running_loop().time()
    await closing
    return asyncio.get_running_loop().time() - started


@pytest.mark.parametrize("unanswered", [FindCoordinatorRequest, InitProducerIdRequest])
def test_close_without_records_or_transaction_does_not_wait_for_a_producer_id(unanswered: type[Message]) -> None:
    @in_virtual_time
    async def test() -> None:
        stage = Stage(partitions=1)
        stage.broker.script[unanswered] = Reaction.SILENCE
        async with stage.producing(transactional_id="id", max_block_ms=2_000) as producer:
            with pytest.raises(OperationTimedOut):
                await producer.init_transactions()
            assert await seconds_of(producer.close()) < 0.1

    test()


@in_virtual_time
async def test_close_with_an_empty_transaction_does_not_wait_for_a_broker(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(partitions=1, transaction_version=2)
    async with stage.transacting() as producer:
        stage.broker.script[EndTxnRequest] = Reaction.SILENCE
        assert await seconds_of(producer.close()) < 0.1
    assert not caplog.records


@in_virtual_time
async def test_close_that_waits_logs_what_for_and_how_long_at_most(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(partitions=1, transaction_version=2)
    async with stage.transacting(max_block_ms=5_000, delivery_timeout_ms=31_000) as producer:
        await (await producer.send(TOPIC, b"value"))
        stage.broker.script[EndTxnRequest] = Reaction.SILENCE
        assert await seconds_of(producer.close()) == pytest.approx(36, abs=0.1)
    waits, gives_up = (each.getMessage() for each in caplog.records)
    assert "close() waits at most 36 s for abort_transaction of 'id'" in waits
    assert "close() has waited 36 s, and gives up abort_transaction of 'id'" in gives_up


@in_virtual_time
async def test_close_that_waits_for_records_logs_how_many(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(partitions=1)
    stage.broker.script[ProduceRequest] = Reaction.SILENCE
    async with stage.producing(linger_ms=0) as producer:
        await send_all(producer, 3)
        await producer.close(timeout_seconds=4)
    waits, gives_up = (each.getMessage() for each in caplog.records)
    assert "close() waits at most 4 s for the acknowledgement of 3 records" in waits
    assert "close() has waited 4 s, and gives up the acknowledgement of 3 records" in gives_up


@in_virtual_time
async def test_close_in_a_cancelled_task_takes_at_most_five_seconds() -> None:
    """As after Ctrl-C, for which ``asyncio.run`` cancels the task."""
    stage = Stage(partitions=1, transaction_version=2)
    began = asyncio.Event()

    async def transact() -> None:
        async with stage.transacting() as producer:
            await (await producer.send(TOPIC, b"value"))
            stage.broker.script[EndTxnRequest] = Reaction.SILENCE
            began.set()
            await asyncio.Event().wait()

    transacting = asyncio.ensure_future(transact())  # noqa: TID251
    await began.wait()
    transacting.cancel()
    assert await seconds_of(drained(transacting)) == pytest.approx(5, abs=0.1)


@in_virtual_time
async def test_close_in_a_cancelled_task_aborts_the_transaction() -> None:
    stage = Stage(partitions=1, transaction_version=2)
    began = asyncio.Event()

    async def transact() -> None:
        async with stage.transacting() as producer:
            await (await producer.send(TOPIC, b"value"))
            began.set()
            await asyncio.Event().wait()

    transacting = asyncio.ensure_future(transact())  # noqa: TID251
    await began.wait()
    transacting.cancel()
    await drained(transacting)
    assert ends(stage) == [False]


async def drained(task: "asyncio.Task[None]") -> None:
    await asyncio.wait([task])
    assert task.cancelled()


# Transactions


def ends(stage: Stage) -> list[bool]:
    return [request.committed for request in stage.broker.seen(EndTxnRequest) if isinstance(request, EndTxnRequest)]


@pytest.mark.parametrize(("level", "protocol"), [(None, 1), (0, 1), (1, 1), (2, 2)])
def test_transaction_protocol_is_that_of_the_cluster(level: int | None, protocol: int) -> None:
    @in_virtual_time
    async def test() -> None:
        stage = Stage(partitions=1, transaction_version=level)
        async with stage.producing(transactional_id="id") as producer:
            await producer.init_transactions()
            assert producer.transaction_protocol == protocol
            for number in range(3):
                producer.begin_transaction()
                future = await producer.send(TOPIC, b"%06d" % number)
                await producer.send_offsets_to_transaction(OFFSETS, GROUP)
                await producer.commit_transaction()
                assert future.result().offset == number
        broker = stage.broker
        assert ends(stage) == [True, True, True]
        if protocol == 2:
            assert not broker.seen(AddPartitionsToTxnRequest) + broker.seen(AddOffsetsToTxnRequest)
            assert set(broker.versions_of(ProduceRequest)) == {13}
            assert set(broker.versions_of(EndTxnRequest)) == set(broker.versions_of(TxnOffsetCommitRequest)) == {5}
            assert stage.partitions[0].producers[7].epoch == 2
        else:
            assert len(broker.seen(AddPartitionsToTxnRequest)) == len(broker.seen(AddOffsetsToTxnRequest)) == 3
            assert set(broker.versions_of(AddPartitionsToTxnRequest)) == {3}
            assert set(broker.versions_of(ProduceRequest)) == {11}
            assert set(broker.versions_of(EndTxnRequest)) == set(broker.versions_of(TxnOffsetCommitRequest)) == {4}
            assert stage.partitions[0].producers[7].epoch == 0

    test()


@in_virtual_time
async def test_upgrade_is_followed_after_a_new_connection() -> None:
    stage = Stage(partitions=1, transaction_version=1)
    async with stage.producing(transactional_id="id") as producer:
        await producer.init_transactions()
        for level, epoch, protocol in ((1, 1, 1), (2, 2, 1), (2, 2, 2), (1, 3, 2), (1, 3, 1)):
            stage.broker.transaction_version, stage.broker.features_epoch = level, epoch
            assert producer.transaction_protocol == protocol
            for connection in list(stage.broker.connections):
                connection.transport.close()
            await asyncio.sleep(0.1)
            producer.begin_transaction()
            await producer.send(TOPIC, b"%06d" % epoch)
            if protocol == 2:
                stage.broker.script[EndTxnRequest] = lambda request: stage_bumps(stage)
            else:
                stage.broker.script[EndTxnRequest] = EndTxnResponse()
            await producer.commit_transaction()
    assert stage.broker.versions_of(EndTxnRequest) == [4, 4, 5, 5, 4]
    assert [
        request.producer_id
        for request in stage.broker.seen(InitProducerIdRequest)
        if isinstance(request, InitProducerIdRequest)
    ] == [-1, 7]


def stage_bumps(stage: Stage) -> EndTxnResponse:
    stage.epoch += 1
    return EndTxnResponse(producer_id=7, producer_epoch=stage.epoch)


@in_virtual_time
async def test_broker_without_version_2_fails_the_transaction_only() -> None:
    """KIP-890: a cluster that is being upgraded."""
    stage = Stage(partitions=1, transaction_version=2)
    stage.broker.versions[ApiKey.PRODUCE] = Versions(3, 11)
    async with stage.transacting() as producer:
        future = await producer.send(TOPIC, b"value")
        with pytest.raises(TransactionAbortable):
            await producer.commit_transaction()
        assert isinstance(future.exception(), TransactionAbortable)
        await producer.abort_transaction()


@in_virtual_time
async def test_abort_drops_unsent_records() -> None:
    stage = Stage(partitions=1, transaction_version=2)
    async with stage.transacting(linger_ms=60_000) as producer:
        future = await producer.send(TOPIC, b"value")
        await producer.abort_transaction()
        assert isinstance(future.exception(), TransactionAborted)
        assert not stage.broker.seen(ProduceRequest)
        producer.begin_transaction()


@pytest.mark.parametrize("call", ["init", "offsets", "commit", "abort"])
def test_transactional_calls_time_out_and_can_be_repeated(call: str) -> None:
    @in_virtual_time
    async def test() -> None:
        stage = Stage(partitions=1, transaction_version=2)
        held = {
            "init": InitProducerIdRequest,
            "offsets": TxnOffsetCommitRequest,
            "commit": EndTxnRequest,
            "abort": EndTxnRequest,
        }[call]
        response = stage.broker.script[held]
        async with stage.producing(
            transactional_id="id", max_block_ms=2_000, request_timeout_ms=60_000, delivery_timeout_ms=120_000
        ) as producer:
            calls = {
                "init": producer.init_transactions,
                "offsets": lambda: producer.send_offsets_to_transaction(OFFSETS, GROUP),
                "commit": producer.commit_transaction,
                "abort": producer.abort_transaction,
            }
            if call != "init":
                await producer.init_transactions()
                producer.begin_transaction()
                future = await producer.send(TOPIC, b"value")
            stage.broker.script[held] = Reaction.HOLD
            for _ in range(2):
                started = asyncio.get_running_loop().time()
                with pytest.raises(OperationTimedOut, match="took longer than 2 s") as raised:
                    await calls[call]()
                assert raised.value.is_retriable
                assert asyncio.get_running_loop().time() - started == pytest.approx(2.0, abs=0.1)
            again = asyncio.ensure_future(calls[call]())  # noqa: TID251
            await asyncio.sleep(0.1)
            stage.broker.script[held] = response
            while stage.broker.held:
                stage.broker.release(response)
                await asyncio.sleep(0.1)
            await again
            if call == "init":
                producer.begin_transaction()
                future = await producer.send(TOPIC, b"value")
            if call in ("init", "offsets"):
                await producer.commit_transaction()
            assert future.done()
        assert ends(stage) == [call != "abort"]

    test()


@in_virtual_time
async def test_cancelled_commit_continues() -> None:
    stage = Stage(partitions=1, transaction_version=2)
    async with stage.transacting() as producer:
        await producer.send(TOPIC, b"value")
        stage.broker.script[EndTxnRequest] = Reaction.HOLD
        committing = asyncio.ensure_future(producer.commit_transaction())  # noqa: TID251
        await asyncio.sleep(1)
        committing.cancel()
        await asyncio.wait([committing])
        stage.broker.release(lambda request: stage_bumps(stage))
        await asyncio.sleep(1)
        with pytest.raises(IllegalState, match="called again"):
            producer.begin_transaction()
        await producer.commit_transaction()
        producer.begin_transaction()
    assert ends(stage) == [True]


@in_virtual_time
async def test_end_without_response_is_sent_again() -> None:
    stage = Stage(partitions=1, transaction_version=2)
    responses: list[ScriptedResponse] = [Reaction.CLOSE]
    stage.broker.script[EndTxnRequest] = lambda request: responses.pop() if responses else stage.end_txn()
    async with stage.transacting() as producer:
        await producer.send(TOPIC, b"value")
        await producer.commit_transaction()
    assert ends(stage) == [True, True]
    first, second = stage.broker.seen(EndTxnRequest)
    assert first == second


@in_virtual_time
async def test_fenced_producer_raises_in_every_call() -> None:
    stage = Stage(partitions=1, transaction_version=2)
    async with stage.transacting() as producer:
        future = await producer.send(TOPIC, b"value")
        stage.broker.script[EndTxnRequest] = EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
        newer = "another producer with this transactional id has started, or the coordinator has aborted"
        with pytest.raises(ProducerFenced, match=rf"PRODUCER_FENCED: .* id 'id' .*{newer}.*create another"):
            await producer.commit_transaction()
        assert future.result().offset == 0
        for call in (producer.abort_transaction, producer.commit_transaction, lambda: producer.send(TOPIC, b"")):
            with pytest.raises(ProducerFenced) as raised:
                await call()
            assert raised.value.is_fatal
        with pytest.raises(ProducerFenced):
            producer.begin_transaction()


@in_virtual_time
async def test_batch_of_an_older_epoch_fails_with_the_cause_and_the_transaction_as_in_java() -> None:
    """Kafka's client: ``InvalidProducerEpochException`` is abortable for a transaction (``TransactionManager``)."""
    stage = Stage(partitions=1, transaction_version=2)
    async with stage.transacting() as producer:
        stage.broker.script[ProduceRequest] = lambda request: stage.refuse(request, ErrorCode.INVALID_PRODUCER_EPOCH)
        newer = "INVALID_PRODUCER_EPOCH: the transactional id 'id' has a newer epoch: another producer"
        with pytest.raises(BrokerRefused, match=newer):
            await (await producer.send(TOPIC, b"value"))
        with pytest.raises(TransactionAbortable, match=newer):
            await producer.commit_transaction()
        await producer.abort_transaction()


@in_virtual_time
async def test_record_that_the_topic_does_not_permit_fails_with_the_settings_to_change() -> None:
    stage = Stage(partitions=1)
    stage.broker.script[ProduceRequest] = lambda request: stage.refuse(request, ErrorCode.MESSAGE_TOO_LARGE)
    async with stage.producing() as producer:
        with pytest.raises(
            BrokerRefused, match=r"max\.message\.bytes of its topic.*max_request_bytes of this producer is 1048576"
        ):
            await (await producer.send(TOPIC, b"value"))


@in_virtual_time
async def test_transaction_timeout_above_that_of_the_brokers_fails_with_the_settings_to_change() -> None:
    stage = Stage(partitions=1)
    stage.broker.script[InitProducerIdRequest] = InitProducerIdResponse(
        error_code=ErrorCode.INVALID_TRANSACTION_TIMEOUT
    )
    async with stage.producing(transactional_id="id", transaction_timeout_ms=3_600_000) as producer:
        expected = r"transaction_timeout_ms \(3600000\) is above transaction\.max\.timeout\.ms"
        with pytest.raises(FatalProducerError, match=expected):
            await producer.init_transactions()


@in_virtual_time
async def test_records_have_failed_when_the_call_raises() -> None:
    stage = Stage(partitions=1, transaction_version=1)
    async with stage.transacting() as producer:
        stage.broker.script[AddPartitionsToTxnRequest] = Reaction.HOLD
        future = await producer.send(TOPIC, b"value")
        asyncio.get_running_loop().call_later(1, stage.broker.release, fenced)
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()
        assert isinstance(future.exception(), ProducerFenced)


def fenced(request: Message) -> Message:
    response = Stage().add_partitions(request)
    for partition in response.results_by_topic_v3_and_below[0].results_by_partition:
        partition.partition_error_code = ErrorCode.PRODUCER_FENCED
    return response


@in_virtual_time
async def test_member_that_lost_its_partitions_cannot_commit_their_offsets() -> None:
    """KIP-447."""
    stage = Stage(partitions=1, transaction_version=2)
    stage.broker.script[TxnOffsetCommitRequest] = lambda request: stage.commit_offsets(
        request, ErrorCode.ILLEGAL_GENERATION
    )
    async with stage.transacting() as producer:
        with pytest.raises(CommitFailed) as raised:
            await producer.send_offsets_to_transaction(OFFSETS, GROUP)
        assert raised.value.is_abortable
        with pytest.raises(TransactionAbortable):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await producer.send_offsets_to_transaction({}, GROUP)
        producer.begin_transaction()


@in_virtual_time
async def test_init_transactions_after_a_refusal_can_be_repeated() -> None:
    stage = Stage(partitions=1)
    stage.broker.script[InitProducerIdRequest] = InitProducerIdResponse(
        error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    async with stage.producing(transactional_id="id") as producer:
        with pytest.raises(ClientError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await producer.init_transactions()
        stage.broker.script[InitProducerIdRequest] = lambda request: stage.init_producer_id()
        await producer.init_transactions()
        producer.begin_transaction()


@in_virtual_time
async def test_close_aborts_an_open_transaction_and_completes_a_pending_commit() -> None:
    stage = Stage(partitions=1, transaction_version=2)
    async with stage.transacting() as producer:
        await producer.send(TOPIC, b"value")
    assert ends(stage) == [False]
    stage = Stage(partitions=1, transaction_version=2)
    async with stage.transacting() as producer:
        await producer.send(TOPIC, b"value")
        committing = asyncio.ensure_future(producer.commit_transaction())  # noqa: TID251
        await asyncio.sleep(0)
    await committing
    assert ends(stage) == [True]
