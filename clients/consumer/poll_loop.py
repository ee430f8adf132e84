"""The polls of a consumer: rebalances, automatic commits, and records from the buffer, one poll at a time."""

import asyncio
import math
from typing import Final, Self

from oncelog.clients.consumer.assigned_partitions import TIMER_SLACK
from oncelog.clients.consumer.background_reading import BackgroundReading
from oncelog.clients.consumer.consumer_errors import ConsumerClosed
from oncelog.clients.consumer.consumer_record import ConsumerRecord
from oncelog.clients.consumer.fetch_buffer import FetchBuffer
from oncelog.clients.consumer.group_consumption import GroupConsumption
from oncelog.clients.consumer.lifecycle import Lifecycle, State
from oncelog.clients.consumer.subscription_state import SubscriptionState
from oncelog.clients.consumer.wakeup import Wakeup
from oncelog.clients.errors import IllegalState
from oncelog.clients.lasting_refusal import LastingRefusal

_RECORDS_BETWEEN_POLLS: Final = 100
"""Records that an iteration takes from the buffer before it polls again."""


class PollLoop:
    """Records of one consumer, as lists or, by iterating, one by one."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        reading: BackgroundReading,
        group: GroupConsumption | None,
        wakeup: Wakeup,
        refusal: LastingRefusal,
    ) -> None:
        self._lifecycle = lifecycle
        self._subscription = subscription
        self._buffer = buffer
        self._reading = reading
        self._group = group
        self._wakeup = wakeup
        self._refusal = refusal
        self._is_polling = False
        self._iterated = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record. Only records that were returned count as consumed."""
        self._iterated = (self._iterated + 1) % _RECORDS_BETWEEN_POLLS
        is_running = self._lifecycle.state is State.RUNNING and not self._wakeup.is_set()
        has_nothing_due = is_running and (self._group is None or not self._group.is_due)
        if self._iterated and has_nothing_due and (records := self._buffer.take(1)):
            if self._group is not None:
                self._group.leave_poll(asyncio.get_running_loop().time())
            return records[0]
        try:
            return (await self.poll(math.inf, 1))[0]
        except ConsumerClosed:
            raise StopAsyncIteration from None

    async def poll(self, deadline: float, limit: int) -> list[ConsumerRecord]:
        """Return up to ``limit`` records; none if none come before ``deadline`` (the loop's time)."""
        if self._is_polling:
            raise IllegalState("another task is polling this consumer")
        if self._subscription.is_empty:
            raise IllegalState("there is nothing to poll: subscribe to topics or assign partitions")
        self._is_polling = True
        loop = asyncio.get_running_loop()
        if self._group is not None:
            self._group.enter_poll()
        try:
            await asyncio.sleep(0)  # Let in what has come, also where every poll finds something.
            return await self._poll_until(deadline, limit)
        finally:
            self._is_polling = False
            if self._group is not None:
                self._group.leave_poll(loop.time())

    async def _poll_until(self, deadline: float, limit: int) -> list[ConsumerRecord]:
        loop = asyncio.get_running_loop()
        while True:
            self._lifecycle.require_running()
            if self._group is not None:
                if self._group.is_due:
                    await self._rebalance(self._group)
                self._group.commit_if_due(loop.time())
            if self._wakeup.is_set():
                self._reading.raise_failure()
                self._wakeup.clear()
                self._reading.begin_due()
            records = self._buffer.take(limit)
            self._reading.fetch_more()
            if not records:
                self._refusal.raise_if_any()
            if records or loop.time() >= deadline - TIMER_SLACK:
                return records
            await self._wait_until(deadline)

    async def _rebalance(self, group: GroupConsumption) -> None:
        before = self._subscription.assignment
        try:
            await group.rebalance()
        finally:
            if self._subscription.assignment != before:
                self._buffer.drop_unassigned()
                self._wakeup.set()

    async def _wait_until(self, deadline: float) -> None:
        """Wait for a wakeup, or until a commit or a position lookup is due."""
        commit_at = math.inf if self._group is None else self._group.next_commit_at
        until = min(deadline, commit_at, self._subscription.partitions.next_retry_at)
        if not await self._wakeup.wait_until_set(until) and until < deadline:
            self._wakeup.set()
