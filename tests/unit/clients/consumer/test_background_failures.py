"""Background tasks that die of something other than a ``ClientError``: the next call says so, and the work goes on."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from oncelog.clients.consumer import Consumer
from oncelog.clients.errors import BackgroundTaskFailed
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from oncelog.protocol.messages.offset_commit import OffsetCommitRequest
from oncelog.protocol.schema import Message
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.consumer.scripted_group import GroupBroker, committed
from tests.unit.clients.consumer.scripted_log import ScriptedMetadata, connected
from tests.unit.clients.scripted_broker import Reaction


class _FailingRandom(Random):
    """Raises MemoryError once when it is armed: background tasks draw the lengths of their pauses from it."""

    armed = False

    def random(self) -> float:
        if self.armed:
            self.armed = False
            raise MemoryError("injected")
        return super().random()


def _break_fetch(broker: GroupBroker) -> None:
    broker.refusals = [Reaction.CLOSE]
    for connection in list(broker.connections):
        connection.transport.close()


def _break_heartbeats(broker: GroupBroker) -> None:
    broker.responses[HeartbeatRequest] = [HeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)]


def _break_commits(broker: GroupBroker) -> None:
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    broker.responses[OffsetCommitRequest] = [lambda request: committed(request, loading)]  # type: ignore[list-item]


async def _raised(consumer: Consumer) -> int:
    """How many of the polls of 20 seconds raise; the records that they return do not matter."""
    failures = 0
    for _ in range(20):
        try:
            await consumer.poll(1.0)
        except BackgroundTaskFailed as failure:
            failures += isinstance(failure.__cause__, MemoryError)
    return failures


@pytest.mark.parametrize("breaks", [_break_fetch, _break_heartbeats, _break_commits])
def test_background_task_that_fails_raises_once_and_goes_on(breaks: Callable[[GroupBroker], None]) -> None:
    @in_virtual_time
    async def play() -> None:
        broker, rng = GroupBroker(batches=1), _FailingRandom(1)
        settings = {"group_id": "group", "auto_offset_reset": "earliest", "enable_auto_commit": True}
        async with connected(broker, reported=ScriptedMetadata([1, 1]), rng=rng, **settings) as consumer:
            consumer.subscribe(["orders"])
            assert len(await consumer.poll(5)) == 2
            rng.armed = True
            breaks(broker)
            assert await _raised(consumer) == 1
            assert not rng.armed
            beats, commits = len(broker.seen(HeartbeatRequest)), len(broker.seen(OffsetCommitRequest))
            broker.batches[0] = 5
            for connection in list(broker.connections):
                connection.transport.close()
            records = [record for _ in range(20) for record in await consumer.poll(1.0)]
            assert [record.offset for record in records] == list(range(2, 10))
            assert len(broker.seen(HeartbeatRequest)) >= beats + 5
            assert len(broker.seen(OffsetCommitRequest)) >= commits + 3
            assert len(broker.joins()) == 2

    play()


@in_virtual_time
async def test_metadata_task_that_fails_is_started_again() -> None:
    broker, reported, rng = GroupBroker(batches=1), ScriptedMetadata([-1]), _FailingRandom(1)
    rng.armed = True
    async with connected(broker, reported=reported, rng=rng, auto_offset_reset="earliest") as consumer:
        consumer.assign([broker.assignment[0]])
        assert await _raised(consumer) == 1
        reported.leaders = [1]
        assert len(await consumer.poll(20)) == 2


@in_virtual_time
async def test_position_lookup_that_fails_does_not_hold_up_its_partitions() -> None:
    broker, rng = GroupBroker(batches=1), _FailingRandom(1)
    usual = broker.script[ListOffsetsRequest]

    def fail_once(request: Message) -> ListOffsetsResponse:
        broker.script[ListOffsetsRequest] = usual
        rng.armed = True
        failed = ListOffsetsPartitionResponse(partition_index=0, error_code=ErrorCode.OFFSET_NOT_AVAILABLE)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[failed])])

    broker.script[ListOffsetsRequest] = fail_once
    async with connected(broker, reported=ScriptedMetadata([1]), rng=rng, auto_offset_reset="earliest") as consumer:
        consumer.assign([broker.assignment[0]])
        began = asyncio.get_running_loop().time()
        with pytest.raises(BackgroundTaskFailed):
            await consumer.poll(20)
        assert len(await consumer.poll(20)) == 2
        assert asyncio.get_running_loop().time() - began < 5
