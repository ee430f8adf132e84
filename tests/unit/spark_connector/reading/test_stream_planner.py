"""Where micro-batches start and end."""

import asyncio

import pytest

from oncelog.clients.errors import ClientError
from oncelog.protocol.messages.list_offsets import ListOffsetsRequest
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.reading.data_loss import DataLoss
from oncelog.spark_connector.reading.offset_lookup import NothingToRead
from oncelog.spark_connector.reading.read_options import ReadOptions, read_options
from oncelog.spark_connector.reading.stream_planner import StreamPlanner
from oncelog.spark_connector.stream_offset import StreamOffset
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import Reaction
from tests.unit.spark_connector.scripted_partition import ID, OTHER_ID, TOPIC, ScriptedPartition, connected_to

P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def options(**others: str) -> ReadOptions:
    return read_options({"kafka.bootstrap.servers": "unused:1", "subscribe": TOPIC, **others}, streaming=True)


async def advance(planner: StreamPlanner, previous: StreamOffset, limit: int | None = None) -> StreamOffset:
    """After the pause between two requests to the brokers."""
    await asyncio.sleep(1.5)
    return await planner.advance(previous, max_offsets=limit, may_wait=True)


@in_virtual_time
async def test_batches_begin_where_the_previous_one_ended() -> None:
    partition = ScriptedPartition(end=10)
    async with connected_to(partition) as cluster:
        planner = StreamPlanner(cluster, options(startingOffsets="earliest"))
        first = await planner.begin(max_offsets=4)
        assert first == StreamOffset({P0: 0}, {P0: 4}, {TOPIC: ID})
        second = await advance(planner, first, 4)
        assert second == StreamOffset({P0: 4}, {P0: 8}, {TOPIC: ID})
        third = await advance(planner, second, 4)
        assert await advance(planner, third, 4) is third, "nothing new is the same offset"
        partition.end = 12
        assert (await advance(planner, third)).end == {P0: 12}
        assert planner.latest == {P0: 12}


@in_virtual_time
async def test_idle_polls_send_no_requests() -> None:
    partition = ScriptedPartition(end=10)
    async with connected_to(partition) as cluster:
        planner = StreamPlanner(cluster, options())
        offset = await planner.begin(max_offsets=None)
        partition.requests.clear()
        for _ in range(90):
            await asyncio.sleep(0.011)
            assert await planner.advance(offset, max_offsets=None, may_wait=False) is offset
        assert len(partition.seen(ListOffsetsRequest)) <= 20
        assert len(partition.seen(MetadataRequest)) <= 1


@in_virtual_time
async def test_new_run_begins_at_the_offset_of_the_checkpoint() -> None:
    """Another process knows only the last offset; where the options say to start does not matter any more."""
    partition = ScriptedPartition(end=10)
    async with connected_to(partition) as cluster:
        planner = StreamPlanner(cluster, options(startingOffsets="latest"))
        following = await planner.advance(StreamOffset({P0: 0}, {P0: 3}, {TOPIC: ID}), max_offsets=None, may_wait=True)
        assert following == StreamOffset({P0: 3}, {P0: 10}, {TOPIC: ID})


@in_virtual_time
async def test_available_now_reads_up_to_the_ends_at_its_start() -> None:
    partition = ScriptedPartition(end=10)
    async with connected_to(partition) as cluster:
        planner = StreamPlanner(cluster, options(startingOffsets="earliest", minOffsetsPerTrigger="100"))
        await planner.fix_target()
        partition.end = 20
        first = await planner.begin(max_offsets=6)
        second = await advance(planner, first, 6)
        assert (first.end, second.end) == ({P0: 6}, {P0: 10})
        assert await advance(planner, second, 6) is second


@in_virtual_time
async def test_batch_below_min_offsets_waits_for_the_delay() -> None:
    partition = ScriptedPartition(end=10)
    async with connected_to(partition) as cluster:
        planner = StreamPlanner(cluster, options(minOffsetsPerTrigger="5", maxTriggerDelay="60s"))
        offset = StreamOffset({P0: 0}, {P0: 9}, {TOPIC: ID})
        first = await advance(planner, offset)
        assert first.end == {P0: 10}, "the first of a run is not held back"
        partition.end = 14
        assert await advance(planner, first) is first
        partition.end = 15
        assert (await advance(planner, first)).end == {P0: 15}
        await asyncio.sleep(60)
        partition.end = 16
        assert (await advance(planner, first)).end == {P0: 16}


@in_virtual_time
async def test_new_partitions_are_read_from_their_beginning() -> None:
    partition = ScriptedPartition(end=10)
    async with connected_to(partition) as cluster:
        planner = StreamPlanner(cluster, options())
        offset = await planner.begin(max_offsets=None)
        partition.partitions = 2
        following = await advance(planner, offset)
        assert (following.start, following.end) == ({P0: 10, P1: 0}, {P0: 10, P1: 10})
        partition.partitions, partition.begin = 1, 3
        partition.partitions = 2
        with pytest.raises(DataLoss, match="orders-1 is new and begins at 3"):
            await advance(planner, offset)


@in_virtual_time
async def test_last_stable_offset_before_the_start_is_no_data_loss() -> None:
    partition = ScriptedPartition(end=10)
    partition.stable_end = 4
    async with connected_to(partition) as cluster:
        planner = StreamPlanner(cluster, options(startingOffsets=f'{{"{TOPIC}": {{"0": 8}}}}'))
        first = await planner.begin(max_offsets=None)
        assert first.end == {P0: 8}
        assert await advance(planner, first) is first
        partition.stable_end = 9
        assert (await advance(planner, first)).end == {P0: 9}


@in_virtual_time
async def test_truncated_log_is_data_loss_and_ends_never_go_back() -> None:
    partition = ScriptedPartition(end=10)
    async with connected_to(partition) as cluster:
        planner = StreamPlanner(cluster, options())
        offset = await planner.begin(max_offsets=None)
        partition.end = 7
        with pytest.raises(DataLoss, match="ends before what was read already: orders-0"):
            await advance(planner, offset)
        careless = StreamPlanner(cluster, options(failOnDataLoss="false"))
        following = await advance(careless, offset)
        assert (following.start, following.end) == ({P0: 7}, {P0: 7})


@in_virtual_time
async def test_broker_with_old_metadata_for_a_moment_is_no_data_loss() -> None:
    partition = ScriptedPartition(end=10)
    async with connected_to(partition) as cluster:
        planner = StreamPlanner(cluster, options())
        offset = await planner.begin(max_offsets=None)
        later = asyncio.get_running_loop().call_later
        partition.end = 7
        later(4.0, setattr, partition, "end", 11)
        following = await advance(planner, offset)
        assert (following.start, following.end) == ({P0: 10}, {P0: 11})
        partition.topic_id = None
        later(4.0, setattr, partition, "topic_id", ID)
        assert await advance(planner, following) is following
        partition.topic_id = OTHER_ID
        later(4.0, setattr, partition, "topic_id", ID)
        assert await advance(planner, following) is following


@in_virtual_time
async def test_available_now_target_of_old_metadata_is_replaced() -> None:
    partition = ScriptedPartition(end=10)
    async with connected_to(partition) as cluster:
        offset = StreamOffset({P0: 0}, {P0: 4}, {TOPIC: ID})
        planner = StreamPlanner(cluster, options())
        partition.topic_id = None
        await planner.fix_target()
        partition.topic_id = ID
        following = await planner.advance(offset, max_offsets=None, may_wait=True)
        assert following == StreamOffset({P0: 4}, {P0: 10}, {TOPIC: ID})
        partition.end = 20
        assert await advance(planner, following) is following, "what came later is for another run"


@in_virtual_time
async def test_deleted_and_recreated_topics_are_data_loss() -> None:
    partition = ScriptedPartition(end=10)
    async with connected_to(partition) as cluster:
        planner = StreamPlanner(cluster, options())
        offset = await planner.begin(max_offsets=None)
        partition.topic_id, partition.end = OTHER_ID, 12
        with pytest.raises(DataLoss, match="deleted and created again: orders"):
            await advance(planner, offset)
        careless = StreamPlanner(cluster, options(failOnDataLoss="false"))
        following = await advance(careless, offset)
        assert following == StreamOffset({P0: 0}, {P0: 12}, {TOPIC: OTHER_ID})
        partition.topic_id = None
        with pytest.raises(DataLoss, match="do not exist any more: orders-0"):
            await advance(planner, offset)
        assert (await advance(careless, offset)).end == {}


@in_virtual_time
async def test_stream_without_a_response_pauses_and_fails_after_the_time_out() -> None:
    partition = ScriptedPartition(end=10)
    async with connected_to(partition) as cluster:
        planner = StreamPlanner(cluster, options(**{"kafkaConsumer.pollTimeoutMs": "60000"}))
        offset = await planner.begin(max_offsets=None)
        partition.script[ListOffsetsRequest] = Reaction.CLOSE
        for _ in range(10):
            assert await advance(planner, offset) is offset
        await asyncio.sleep(60)
        with pytest.raises(ClientError):
            await advance(planner, offset)


@in_virtual_time
async def test_named_topics_that_do_not_exist_are_refused() -> None:
    partition = ScriptedPartition(end=10)
    partition.topic_id = None
    async with connected_to(partition) as cluster:
        with pytest.raises(NothingToRead, match="subscribe: there is no topic orders"):
            await StreamPlanner(cluster, options()).begin(max_offsets=None)
        asyncio.get_running_loop().call_later(3.0, setattr, partition, "topic_id", ID)
        assert (await StreamPlanner(cluster, options()).begin(max_offsets=None)).end == {P0: 10}


@in_virtual_time
async def test_state_topic_that_a_former_release_read_by_a_pattern_is_left_out() -> None:
    """It exists, so it is not lost."""
    partition = ScriptedPartition(end=10)
    state = TopicPartition("__spark_sink_state", 3)
    async with connected_to(partition) as cluster:
        by_pattern = read_options({"kafka.bootstrap.servers": "unused:1", "subscribePattern": ".*"}, streaming=True)
        planner = StreamPlanner(cluster, by_pattern)
        previous = StreamOffset({P0: 0, state: 0}, {P0: 3, state: 7}, {TOPIC: ID, state.topic: OTHER_ID})
        following = await planner.advance(previous, max_offsets=None, may_wait=True)
        assert following == StreamOffset({P0: 3}, {P0: 10}, {TOPIC: ID})
        assert await advance(planner, following) is following
