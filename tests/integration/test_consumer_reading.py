"""The consumer against a real broker: what it sees of transactions, and where it reads, through crashes."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from oncelog.clients.consumer import Consumer, ConsumerRecord, OffsetAndMetadata
from oncelog.clients.consumer.consumer_errors import (
    ConsumerClosed,
    LogTruncated,
    NoOffsetForPartition,
    OffsetOutOfRange,
    UnreadableRecords,
)
from oncelog.clients.errors import BrokerRefused, IllegalState, OperationTimedOut, Unreachable
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog.protocol.records.record_batch import HEADER_SIZE, stamp_crc
from oncelog.protocol.topic_partition import TopicPartition
from tests.integration.group_members import new_consumer, places, produce
from tests.scenarios.stage import Stage, scenario


@asynccontextmanager
async def reading(stage: Stage, *partitions: TopicPartition, **settings: Any) -> AsyncIterator[Consumer]:
    """A consumer to which these partitions were assigned."""
    async with new_consumer(stage, **settings) as consumer:
        consumer.assign(partitions)
        yield consumer


async def values(consumer: Consumer, count: int, *, within: float = 10.0) -> list[int]:
    """The next values, exactly so many."""
    found: list[ConsumerRecord] = []
    end = asyncio.get_running_loop().time() + within
    while len(found) < count and asyncio.get_running_loop().time() < end:
        found += await consumer.poll(1.0, count - len(found))
    return [int(record.value or b"") for record in found]


async def nothing_more(consumer: Consumer) -> bool:
    return await consumer.poll(3.0) == []


async def delete_records(stage: Stage, partition: TopicPartition, before: int) -> None:
    requested = DeleteRecordsPartition(partition_index=partition.partition, offset=before)
    topic = DeleteRecordsTopic(name=partition.topic, partitions=[requested])
    response = await stage.call(DeleteRecordsRequest(topics=[topic], timeout_ms=5_000), 2)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


# Transactions


@scenario(seeds=range(1, 16))
async def test_read_committed_is_just_what_was_committed(stage: Stage) -> None:
    """Random transactions of several producers on two partitions, read while they are written."""
    partitions = await stage.create_topic("orders", 2)
    producers = [stage.producer(f"producer-{number}") for number in range(3)]
    plain = stage.producer(None)
    for producer in (*producers, plain):
        await producer.init()
    committed: dict[TopicPartition, list[int]] = {partition: [] for partition in partitions}
    everything: dict[TopicPartition, list[int]] = {partition: [] for partition in partitions}
    open_values: list[list[tuple[TopicPartition, int]]] = [[], [], []]
    numbers = itertools.count()
    seen: dict[TopicPartition, list[int]] = {partition: [] for partition in partitions}

    async def step() -> None:
        which = stage.rng.randrange(5)
        partition = stage.rng.choice(partitions)
        if which == 4:
            number = next(numbers)
            assert (await plain.send(partition, str(number).encode())).error_code == 0
            committed[partition].append(number)
            everything[partition].append(number)
        elif which < 3:
            new = [next(numbers) for _ in range(stage.rng.randint(1, 3))]
            assert await producers[which].add(partition) == 0
            sent = await producers[which].send(partition, *(str(number).encode() for number in new))
            assert sent.error_code == 0
            open_values[which] += [(partition, number) for number in new]
            everything[partition] += new
        else:
            which = stage.rng.randrange(3)
            if open_values[which]:
                commit = stage.rng.random() < 0.5
                assert await producers[which].end(commit=commit) == 0
                for partition, number in open_values[which] if commit else ():
                    committed[partition].append(number)
                open_values[which] = []

    async with reading(stage, *partitions) as consumer:

        async def poll(seconds: float) -> bool:
            records = await consumer.poll(seconds, 7)
            for record in records:
                seen[record.topic_partition].append(int(record.value or b""))
            return bool(records)

        for _ in range(40):
            await step()
            if stage.rng.random() < 0.5:
                await poll(0.0)
                for partition, found in seen.items():
                    assert set(found) <= set(committed[partition])
        for which in range(3):
            if open_values[which]:
                assert await producers[which].end(commit=False) == 0
        while await poll(3.0):
            pass
        ends = await consumer.end_offsets(partitions)
        assert {partition: await consumer.position(partition) for partition in partitions} == ends
        assert {partition: consumer.lag(partition) for partition in partitions} == dict.fromkeys(partitions, 0)
    order = {partition: {value: place for place, value in enumerate(found)} for partition, found in everything.items()}
    for partition in partitions:
        assert seen[partition] == sorted(committed[partition], key=order[partition].__getitem__)
    async with reading(stage, *partitions, isolation_level="read_uncommitted") as consumer:
        total = sum(map(len, everything.values()))
        assert sorted(await values(consumer, total)) == sorted(itertools.chain(*everything.values()))
        assert await nothing_more(consumer)


@scenario()
async def test_records_behind_an_open_transaction_are_read_when_it_ends(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    producer = stage.producer("producer")
    await producer.init()
    await producer.open_transaction({partition: [b"0"]})
    await produce(stage, [partition], 1, begin=1)
    async with reading(stage, partition) as consumer:
        assert await nothing_more(consumer)
        assert await consumer.end_offsets([partition]) == {partition: 0}
        await producer.end(commit=True)
        assert await values(consumer, 2) == [0, 1]


# Where to begin


@scenario()
async def test_reading_without_a_commit_begins_where_auto_offset_reset_says(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    await produce(stage, [partition], 3)
    async with (
        reading(stage, partition, auto_offset_reset="earliest") as earliest,
        reading(stage, partition, auto_offset_reset="latest") as latest,
        reading(stage, partition, auto_offset_reset="by_duration:P365D") as recent,
        reading(stage, partition, auto_offset_reset="by_duration:PT1S") as young,
        reading(stage, partition, auto_offset_reset="none") as none,
    ):
        assert await latest.position(partition) == 3
        assert await values(earliest, 3) == await values(recent, 3) == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(NoOffsetForPartition) as raised:
                await none.poll(5)
            assert raised.value.partitions == {partition}
        none.seek(partition, 1)
        assert await values(none, 2) == [1, 2]
        await asyncio.sleep(2)
        assert await young.poll(3.0) == []  # No record is so young that one could begin with it.
        await produce(stage, [partition], 1, begin=3)
        assert await values(latest, 1) == [3]


@scenario()
async def test_seeks_and_what_partitions_hold(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    await produce(stage, [partition], 6)
    async with reading(stage, partition, max_partition_fetch_bytes=200) as consumer:
        assert await values(consumer, 2) == [0, 1]
        consumer.seek(partition, 4)
        assert await consumer.position(partition) == 4
        assert await values(consumer, 1) == [4]
        consumer.seek_to_beginning()
        assert await values(consumer, 1) == [0]
        consumer.seek_to_end([partition])
        assert await consumer.position(partition) == 6
        consumer.seek(partition, OffsetAndMetadata(2, 0))
        assert await values(consumer, 4) == [2, 3, 4, 5]
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 6}
        found = (await consumer.offsets_for_times({partition: 0}))[partition]
        assert found is not None
        assert (found.offset, found.leader_epoch) == (0, 0)
        assert await consumer.offsets_for_times({partition: 2**50}) == {partition: None}
        missing = TopicPartition("orders", 7)
        with pytest.raises(IllegalState):
            consumer.seek(missing, 0)
        with pytest.raises(ValueError, match="offset -1"):
            consumer.seek(partition, -1)
        with pytest.raises(BrokerRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await consumer.end_offsets([missing])


@scenario()
async def test_position_of_deleted_records_is_reset_or_reported(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    await produce(stage, [partition], 6)
    async with (
        reading(stage, partition, auto_offset_reset="earliest") as follows,
        reading(stage, partition, auto_offset_reset="none") as reports,
    ):
        await delete_records(stage, partition, 3)
        follows.seek(partition, 1)
        assert await values(follows, 3) == [3, 4, 5]
        reports.seek(partition, 1)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange) as raised:
                await reports.poll(5)
            assert (raised.value.topic_partition, raised.value.position) == (partition, 1)
        reports.seek_to_beginning()
        assert await values(reports, 3) == [3, 4, 5]
        reports.seek(partition, 99)
        with pytest.raises(OffsetOutOfRange):
            await reports.poll(5)


# Pausing


@scenario()
async def test_records_fetched_for_a_paused_partition_are_kept_until_it_resumes(stage: Stage) -> None:
    partitions = await stage.create_topic("orders", 2)
    await produce(stage, partitions, 4)
    async with reading(stage, *partitions) as consumer:
        (first,) = await consumer.poll(10, 1)
        paused, other = first.topic_partition, next(tp for tp in partitions if tp != first.topic_partition)
        await asyncio.sleep(1)
        consumer.pause([paused])
        assert consumer.paused == {paused}
        assert {record.topic_partition for record in await consumer.poll(5)} == {other}
        assert await nothing_more(consumer)
        fetches = consumer._buffer.next_offset(paused)
        await produce(stage, [paused], 2, begin=4)
        assert await nothing_more(consumer)
        assert consumer._buffer.next_offset(paused) == fetches == 4
        consumer.resume([paused])
        assert await values(consumer, 5) == [1, 2, 3, 4, 5]


@scenario()
async def test_fetching_stops_at_the_limit_of_buffered_bytes(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    await produce(stage, [partition], 200)
    limits = {"max_buffered_bytes": 2_000, "max_partition_fetch_bytes": 500}
    async with reading(stage, partition, **limits) as consumer:
        assert await values(consumer, 1) == [0]
        await asyncio.sleep(5)
        waiting = consumer._buffer.size
        assert 500 < waiting <= 2_000
        await asyncio.sleep(5)
        assert consumer._buffer.size == waiting
        assert await values(consumer, 199) == list(range(1, 200))


# One by one


@scenario()
async def test_iterating_consumes_record_by_record(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    await produce(stage, [partition], 250)
    consumer = new_consumer(stage, group_id="group")
    seen = []
    async with consumer:
        consumer.subscribe(["orders"])
        async for record in consumer:
            seen.append(int(record.value or b""))
            assert await consumer.position(partition) == record.offset + 1
            if len(seen) in (3, 240):
                await consumer.commit()
                assert await stage.group_offset("group", partition) == len(seen)
            if len(seen) == 250:
                break
    assert seen == list(range(250))
    async for _ in consumer:
        pytest.fail("a closed consumer has no records")


# Crashes


@scenario()
async def test_leader_that_is_killed_and_comes_back_is_read_on(stage: Stage) -> None:
    """Its epoch is a new one: the position is validated, and nothing is lost or doubled."""
    (partition,) = await stage.create_topic("orders")
    await produce(stage, [partition], 3)
    async with reading(stage, partition) as consumer:
        assert await values(consumer, 2) == [0, 1]
        for number in range(3):
            await stage.restart()
            await produce(stage, [partition], 1, begin=3 + number)
        assert await values(consumer, 4, within=60) == [2, 3, 4, 5]
        assert await nothing_more(consumer)
        assert consumer._subscription.partitions[partition].position.leader.epoch == 3


@pytest.mark.parametrize("policy", ["none", "latest"])
def test_log_that_lost_its_end_is_noticed(policy: str) -> None:
    """Power fails before what was read is on the medium, and other records take its offsets."""
    losses = []

    @scenario(seeds=range(1, 7))
    async def play(stage: Stage) -> None:
        (partition,) = await stage.create_topic("orders")
        await produce(stage, [partition], 3)
        await stage.restart()
        await produce(stage, [partition], 4, begin=3)
        async with reading(stage, partition, auto_offset_reset=policy) as consumer:
            consumer.seek(partition, 0)
            assert await values(consumer, 7) == list(range(7))
            await stage.restart("power")
            end = (await consumer.end_offsets([partition]))[partition]
            losses.append(7 - end)
            await produce(stage, [partition], 6, begin=100)
            if end < 7 and policy == "none":
                with pytest.raises(LogTruncated) as raised:
                    await consumer.poll(30)
                assert (raised.value.topic_partition, raised.value.position) == (partition, 7)
                assert raised.value.diverging is not None
                assert raised.value.diverging.offset == end
                consumer.seek(partition, end)
            assert await values(consumer, 6, within=60) == list(range(100, 106))

    play()
    assert sum(loss > 0 for loss in losses) >= 3


@pytest.mark.parametrize("policy", ["none", "earliest"])
@pytest.mark.parametrize("count", [1, 6])
def test_log_that_lost_its_end_while_records_waited_is_read_on_where_it_was_cut(policy: str, count: int) -> None:
    """The position is still in the log. What waits to be polled is not, and new records have its offsets."""
    losses = []

    @scenario(seeds=range(1, 25))
    async def play(stage: Stage) -> None:
        (partition,) = await stage.create_topic("orders")
        await produce(stage, [partition], 3)
        await stage.restart()
        await produce(stage, [partition], 4, begin=3)
        seen: dict[int, int] = {}
        async with reading(stage, partition, auto_offset_reset=policy) as consumer:

            async def poll(seconds: float, limit: int) -> None:
                try:
                    records = await consumer.poll(seconds, limit)
                except LogTruncated as truncated:
                    consumer.seek(partition, truncated.diverging or 0)
                else:
                    seen.update((record.offset, int(record.value or b"")) for record in records)

            consumer.seek(partition, 0)
            await poll(5, 3)
            await asyncio.sleep(1)  # The rest has come and waits.
            await stage.restart("power")
            end = (await consumer.end_offsets([partition]))[partition]
            losses.append(end)
            await produce(stage, [partition], count, begin=100)
            for _ in range(20):
                await poll(2, 500)
        async with reading(stage, partition) as fresh:
            fresh.seek(partition, 0)
            log = dict(enumerate(await values(fresh, end + count)))
        assert {offset: value for offset, value in seen.items() if offset in log} == log

    play()
    assert sum(3 < end < 7 for end in losses) >= 2


@scenario()
async def test_topic_that_was_deleted_and_created_anew_is_read_again(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    await produce(stage, [partition], 3)
    async with reading(stage, partition, allow_auto_create_topics=False) as consumer:
        assert await values(consumer, 3) == [0, 1, 2]
        await stage.call(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=5_000), 5)
        assert await nothing_more(consumer)
        await stage.create_topic("orders")
        assert await nothing_more(consumer)
        await produce(stage, [partition], 2, begin=10)
        assert await values(consumer, 2, within=60) == [10, 11]


@scenario()
async def test_topic_that_is_subscribed_to_before_it_exists(stage: Stage) -> None:
    async with new_consumer(stage, group_id="group", allow_auto_create_topics=False) as patient:
        patient.subscribe(["orders"])
        assert await patient.poll(5) == []
        (partition, _) = await stage.create_topic("orders", 2)
        await produce(stage, [partition], 1)
        assert await values(patient, 1) == [0]
    async with new_consumer(stage, group_id="other") as creative:
        creative.subscribe(["clicks"])
        await creative.poll(5)
        assert len(creative.assignment) == 2  # num.partitions


@scenario()
async def test_records_that_contradict_themselves_are_reported_and_can_be_passed_over(stage: Stage) -> None:
    """Their CRC is right, so the broker has taken them without looking inside."""
    (partition,) = await stage.create_topic("orders")
    await produce(stage, [partition], 2)
    producer = stage.producer(None)
    await producer.init()
    broken = producer.batch(partition, b"broken")
    broken[HEADER_SIZE] += 2
    stamp_crc(broken)
    assert (await producer.produce(broken, partition)).error_code == ErrorCode.NONE
    await produce(stage, [partition], 1, begin=3)
    async with reading(stage, partition) as consumer:
        assert await values(consumer, 2) == [0, 1]
        for _ in range(2):
            with pytest.raises(
                UnreadableRecords, match=r"orders-0 at position 2: .*; seek to 3 to pass it over"
            ) as raised:
                await consumer.poll(5)
        assert raised.value.next_offset == 3
        consumer.seek(partition, 3)
        assert await values(consumer, 1) == [3]


# The end


@scenario()
async def test_consumer_whose_broker_is_gone_closes_in_its_time(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    await produce(stage, [partition], 3)
    consumer = new_consumer(stage, group_id="group", enable_auto_commit=True)
    await consumer.start()
    consumer.subscribe(["orders"])
    assert await values(consumer, 2) == [0, 1]
    stage.crash()
    before = stage.loop.time()
    await consumer.close(timeout_seconds=3)
    assert 2.9 < stage.loop.time() - before < 5
    await stage.broker.start()


@scenario()
async def test_poll_that_waits_ends_when_the_consumer_is_closed(stage: Stage) -> None:
    await stage.create_topic("orders")
    consumer = new_consumer(stage, group_id="group")
    await consumer.start()
    consumer.subscribe(["orders"])
    polling = stage.loop.create_task(consumer.poll(1_000))
    await asyncio.sleep(5)
    with pytest.raises(IllegalState, match="another task"):
        await consumer.poll()
    before = stage.loop.time()
    await consumer.close()
    assert stage.loop.time() - before < 1
    for call in (polling, consumer.poll(), consumer.commit({TopicPartition("orders", 0): OffsetAndMetadata(1)})):
        with pytest.raises(ConsumerClosed):
            await call
    await consumer.close()


@scenario()
async def test_poll_that_is_cancelled_has_lost_nothing(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    async with reading(stage, partition) as consumer:
        seen = []
        producing = stage.loop.create_task(produce(stage, [partition], 60))
        while len(seen) < 60:
            try:
                async with asyncio.timeout(stage.rng.uniform(0, 0.01)):
                    seen += places(await consumer.poll(5.0, 2))
            except TimeoutError:
                pass
        await producing
    assert [offset for _, offset in seen] == list(range(60))


@scenario()
async def test_calls_give_up_in_their_time(stage: Stage) -> None:
    (partition,) = await stage.create_topic("orders")
    consumer = new_consumer(stage, group_id="group")
    async with consumer:
        consumer.assign([partition])
        await consumer.position(partition)
        stage.crash()
        consumer.seek_to_end()
        calls: Mapping[str, Any] = {
            "position": consumer.position(partition, 2),
            "commit": consumer.commit({partition: OffsetAndMetadata(1)}, 2),
            "end_offsets": consumer.end_offsets([partition], 2),
        }
        for name, call in calls.items():
            before = stage.loop.time()
            with pytest.raises((OperationTimedOut, Unreachable)):
                await call
            assert stage.loop.time() - before < 2.5, name
        before = stage.loop.time()
        assert await consumer.poll(2) == []
        assert 1.9 < stage.loop.time() - before < 2.1
        await stage.broker.start()
        assert await consumer.position(partition) == 0


@scenario()
async def test_start_without_broker_raises_and_names_the_address(stage: Stage) -> None:
    consumer = new_consumer(stage, bootstrap="127.0.0.1:1")
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        await consumer.start()
    with pytest.raises(IllegalState, match="subscribe to topics or assign"):
        await consumer.poll()
    await consumer.close()
