"""``LeaderlessPartitions``: the elections that end an unclean recovery, when log ends or time say that it can end."""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeAlias

from oncelog.coordinator.controller.controller_context import ControllerContext
from oncelog.coordinator.controller.partition_states import elect
from oncelog.coordinator.controller.propagation import send_changes
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from oncelog.protocol.schema import Message
from oncelog.protocol.topic_partition import TopicPartition

Put: TypeAlias = Callable[[str, Callable[[], Awaitable[None]]], None]
"""Queues an event, by its key."""


class LeaderlessPartitions:
    """The partitions without a leader of one controller epoch."""

    def __init__(self, context: ControllerContext, put: Put) -> None:
        self._context = context
        self._put = put
        self._reported: set[TopicPartition] = set()
        context.waits.on_over = self._note_over

    def note_response(self, broker_id: int, request: Message, response: Message) -> None:
        """Note the log ends that a broker reports."""
        if not isinstance(request, LeaderAndIsrRequest) or not isinstance(response, LeaderAndIsrResponse):
            return
        state = self._context.state
        self._reported |= state.log_ends.take(broker_id, request, response, state.topic_names)
        if self._reported:
            self._put("log ends reported", self._recover_reported)

    def note_reachable(self, broker_id: int) -> None:
        """Note that a broker can be reached again."""
        if self._context.state.waiting:
            self._put(f"recover on broker {broker_id}", partial(self._recover_on, broker_id))

    def _note_over(self) -> None:
        self._put("waits over", self._recover_after_wait)

    async def _recover_reported(self) -> None:
        """Elect leaders of partitions of which log ends have been reported."""
        reported, self._reported = self._reported, set()
        await self._recover(sorted(reported))

    async def _recover_after_wait(self) -> None:
        """Elect leaders of partitions that have waited long enough."""
        await self._recover(self._context.waits.over())

    async def _recover_on(self, broker_id: int) -> None:
        """Elect leaders of partitions that have a replica on a broker that can be reached again."""
        state = self._context.state
        await self._recover([p for p in state.waiting if broker_id in state.replicas(p).replicas])

    async def _recover(self, partitions: Iterable[TopicPartition]) -> None:
        existing = [partition for partition in partitions if self._context.state.state(partition) is not None]
        elected = await elect(self._context, existing)
        await send_changes(self._context, elected, elected)
