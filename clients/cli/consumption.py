"""What ``oncelog consume`` does with a consumer: print what it returns, stop where it has to, commit for a group.

For a group only what has left this process is committed: standard output is flushed, and then the positions are taken
over. They are committed every 5 s, before partitions go to another member, and at the end.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from clients.consumer import Consumer, ConsumerRecord, OffsetAndMetadata, RebalanceListener
from clients.consumer.consumer_errors import RebalanceInProgress
from clients.errors import ClientError, CommitFailed, OperationTimedOut
from protocol.topic_partition import TopicPartition

_POLL_SECONDS: Final = 1.0
"""The longest time until a signal is heeded."""
COMMIT_SECONDS: Final = 5.0
_LAST_COMMIT_SECONDS: Final = 10.0
_POLL_RECORDS: Final = 500


@dataclass(slots=True, kw_only=True)
class Consumption:
    """One run: ``read`` until ``limit`` records are printed, every partition is at its end, or ``stop`` is called."""

    consumer: Consumer
    write: Callable[[TopicPartition, ConsumerRecord], None]
    flush: Callable[[], None]
    limit: int | None
    ends: Mapping[TopicPartition, int]
    """Where partitions end; empty unless to stop there."""
    until_end: bool
    group: "GroupOffsets | None" = None
    count: int = 0
    """Records printed."""
    _is_stopped: bool = False

    def stop(self) -> None:
        """Return from ``read`` after the present poll. Safe to call from a signal handler."""
        self._is_stopped = True

    async def read(self) -> None:
        """Print records. Raises ``ClientError``, and ``OSError`` if they cannot be written."""
        while not self._is_stopped and self.count != self.limit and not (self.until_end and self._is_at_end()):
            left = _POLL_RECORDS if self.limit is None else self.limit - self.count
            for record in await self.consumer.poll(_POLL_SECONDS, min(left, _POLL_RECORDS)):
                if record.offset < self.ends.get(record.topic_partition, math.inf):
                    self.write(record.topic_partition, record)
                    self.count += 1
            await self._hold_at_ends()
            self.flush()
            if self.group is not None:
                await self.group.note_printed()
                await self.group.commit_if_due()

    async def _hold_at_ends(self) -> None:
        """Let no partition's position pass the end at which to stop: nothing behind it was printed."""
        for topic_partition in self.consumer.assignment & self.ends.keys():
            position = await known_position(self.consumer, topic_partition)
            if position is not None and position >= self.ends[topic_partition]:
                if position > self.ends[topic_partition]:
                    self.consumer.seek(topic_partition, self.ends[topic_partition])
                self.consumer.pause([topic_partition])

    def _is_at_end(self) -> bool:
        if self.group is not None and not self.group.has_joined:
            return False
        return self.consumer.assignment & self.ends.keys() <= self.consumer.paused


async def known_position(consumer: Consumer, topic_partition: TopicPartition) -> int | None:
    """Return the offset of the next record; None while it is being looked up."""
    try:
        return await consumer.position(topic_partition, timeout_seconds=0)
    except OperationTimedOut:
        return None


@dataclass(slots=True, kw_only=True)
class GroupOffsets(RebalanceListener):
    """What a member of a group has printed and not yet committed."""

    consumer: Consumer
    find_start: Callable[[Collection[TopicPartition]], Awaitable[dict[TopicPartition, int]]] | None
    """Where to begin in partitions for which nothing is committed; None: at the beginning."""
    warn: Callable[[str], None]
    has_joined: bool = False
    _printed: dict[TopicPartition, int] = field(default_factory=dict)
    _committed: dict[TopicPartition, int] = field(default_factory=dict)
    _commit_at: float = 0.0

    async def note_printed(self) -> None:
        """Take over the positions: all before them has been flushed."""
        for topic_partition in self.consumer.assignment:
            position = await known_position(self.consumer, topic_partition)
            if position is not None:
                self._printed[topic_partition] = position

    async def commit_if_due(self) -> None:
        """Commit every ``COMMIT_SECONDS``. What fails is tried again then, and said if it does not pass by itself."""
        now = asyncio.get_running_loop().time()
        if now < self._commit_at:
            return
        self._commit_at = now + COMMIT_SECONDS
        try:
            await self._commit(self._uncommitted(), COMMIT_SECONDS)
        except RebalanceInProgress:
            pass  # The next poll takes part in it.
        except (CommitFailed, OperationTimedOut) as error:
            self.warn(f"not committed: {error}")

    async def commit_finally(self) -> None:
        """Commit what is printed and still assigned. Raises ``ClientError`` if that fails for 10 s."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LAST_COMMIT_SECONDS
        while uncommitted := self._uncommitted():
            try:
                return await self._commit(uncommitted, max(1.0, deadline - loop.time()))
            except RebalanceInProgress:
                if loop.time() >= deadline:
                    raise
                self.consumer.pause(self.consumer.assignment)
                await self.consumer.poll(_POLL_SECONDS)

    def _uncommitted(self) -> dict[TopicPartition, int]:
        """What can still be committed: other members go on with partitions that were given up."""
        assigned = self.consumer.assignment
        return {
            topic_partition: offset
            for topic_partition, offset in self._printed.items()
            if topic_partition in assigned and self._committed.get(topic_partition) != offset
        }

    async def _commit(self, offsets: Mapping[TopicPartition, int], seconds: float) -> None:
        if offsets:
            await self.consumer.commit({tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}, seconds)
            self._committed |= offsets

    # What changes inside a poll

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.has_joined = True
        if partitions and self.find_start is not None:
            committed = await self.consumer.committed(partitions)
            fresh = [topic_partition for topic_partition in partitions if topic_partition not in committed]
            for topic_partition, offset in (await self.find_start(fresh) if fresh else {}).items():
                self.consumer.seek(topic_partition, offset)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        leaving = {tp: offset for tp, offset in self._uncommitted().items() if tp in partitions}
        try:
            await self._commit(leaving, COMMIT_SECONDS)
        except ClientError as error:
            self.warn(f"{_count(len(leaving))} given up without a commit, whose records are read again: {error}")
        self._forget(partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        lost = [topic_partition for topic_partition in self._uncommitted() if topic_partition in partitions]
        if lost:
            self.warn(f"{_count(len(lost))} lost to other members of the group, which read some records again")
        self._forget(partitions)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        for topic_partition in partitions:
            self._printed.pop(topic_partition, None)
            self._committed.pop(topic_partition, None)


def _count(partitions: int) -> str:
    return "1 partition was" if partitions == 1 else f"{partitions} partitions were"
