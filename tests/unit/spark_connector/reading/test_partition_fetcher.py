"""Fetching a range: ahead, through errors that pass, and what is said when records are gone."""

import asyncio
from typing import Any

import pytest

from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerRefused
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchResponse, PartitionData
from oncelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from oncelog.protocol.schema import Message, Versions
from oncelog.spark_connector.columnar.fetched_batches import RangeUnreadable
from oncelog.spark_connector.reading.data_loss import DataLoss
from oncelog.spark_connector.reading.partition_fetcher import PartitionFetcher
from oncelog.spark_connector.reading.read_options import FetchSettings
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import Reaction, ScriptedResponse
from tests.unit.spark_connector.scripted_partition import (
    ID,
    TOPIC,
    ScriptedPartition,
    batch,
    connected_to,
    offsets,
    respond,
)


def fetcher(cluster: Cluster, start: int, end: int, *, fail: bool = True) -> PartitionFetcher:
    return PartitionFetcher(
        cluster, offsets(start, end), FetchSettings(patience_seconds=60), response_seconds=5, fail_on_data_loss=fail
    )


async def bases(fetching: PartitionFetcher) -> list[int]:
    """The offsets of the batches that come."""
    found = []
    while (fetched := await fetching.next()) is not None:
        found += [header.base_offset for _, header in fetched.batches]
    return found


@in_virtual_time
async def test_next_fetch_is_sent_before_the_response_is_returned() -> None:
    partition = ScriptedPartition(end=6)
    async with connected_to(partition) as cluster:
        fetching = fetcher(cluster, 1, 5)
        first = await fetching.next()
        assert first is not None
        assert first.start == 1
        await asyncio.sleep(1)
        assert partition.fetched == [1, 2]
        assert await bases(fetching) == [2, 4]
        assert partition.fetched == [1, 2, 4], "no fetch goes beyond the range"


@pytest.mark.parametrize(
    "passing",
    [
        PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        PartitionData(error_code=ErrorCode.UNKNOWN_TOPIC_ID),
        PartitionData(error_code=ErrorCode.OFFSET_NOT_AVAILABLE),
        PartitionData(error_code=ErrorCode.UNKNOWN_SERVER_ERROR),
        PartitionData(records=b"", high_watermark=2, last_stable_offset=2),
        Reaction.CLOSE,
        Reaction.SILENCE,
        FetchResponse(),
    ],
)
def test_retriable_errors_are_retried(passing: PartitionData | Reaction | FetchResponse) -> None:
    @in_virtual_time
    async def play() -> None:
        partition = ScriptedPartition(end=4)
        partition.instead = [passing, passing]
        async with connected_to(partition) as cluster:
            assert await bases(fetcher(cluster, 0, 4)) == [0, 2]

    play()


@in_virtual_time
async def test_range_without_a_response_is_unreadable_after_the_time_out() -> None:
    partition = ScriptedPartition(end=4)
    partition.instead = [PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 10_000
    async with connected_to(partition) as cluster:
        with pytest.raises(RangeUnreadable, match=r"orders-0 \[0, 4\): no records for 60 s at 0"):
            await fetcher(cluster, 0, 4).next()


@in_virtual_time
async def test_errors_that_are_not_retriable_are_raised() -> None:
    partition = ScriptedPartition(end=4)
    partition.instead = [PartitionData(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    async with connected_to(partition) as cluster:
        with pytest.raises(BrokerRefused, match="TOPIC_AUTHORIZATION_FAILED"):
            await fetcher(cluster, 0, 4).next()


@pytest.mark.parametrize("count", [3, 30])
def test_empty_responses_of_a_log_that_goes_on_skip_nothing(count: int) -> None:
    """A broker whose remote tier does not respond in time sends them, and then the records."""

    @in_virtual_time
    async def play() -> None:
        partition = ScriptedPartition(end=8)
        partition.instead = [PartitionData(records=b"", high_watermark=8, last_stable_offset=8)] * count
        async with connected_to(partition) as cluster:
            assert await bases(fetcher(cluster, 0, 4)) == [0, 2]

    play()


@in_virtual_time
async def test_range_that_stays_empty_is_data_loss_after_the_time_out() -> None:
    partition = ScriptedPartition(end=4)
    partition.is_emptied = True
    loop = asyncio.get_running_loop()
    async with connected_to(partition) as cluster:
        with pytest.raises(DataLoss, match=r"orders-0 \[0, 4\): no records for 60 s at 0, although the log goes on"):
            await bases(fetcher(cluster, 0, 4))
        began = loop.time()
        assert await bases(fetcher(cluster, 0, 4, fail=False)) == []
        assert loop.time() - began >= 60
        assert len(partition.fetched) < 200, "responses that come at once are followed by a pause"


@in_virtual_time
async def test_throttled_response_without_records_is_no_data_loss() -> None:
    partition = ScriptedPartition(end=2)
    throttled = respond(PartitionData(records=b"", high_watermark=2, last_stable_offset=2))
    throttled.throttle_time_ms = 700
    partition.instead = [throttled] * 5
    async with connected_to(partition) as cluster:
        assert await bases(fetcher(cluster, 0, 2)) == [0]


@in_virtual_time
async def test_range_before_the_log_start_is_data_loss() -> None:
    partition = ScriptedPartition(end=8)
    partition.begin = 5
    async with connected_to(partition) as cluster:
        with pytest.raises(DataLoss, match="the log begins at 5, offsets from 0 on are gone"):
            await bases(fetcher(cluster, 0, 8))
        going_on = fetcher(cluster, 0, 8, fail=False)
        first = await going_on.next()
        assert first is not None
        assert first.start == 5
        assert await bases(going_on) == [6]


@in_virtual_time
async def test_range_after_the_log_end_is_data_loss_once_confirmed() -> None:
    partition = ScriptedPartition(end=2)
    partition.instead = [PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)]
    async with connected_to(partition) as cluster:
        assert await bases(fetcher(cluster, 0, 2)) == [0]
        with pytest.raises(DataLoss, match="the log ends at 2, before offset 4"):
            await bases(fetcher(cluster, 4, 6))
        assert await bases(fetcher(cluster, 4, 6, fail=False)) == []


@pytest.mark.parametrize(
    ("topic_id", "message"), [(None, "does not exist any more"), (b"o" * 16, "was deleted and created again")]
)
def test_recreated_topic_is_not_read_in_place_of_the_old_one(topic_id: bytes | None, message: str) -> None:
    @in_virtual_time
    async def play() -> None:
        partition = ScriptedPartition(end=4)
        async with connected_to(partition) as cluster:
            assert await bases(fetcher(cluster, 0, 4)) == [0, 2]
            partition.topic_id = topic_id
            with pytest.raises(DataLoss, match=message):
                await bases(fetcher(cluster, 0, 4))
            assert await bases(fetcher(cluster, 0, 4, fail=False)) == []

    play()


@in_virtual_time
async def test_unknown_topic_is_no_data_loss_until_confirmed() -> None:
    partition = ScriptedPartition(end=4)
    async with connected_to(partition) as cluster:
        for unknown in (None, b"o" * 16):
            partition.topic_id = unknown
            asyncio.get_running_loop().call_later(3.0, setattr, partition, "topic_id", ID)
            assert await bases(fetcher(cluster, 0, 4)) == [0, 2]


@in_virtual_time
async def test_corrupt_response_makes_the_range_unreadable() -> None:
    partition = ScriptedPartition(end=4)
    old = bytearray(batch(0))
    old[16] = 1
    partition.instead = [PartitionData(records=old), PartitionData(records=batch(0)[:70])]
    async with connected_to(partition) as cluster:
        with pytest.raises(RangeUnreadable, match="format version 1"):
            await fetcher(cluster, 0, 4).next()
        with pytest.raises(RangeUnreadable, match="70 bytes of a larger batch at 0"):
            await fetcher(cluster, 0, 4).next()


@in_virtual_time
async def test_close_cancels_the_fetch_under_way() -> None:
    partition = ScriptedPartition(end=6)
    async with connected_to(partition) as cluster:
        fetching = fetcher(cluster, 0, 6)
        await fetching.next()
        fetching.close()
        assert await bases(fetcher(cluster, 0, 6)) == [0, 2, 4]


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("end", [0, 2, 3])
def test_log_truncated_while_it_was_read_is_data_loss(end: int, fail: bool, caplog: Any) -> None:
    """New records have the offsets of lost ones that were read: without a word they would never be."""

    @in_virtual_time
    async def play() -> None:
        partition = ScriptedPartition(end=8)
        async with connected_to(partition) as cluster:
            fetching = fetcher(cluster, 0, 8, fail=fail)
            for _ in range(2):
                assert await fetching.next() is not None
            partition.elect(end)
            message = f"the log was truncated at {end} and has other records after that, after it had been read up to"
            if not fail:
                assert await bases(fetching) == [4, 6]
                assert message in caplog.text
                return
            with pytest.raises(DataLoss, match=message):
                await bases(fetching)

    play()


@pytest.mark.parametrize("end", [4, 6, 8])
def test_new_leader_with_the_records_that_were_read_is_read_on(end: int) -> None:
    @in_virtual_time
    async def play() -> None:
        partition = ScriptedPartition(end=8)
        async with connected_to(partition) as cluster:
            fetching = fetcher(cluster, 0, 8)
            assert await fetching.next() is not None
            await asyncio.sleep(1)  # The batch at 2 is here.
            partition.elect(end)
            assert await bases(fetching) == [2, 4, 6]

    play()


@pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, None])
def test_epoch_end_is_requested_again_until_it_is_known(error: ErrorCode | None) -> None:
    @in_virtual_time
    async def play() -> None:
        partition = ScriptedPartition(end=8)
        responses = 2

        def refuse(request: Message) -> ScriptedResponse:
            nonlocal responses
            responses -= 1
            if not responses:
                partition.script[OffsetForLeaderEpochRequest] = known
            if error is None:
                return Reaction.CLOSE
            end = EpochEndOffset(error_code=error)
            return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=TOPIC, partitions=[end])])

        known = partition.script[OffsetForLeaderEpochRequest]
        partition.script[OffsetForLeaderEpochRequest] = refuse
        async with connected_to(partition) as cluster:
            fetching = fetcher(cluster, 0, 8)
            assert await fetching.next() is not None
            partition.elect(6)
            assert await bases(fetching) == [2, 4, 6]
            assert responses == 0

    play()


@in_virtual_time
async def test_broker_without_offset_for_leader_epoch_is_read_on() -> None:
    partition = ScriptedPartition(end=8)
    partition.versions = {ApiKey.OFFSET_FOR_LEADER_EPOCH: Versions(0, 1)}
    async with connected_to(partition) as cluster:
        fetching = fetcher(cluster, 0, 8)
        assert await fetching.next() is not None
        partition.elect(0)
        assert await bases(fetching) == [2, 4, 6]


@in_virtual_time
async def test_leader_of_an_earlier_epoch_gets_no_epoch_end_request() -> None:
    """Its log never had what was read of its successor, of which metadata that lag behind say nothing."""
    partition = ScriptedPartition(end=12)
    partition.epoch_begins = [0, 2, 4]
    async with connected_to(partition) as cluster:
        fetching = fetcher(cluster, 0, 12)
        for _ in range(3):
            assert await fetching.next() is not None
        await asyncio.sleep(1)
        newest = partition.epoch_begins.pop()
        partition.connections[0].transport.close()
        asyncio.get_running_loop().call_later(3.0, partition.epoch_begins.append, newest)
        assert await bases(fetching) == [6, 8, 10]
        assert not partition.seen(OffsetForLeaderEpochRequest)
