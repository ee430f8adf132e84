"""What ``oncelog consume`` does with a consumer: print what it returns, and stop where it has to.

For a group only what the reader of standard output has taken is committed: records are written out, and when they have
been read the positions are taken over. While the reader takes nothing (``| less``), a group's member goes on polling
for no records: it stays in the group and takes part in rebalances.
"""

import asyncio
import errno
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from oncelog.clients.cli.group_offsets import GroupOffsets, known_position
from oncelog.clients.cli.paced_output import PacedOutput
from oncelog.clients.consumer import Consumer, ConsumerRecord
from oncelog.protocol.topic_partition import TopicPartition

_POLL_SECONDS: Final = 1.0
_POLL_RECORDS: Final = 500
_TAKE_SECONDS: Final = 1.0
"""Seconds for a reader to take what was written before a signal."""


@dataclass(slots=True, kw_only=True)
class Consumption:
    """One run: ``read`` until ``limit`` records are printed, every partition is at its end, or ``stop`` is called."""

    consumer: Consumer
    show: Callable[[TopicPartition, ConsumerRecord], bytes]
    output: PacedOutput
    limit: int | None
    ends: Mapping[TopicPartition, int]
    """Where partitions end; empty unless to stop there."""
    until_end: bool
    begin_seconds: float
    """After which ``on_late`` is called, with every poll, until the first response about records has come."""
    on_late: Callable[[], None]
    group: GroupOffsets | None = None
    count: int = 0
    """Records printed."""
    _is_stopped: bool = False
    _scope: asyncio.Timeout | None = None

    def stop(self) -> None:
        """Have ``read`` return now, whatever it waits for. Call it in the loop's thread."""
        self._is_stopped = True
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time())

    async def read(self) -> None:
        """Print records. Raises ``ClientError``, what ``on_late`` raises, and ``OSError`` if nothing can be written.

        ``BrokenPipeError`` is raised when the reader has gone, also if there is nothing to be written.
        """
        try:
            async with asyncio.timeout(None) as self._scope:
                if not self._is_stopped:
                    await self._read()
        except TimeoutError:
            if not self._is_stopped:
                raise
        finally:
            self._scope = None

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        begin_until = loop.time() + self.begin_seconds
        has_begun = False
        while self.count != self.limit and not (self.until_end and await self._is_at_end()):
            left = _POLL_RECORDS if self.limit is None else self.limit - self.count
            await self._print(await self.consumer.poll(_POLL_SECONDS, min(left, _POLL_RECORDS)))
            await self._hold_at_ends()
            if self.group is not None:
                await self.group.note_written()
            self.require_reader()
            if self.group is not None:
                await self.group.commit_if_due()
            has_begun = has_begun or self._has_begun()
            if not has_begun and loop.time() >= begin_until:
                self.on_late()
        if self.group is not None:
            await self.output.finish(self._stay_in_group)

    async def let_reader_take(self) -> None:
        """Wait a moment for the reader after a group's member was stopped: what it still takes is committed.

        Raises ``BrokenPipeError`` if it has gone.
        """
        if self.group is None:
            return
        if self._is_stopped:
            with suppress(TimeoutError):
                async with asyncio.timeout(_TAKE_SECONDS):
                    await self.output.finish(self._stay_in_group)
        self.require_reader()

    def require_reader(self) -> None:
        """Raise ``BrokenPipeError`` if nothing that is written can be read any more."""
        if not self.output.has_reader:
            raise BrokenPipeError(errno.EPIPE, "the reader of standard output has gone")

    async def _print(self, records: list[ConsumerRecord]) -> None:
        records = [each for each in records if each.offset < self.ends.get(each.topic_partition, math.inf)]
        if records:
            if self.group is not None:
                self.group.note_first(records)
            shown = b"".join(self.show(each.topic_partition, each) for each in records)
            await self.output.write(shown, self._stay_in_group)
            self.count += len(records)

    async def _stay_in_group(self) -> None:
        if self.group is not None:
            await self.consumer.poll(0.0, 0)

    def _has_begun(self) -> bool:
        """Return whether a leader has responded, or no partition is assigned."""
        if self.group is not None and not self.group.has_joined:
            return False
        assignment = self.consumer.assignment
        return not assignment or any(self.consumer.lag(topic_partition) is not None for topic_partition in assignment)

    async def _hold_at_ends(self) -> None:
        """Let no partition's position pass the end at which to stop: nothing behind it was printed."""
        for topic_partition in self.consumer.assignment & self.ends.keys():
            position = await known_position(self.consumer, topic_partition)
            if position is not None and position >= self.ends[topic_partition]:
                if position > self.ends[topic_partition]:
                    self.consumer.seek(topic_partition, self.ends[topic_partition])
                self.consumer.pause([topic_partition])

    async def _is_at_end(self) -> bool:
        """Return whether all partitions of this member are at their ends, and it will not be assigned others."""
        assigned = self.consumer.assignment & self.ends.keys()
        if not assigned <= self.consumer.paused:
            return False
        if self.group is None or assigned == self.ends.keys():
            return True
        return self.group.has_joined and await self.group.leaves_to_others(
            {topic_partition: end for topic_partition, end in self.ends.items() if topic_partition not in assigned}
        )
