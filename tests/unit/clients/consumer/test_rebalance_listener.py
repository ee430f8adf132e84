"""A listener that takes long, or for ever, and polls that are cancelled while partitions change."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import pytest

from oncelog.clients.consumer import Consumer, RebalanceListener
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.leave_group import LeaveGroupRequest
from oncelog.protocol.messages.offset_commit import OffsetCommitRequest
from oncelog.protocol.topic_partition import TopicPartition
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.consumer.fetched import ORDERS
from tests.unit.clients.consumer.scripted_group import GroupBroker, Noting, committed, subscribed
from tests.unit.clients.scripted_broker import Reaction

OTHER = TopicPartition("orders", 1)
_SLOW_SECONDS = 0.005


class _Slow(Noting):
    """Takes a while, and notes what it is told only when it is done with it."""

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.sleep(_SLOW_SECONDS)
        await super().on_partitions_revoked(partitions)

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.sleep(_SLOW_SECONDS)
        await super().on_partitions_assigned(partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.sleep(_SLOW_SECONDS)
        await super().on_partitions_lost(partitions)


class _Hanging(RebalanceListener):
    """Does not return from one of its methods."""

    def __init__(self, method: str) -> None:
        self._method = method
        self.is_called = asyncio.Event()

    async def _maybe_hang(self, method: str) -> None:
        if method == self._method:
            self.is_called.set()
            await asyncio.Event().wait()

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self._maybe_hang("revoked")

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await self._maybe_hang("assigned")


def owned(reported: list[tuple[str, list[TopicPartition]]]) -> set[TopicPartition]:
    """What is owned after this, if every partition was given only when it was not owned, and taken when it was."""
    found: set[TopicPartition] = set()
    for what, partitions in reported:
        if what == "assigned":
            assert found.isdisjoint(partitions), reported
            found.update(partitions)
        else:
            assert found.issuperset(partitions), reported
            found.difference_update(partitions)
    return found


@asynccontextmanager
async def rebalancing(
    broker: GroupBroker, listener: RebalanceListener, error: ErrorCode, **settings: Any
) -> AsyncIterator[Consumer]:
    """A consumer of both partitions that has polled a record, and whose heartbeat was then answered this error."""
    broker.assignment = [ORDERS, OTHER]
    broker.batches[1] = 3
    async with subscribed(broker, listener, **settings) as consumer:
        while not await consumer.poll(5, 1):
            pass
        broker.responses[HeartbeatRequest] = [HeartbeatResponse(error_code=error)]
        broker.assignment = [ORDERS]
        await asyncio.sleep(3.5)
        yield consumer


@pytest.mark.parametrize("method", ["assigned", "revoked"])
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_listener_that_does_not_return_loses_its_partitions(method: str, assignor: str) -> None:
    """``max_poll_interval_ms`` counts inside the listener, as in Java's consumer."""

    @in_virtual_time
    async def play() -> None:
        broker, listener = GroupBroker(batches=3), _Hanging(method)
        broker.assignment = [ORDERS, OTHER]
        settings = {"max_poll_interval_ms": 10_000, "assignors": (assignor,)}
        async with subscribed(broker, listener, **settings) as consumer:

            async def poll() -> None:
                while True:
                    await consumer.poll(1.0)

            polling = asyncio.get_running_loop().create_task(poll())
            if method == "revoked":
                await asyncio.sleep(5)
                broker.assignment = [ORDERS]
                broker.responses[HeartbeatRequest] = [HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)]
            await listener.is_called.wait()
            await asyncio.sleep(9)
            assert not broker.seen(LeaveGroupRequest)
            await asyncio.sleep(6)
            assert len(broker.seen(LeaveGroupRequest)) == 1
            polling.cancel()

    play()


@pytest.mark.parametrize("error", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID])
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_poll_cancelled_at_any_time_of_a_rebalance_keeps_listener_and_assignment_alike(
    error: ErrorCode, assignor: str
) -> None:
    for step in range(0, 60, 4):

        @in_virtual_time
        async def play(step: int = step) -> None:
            broker, listener = GroupBroker(batches=3), _Slow()
            settings = {"assignors": (assignor,), "enable_auto_commit": True}
            async with rebalancing(broker, listener, error, **settings) as consumer:
                polling = asyncio.get_running_loop().create_task(consumer.poll(5, 1))
                await asyncio.sleep(step * 0.001)
                polling.cancel()
                await asyncio.wait({polling})
                for _ in range(20):
                    await consumer.poll(0.5, 1)
                assert consumer.assignment == {ORDERS}
                assert owned(listener.reported) == {ORDERS}
            assert owned(listener.reported) == set()

        play()


@in_virtual_time
async def test_poll_cancelled_during_the_commit_before_a_revocation_tells_the_listener_with_the_next() -> None:
    broker, listener = GroupBroker(batches=3), Noting()
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 600_000}
    async with rebalancing(broker, listener, ErrorCode.REBALANCE_IN_PROGRESS, **settings) as consumer:
        broker.responses[OffsetCommitRequest] = [committed, Reaction.HOLD]  # Before joining, and before giving up.
        polling = asyncio.get_running_loop().create_task(consumer.poll(60, 1))
        while not broker.held:
            if polling.done():
                polling = asyncio.get_running_loop().create_task(consumer.poll(60, 1))
            await asyncio.sleep(0.001)
        polling.cancel()
        await asyncio.wait({polling})
        assert listener.reported == [("assigned", [ORDERS, OTHER])]
        assert consumer.assignment == {ORDERS, OTHER}
        assert all(record.topic_partition == ORDERS for record in await consumer.poll(0.5))
        broker.release(committed)
        await consumer.poll(1)
        assert listener.reported[1:3] == [("revoked", [OTHER]), ("assigned", [])]
        assert consumer.assignment == {ORDERS}


@in_virtual_time
async def test_close_ends_in_its_time_beside_a_listener_and_a_coordinator_that_do_not_respond() -> None:
    broker, listener = GroupBroker(), _Hanging("revoked")
    async with subscribed(broker, listener) as consumer:
        await consumer.poll(5)
        broker.script[LeaveGroupRequest] = Reaction.SILENCE
        began = asyncio.get_running_loop().time()
        await consumer.close(timeout_seconds=2)
        assert asyncio.get_running_loop().time() - began < 5
        assert len(broker.seen(LeaveGroupRequest)) == 1
