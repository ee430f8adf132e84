"""A pattern subscription whose metadata takes longer than a poll, and whose member loses its generation."""

import asyncio
import re

import pytest

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.join_group import JoinGroupRequest
from oncelog.protocol.messages.metadata import MetadataRequest
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.consumer.fetched import ORDERS
from tests.unit.clients.consumer.scripted_group import GroupBroker, Noting, subscribed
from tests.unit.clients.scripted_broker import Reaction

PATTERN = re.compile("ord.*")


@pytest.mark.parametrize("timeout_seconds", [0.0, 0.001, 0.01])
def test_pattern_subscription_polled_with_a_short_timeout_joins(timeout_seconds: float) -> None:
    @in_virtual_time
    async def play() -> None:
        broker = GroupBroker()
        async with subscribed(broker, topics=PATTERN) as consumer:
            for _ in range(2_000):
                if await consumer.poll(timeout_seconds):
                    break
                await asyncio.sleep(0.001)
            assert consumer.assignment == {ORDERS}

    play()


@pytest.mark.parametrize("timeout_seconds", [0.0, 0.001, 0.01])
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_pattern_subscription_whose_generation_is_lost_returns_nothing_and_tells_the_listener(
    timeout_seconds: float, assignor: str
) -> None:
    """Also while the metadata request that comes before the next rebalance is not answered."""

    @in_virtual_time
    async def play() -> None:
        broker, listener = GroupBroker(batches=50), Noting()
        async with subscribed(broker, listener, topics=PATTERN, assignors=(assignor,)) as consumer:
            assert len(await consumer.poll(5, 1)) == 1
            reported, broker.script[MetadataRequest] = broker.script[MetadataRequest], Reaction.SILENCE
            broker.responses[HeartbeatRequest] = [HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)]
            await asyncio.sleep(4)
            for _ in range(10):
                assert await consumer.poll(timeout_seconds, 1) == []
            assert listener.reported == [("assigned", [ORDERS]), ("lost", [ORDERS])]
            broker.script[MetadataRequest] = reported
            assert await consumer.poll(60)
            assert listener.reported[2:] == [("assigned", [ORDERS])]

    play()


@pytest.mark.parametrize("topics", [PATTERN, ["orders"]])
def test_generation_lost_while_joining_returns_nothing(topics: object) -> None:
    """A JoinGroup may wait for the whole group; what the heartbeat before it says counts at once."""

    @in_virtual_time
    async def play() -> None:
        broker, listener = GroupBroker(batches=500), Noting()
        async with subscribed(broker, listener, topics=topics) as consumer:
            assert len(await consumer.poll(5, 1)) == 1
            broker.responses[JoinGroupRequest] = [Reaction.SILENCE]
            broker.responses[HeartbeatRequest] = [Reaction.HOLD]
            await asyncio.sleep(4)
            consumer._group._membership.request_rejoin("for the test")  # type: ignore[union-attr]
            for _ in range(200):
                await consumer.poll(0.01, 1)
                await asyncio.sleep(0.01)
            assert len(broker.joins()) == 3
            broker.release(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            await asyncio.sleep(1)
            for _ in range(10):
                assert await consumer.poll(0.001, 1) == []
            assert listener.reported == [("assigned", [ORDERS]), ("lost", [ORDERS])]

    play()
