"""Seeks and new assignments beside the lookup of a position, at every step of it."""

import asyncio
import re
from collections.abc import Callable

import pytest

from oncelog.clients.consumer import Consumer, OffsetAndMetadata
from oncelog.clients.errors import OperationTimedOut, RequestTimedOut
from oncelog.protocol.messages.list_offsets import ListOffsetsRequest
from oncelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.consumer.fetched import ORDERS
from tests.unit.clients.consumer.scripted_log import Leader, ScriptedMetadata, connected
from tests.unit.clients.scripted_broker import Reaction

OTHER = TopicPartition("orders", 1)
_TURNS = 12

Act = Callable[[Consumer], None]


def _all_ends(request: Message) -> OffsetForLeaderEpochResponse:
    assert isinstance(request, OffsetForLeaderEpochRequest)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=p.partition, leader_epoch=0, end_offset=4) for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _reset(consumer: Consumer) -> None:
    consumer.seek_to_beginning()


def _validate(consumer: Consumer) -> None:
    for partition in (ORDERS, OTHER):
        consumer.seek(partition, OffsetAndMetadata(0, 0))


@pytest.mark.parametrize("begin", [_reset, _validate, lambda consumer: None], ids=["reset", "validate", "committed"])
@pytest.mark.parametrize(
    "act",
    [
        lambda consumer: consumer.seek(ORDERS, 0),
        lambda consumer: consumer.seek(ORDERS, OffsetAndMetadata(0, 0)),
        lambda consumer: consumer.seek_to_beginning([ORDERS]),
        lambda consumer: consumer.assign([OTHER]),
    ],
    ids=["seek", "seek_with_epoch", "reset", "unassign"],
)
def test_change_beside_a_position_lookup_delays_no_partition(begin: Act, act: Act) -> None:
    """All records come in seconds; a question that dies would keep the leader's partitions for 30 s."""
    for turns in range(_TURNS):

        @in_virtual_time
        async def play(turns: int = turns) -> None:
            leader = Leader(batches=2)
            leader.batches[1] = 2
            leader.script[OffsetForLeaderEpochRequest] = _all_ends
            async with connected(leader, reported=ScriptedMetadata([1, 1]), auto_offset_reset="earliest") as consumer:
                await consumer.end_offsets([ORDERS])  # The leaders are known from here on.
                consumer.assign([ORDERS, OTHER])
                begin(consumer)
                polling = asyncio.get_running_loop().create_task(consumer.poll(1.0))
                for _ in range(turns):
                    await asyncio.sleep(0)
                act(consumer)
                await polling
                for _ in range(6):
                    await consumer.poll(1.0)
                for partition in consumer.assignment:
                    assert await consumer.position(partition, 0.1) == 4

        play()


@in_virtual_time
async def test_call_without_response_names_the_address_and_the_request() -> None:
    leader = Leader(batches=1)
    async with connected(leader, reported=ScriptedMetadata([1])) as consumer:
        leader.script[ListOffsetsRequest] = Reaction.SILENCE
        expected = f"no response within 2 s: {leader.address}: no response to ListOffsets"
        with pytest.raises(OperationTimedOut, match=re.escape(expected)):
            await consumer.end_offsets([ORDERS], 2)
        with pytest.raises(RequestTimedOut, match=f"{leader.address}: no response to ListOffsets within"):
            await consumer.end_offsets([ORDERS], 60)
