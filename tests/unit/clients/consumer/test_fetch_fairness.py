"""Many partitions of one consumer: each gets its turn, and one that is sick costs the others nothing."""

import asyncio
from collections import defaultdict
from itertools import pairwise

import pytest

from oncelog.clients.consumer import Consumer, ConsumerRecord
from oncelog.clients.consumer.consumer_errors import OffsetOutOfRange, UnreadableRecords
from oncelog.clients.errors import BrokerRefused, ClientError
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import PartitionData
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.consumer.fetched import ORDERS, batch
from tests.unit.clients.consumer.scripted_log import FailingLeader, Leader, ScriptedMetadata, reading

QUIET, BUSY = ORDERS, TopicPartition("orders", 1)


class DamagedLeader(Leader):
    """One whose partition 0 has a batch that cannot be read."""

    def _data(self, index: int, offset: int) -> PartitionData:
        data = super()._data(index, offset)
        if index == 0:
            damaged = bytearray(batch(0))
            damaged[-1] ^= 1
            data.records = bytes(damaged)
        return data


async def read_at_leisure(consumer: Consumer, polls: int) -> list[list[ConsumerRecord]]:
    """What so many polls return, with time between them for everything that can come to come."""
    found = []
    for _ in range(polls):
        found.append(await consumer.poll(5))
        await asyncio.sleep(0.1)
    return found


async def read_for(consumer: Consumer, seconds: float) -> tuple[int, list[ClientError]]:
    """How many records polls return in that time, and what they raise."""
    until = asyncio.get_running_loop().time() + seconds
    count, errors = 0, []
    while asyncio.get_running_loop().time() < until:
        try:
            count += len(await consumer.poll(1))
        except ClientError as error:
            errors.append(error)
            await asyncio.sleep(0.001)
    return count, errors


# Turns


@in_virtual_time
async def test_quiet_partition_does_not_wait_behind_what_was_read_ahead_of_a_busy_one() -> None:
    leader = FailingLeader(None)
    leader.batches, leader.batches_at_once = {0: 0, 1: 20_000}, 50
    async with reading(
        leader, reported=ScriptedMetadata([1, 1]), partitions=[QUIET, BUSY], max_poll_records=10
    ) as consumer:
        await read_at_leisure(consumer, 50)
        leader.batches[0] = 1
        later = await read_at_leisure(consumer, 25)
    assert any(record.partition == 0 for records in later for record in records)


@in_virtual_time
async def test_partition_gets_a_turn_for_each_poll_not_for_each_response() -> None:
    """A response holds three polls of each of 30 partitions; no partition waits for three polls of all others."""
    partitions = [TopicPartition("orders", index) for index in range(30)]
    leader = Leader(batches_at_once=30)
    leader.batches = dict.fromkeys(range(30), 200)
    async with reading(
        leader, reported=ScriptedMetadata([1] * 30), partitions=partitions, max_poll_records=20
    ) as consumer:
        turns = defaultdict(list)
        for number, records in enumerate(await read_at_leisure(consumer, 120)):
            assert len({record.partition for record in records}) == 1
            turns[records[0].partition].append(number)
    assert len(turns) == 30
    assert max(later - one for each in turns.values() for one, later in pairwise(each)) == 30


@in_virtual_time
async def test_busy_partition_does_not_wait_for_a_fetch_of_quiet_ones() -> None:
    """While what has come of it waits to be polled, no fetch without it is sent, to wait at the broker for records."""
    leader = FailingLeader(None)
    leader.batches, leader.batches_at_once = {0: 0, 1: 200}, 10
    async with reading(
        leader, reported=ScriptedMetadata([1, 1]), partitions=[QUIET, BUSY], max_poll_records=5
    ) as consumer:
        for _ in range(60):
            async with asyncio.timeout(0.1):
                assert await consumer.poll(5)
            await asyncio.sleep(0.02)


@in_virtual_time
async def test_fetches_of_all_brokers_stay_within_max_buffered_bytes() -> None:
    leaders = [Leader(node_id, batches_at_once=1_000) for node_id in (1, 2, 3)]
    for index, leader in enumerate(leaders):
        leader.batches = {index: 100, index + 3: 100}
    reported, partitions = ScriptedMetadata([1, 2, 3] * 2), [TopicPartition("orders", index) for index in range(6)]
    async with reading(*leaders, reported=reported, partitions=partitions, max_buffered_bytes=60_000) as consumer:
        await consumer.poll(1, 1)
        await asyncio.sleep(5)
        assert all(leader.fetches for leader in leaders)
        assert 0 < consumer._buffer.size <= 60_000
        assert all(fetch.max_bytes <= 10_000 for leader in leaders for fetch in leader.fetches[1:])


# Sick ones


@in_virtual_time
async def test_partition_set_aside_does_not_stop_fetches_from_its_broker() -> None:
    """It is paused with two responses of it unread."""
    leader = Leader(batches_at_once=5)
    leader.batches = {0: 1_000, 1: 0}
    async with reading(
        leader, reported=ScriptedMetadata([1, 1]), partitions=[QUIET, BUSY], max_poll_records=1
    ) as consumer:
        await read_at_leisure(consumer, 3)
        consumer.pause([QUIET])
        leader.batches[1] = 1_000
        leader.connections[-1].transport.close()
        found = [record for records in await read_at_leisure(consumer, 100) for record in records]
    assert [(record.partition, record.offset) for record in found] == [(1, offset) for offset in range(100)]


@in_virtual_time
async def test_batch_that_cannot_be_read_does_not_hold_up_other_partitions() -> None:
    leader = DamagedLeader(batches_at_once=50)
    leader.batches = {0: 1, 1: 100}
    async with reading(
        leader, reported=ScriptedMetadata([1, 1]), partitions=[QUIET, BUSY], max_poll_records=10
    ) as consumer:
        count, errors = await read_for(consumer, 0.2)
    assert count == 200
    assert {type(error) for error in errors} == {UnreadableRecords}


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, OffsetOutOfRange),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, BrokerRefused),
        (ErrorCode.CORRUPT_MESSAGE, BrokerRefused),
    ],
)
@pytest.mark.parametrize("others", [0, 1])
def test_partition_that_is_refused_is_fetched_less_and_less_often(
    error: ErrorCode, raised: type[ClientError], others: int
) -> None:
    @in_virtual_time
    async def play() -> None:
        leader = FailingLeader(error)
        leader.batches = {0: 1, 1: 400}
        partitions = [QUIET, BUSY][: 1 + others]
        async with reading(
            leader, reported=ScriptedMetadata([1, 1]), partitions=partitions, auto_offset_reset="none"
        ) as consumer:
            count, errors = await read_for(consumer, 20)
        assert count == others * 800
        assert {type(each) for each in errors} == {raised}
        assert 15 <= len(errors) <= leader.failed_fetches <= 40

    play()


@in_virtual_time
async def test_seek_away_from_a_refused_offset_is_followed_at_once() -> None:
    leader = FailingLeader(ErrorCode.OFFSET_OUT_OF_RANGE, batches=2)
    async with reading(leader, reported=ScriptedMetadata([1]), auto_offset_reset="none") as consumer:
        await read_for(consumer, 20)
        leader.error = None
        consumer.seek(QUIET, 2)
        began = asyncio.get_running_loop().time()
        assert [record.offset for record in await consumer.poll(5)] == [2, 3]
        assert asyncio.get_running_loop().time() - began < 0.01
