"""The calls of ``send`` that wait for metadata or for space, and the order in which their records are accepted.

Records of one partition are accepted in the order of the calls. A call for a partition that its topic does not have yet
delays no calls for other partitions, and one that waits for space delays all.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from oncelog.clients.arguments import checked_partition, checked_topic
from oncelog.clients.errors import BufferFull
from oncelog.clients.producer.future_record_metadata import FutureRecordMetadata
from oncelog.clients.producer.producer_metadata import ProducerMetadata
from oncelog.clients.producer.record_accumulator import RecordAccumulator
from oncelog.clients.producer.send_turns import SendTurns, WaitingCalls
from oncelog.protocol.topic_partition import TopicPartition

Accept: TypeAlias = Callable[[], FutureRecordMetadata]
"""Accepts one record now, or raises ``BufferFull``."""


class WaitingSends:
    """The waiting calls of one producer."""

    def __init__(self, accumulator: RecordAccumulator, metadata: ProducerMetadata, *, max_block_seconds: float) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._max_block_seconds = max_block_seconds
        self._turns = SendTurns()
        self.lines = self._turns.lines
        """The calls that wait, by topic or partition: records keep the order of the calls."""
        self._queued = WaitingCalls()
        """The calls in lines, except for those for partitions that do not exist yet."""
        self._space_free = asyncio.Event()
        self._turn_to_wait = asyncio.Lock()
        """Held by the call that waits for space in front of all others."""
        self._waiting_for_space = 0

    def may_overtake(self, topic: str, partition: int | None) -> bool:
        """Return whether no waiting call could be for the same partition, or for the space that a new one would use."""
        if self._waiting_for_space or self._queued.concern(topic, partition):
            return False
        return partition is None or TopicPartition(topic, partition) not in self.lines

    async def accept(self, topic: str, partition: int | None, accept: Accept) -> FutureRecordMetadata:
        """Accept a record after those of earlier calls. Raises the error of ``ProducerMetadata`` after the time-out."""
        checked_topic(topic)
        try:
            async with asyncio.timeout(self._max_block_seconds):
                return await self._accept_in_turn(topic, partition, accept)
        except TimeoutError:
            raise self._metadata.timeout_error(topic, partition) from None

    def note_space(self) -> None:
        """Let the first call continue that waits for space, if there is space now or the producer is closed."""
        if not self._accumulator.is_full or self._accumulator.is_closed:
            self._space_free.set()

    async def _accept_in_turn(self, topic: str, partition: int | None, accept: Accept) -> FutureRecordMetadata:
        with self._queued.one_more(topic, partition), self._turns.join(topic) as turn:
            await self._metadata.learn(topic)
            await turn.wait()
            await self._metadata.learn(topic)
            if partition is None or self._is_free(topic, partition):
                return await self._accept_with_space(topic, partition, accept)
        with self._turns.join(TopicPartition(topic, checked_partition(partition))) as turn:
            await turn.wait()
            return await self._accept_with_space(topic, partition, accept)

    def _is_free(self, topic: str, partition: int) -> bool:
        """Return whether a partition exists, and no call is still in the line that waited for it to be created."""
        exists = partition < len(self._accumulator.topics[topic].queues)
        return exists and TopicPartition(topic, partition) not in self.lines

    async def _accept_with_space(self, topic: str, partition: int | None, accept: Accept) -> FutureRecordMetadata:
        while True:
            await self._metadata.learn(topic)
            if partition is not None:
                await self._metadata.learn_partition(topic, partition)
            await self._wait_for_space()
            try:
                return accept()
            except BufferFull:  # The topic was forgotten, or came back smaller, while there was no space.
                continue

    async def _wait_for_space(self) -> None:
        """Return once there is space and no other call waits in front; the caller must use the space at once."""
        if not self._waiting_for_space and not self._accumulator.is_full:
            return
        self._waiting_for_space += 1
        try:
            async with self._turn_to_wait:
                while self._accumulator.is_full and not self._accumulator.is_closed:
                    self._space_free.clear()
                    await self._space_free.wait()
        finally:
            self._waiting_for_space -= 1
