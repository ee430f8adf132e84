"""Offsets that a member of a group has printed and not yet committed.

A record counts as printed when the reader of standard output has taken it: what is still in a pipe is lost when the
reader ends. Printed records are committed every 5 s, before partitions go to another member, and at the end, within
seconds: an unreachable cluster does not keep the command from ending, and the user learns where the next run continues.
After the reader has ended nothing is committed, since it may have taken more than it has shown (``| head``).
"""

import asyncio
import shlex
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.clients.cli.paced_output import PacedOutput
from oncelog.clients.consumer import Consumer, ConsumerRecord, OffsetAndMetadata, RebalanceListener
from oncelog.clients.consumer.consumer_errors import RebalanceInProgress
from oncelog.clients.errors import ClientError, CommitFailed, OperationTimedOut
from oncelog.protocol.topic_partition import TopicPartition

_POLL_SECONDS: Final = 1.0
COMMIT_SECONDS: Final = 5.0
_LAST_COMMIT_SECONDS: Final = 10.0
_LAST_ATTEMPT_SECONDS: Final = 2.0
_HINDERED_SECONDS: Final = 1.5
"""Seconds of an obstacle after which the last commit is not tried again."""
_SETTLED_SECONDS: Final = 7.0
"""Two heartbeats and a rebalance: a member that has no more partitions after that gets none for now."""
_LOOK_SECONDS: Final = 1.0
_MOST_NAMED: Final = 10


async def known_position(consumer: Consumer, topic_partition: TopicPartition) -> int | None:
    """Return the offset of the next record; None while it is being looked up."""
    try:
        return await consumer.position(topic_partition, timeout_seconds=0)
    except OperationTimedOut:
        return None


@dataclass(slots=True, kw_only=True)
class GroupOffsets(RebalanceListener):
    """The offsets of one member."""

    consumer: Consumer
    output: PacedOutput
    find_start: Callable[[Collection[TopicPartition]], Awaitable[dict[TopicPartition, int]]] | None
    """Where to begin in partitions for which nothing is committed; None: at the beginning."""
    warn: Callable[..., None]
    group_id: str
    is_hindered: Callable[[float], bool]
    """Whether an obstacle between the consumer and the cluster has lasted for a number of seconds."""
    has_joined: bool = False
    _changed_at: float = 0.0
    """When the last rebalance gave or took partitions, or left everything as it was; on the loop's clock."""
    _first: dict[TopicPartition, int] = field(default_factory=dict)
    """The offset of the first record that was printed."""
    _written: deque[tuple[int, dict[TopicPartition, int]]] = field(default_factory=deque)
    """Positions, and how many bytes the reader has to take until all before them is printed; the latest at the end."""
    _printed: dict[TopicPartition, int] = field(default_factory=dict)
    _committed: dict[TopicPartition, int] = field(default_factory=dict)
    _commit_at: float | None = None
    _has_warned: bool = False
    _has_warned_of_commits: bool = False

    def note_first(self, records: Iterable[ConsumerRecord]) -> None:
        """Note the first of the records that are being printed."""
        for record in records:
            self._first.setdefault(record.topic_partition, record.offset)

    async def note_written(self) -> None:
        """Note the positions: all before them has been written out."""
        positions = {}
        for topic_partition in self.consumer.assignment:
            position = await known_position(self.consumer, topic_partition)
            if position is not None:
                positions[topic_partition] = position
        if self._written and self._written[-1][0] == self.output.written:
            self._written.pop()
        self._written.append((self.output.written, positions))

    def _note_taken(self) -> None:
        """Take over the positions behind bytes that the reader has taken."""
        taken = self.output.taken
        while self._written and self._written[0][0] <= taken:
            self._printed |= self._written.popleft()[1]

    async def commit_if_due(self) -> None:
        """Commit every ``COMMIT_SECONDS``. What fails is tried again then, and said once if it does not pass.

        The first time is that long after the first record, so that nothing is committed for a reader that soon goes
        away: it may have taken more than it has shown.
        """
        now = asyncio.get_running_loop().time()
        if self._commit_at is None:
            self._commit_at = now + COMMIT_SECONDS
        if now < self._commit_at:
            return
        self._commit_at = now + COMMIT_SECONDS
        try:
            await self._commit(self._uncommitted(), COMMIT_SECONDS)
            self._has_warned = False
        except RebalanceInProgress:
            pass  # The next poll takes part in it.
        except (CommitFailed, OperationTimedOut) as error:
            if not self._has_warned:
                self.warn(f"not committed: {error}")
            self._has_warned = True

    async def commit_finally(self) -> bool:
        """Commit what is printed and still assigned; False, which is said, if that does not get through in time.

        The time is 10 s while the cluster responds, since a rebalance may be in progress, and about 2 s otherwise.
        """
        try:
            await self._commit_at_last()
        except ClientError as error:
            where = self._places(sorted(self._uncommitted()))
            self.warn(f"the last commit did not get through ({error}): the next run of the group continues at {where}")
            return False
        return True

    async def _commit_at_last(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LAST_COMMIT_SECONDS
        while uncommitted := self._uncommitted():
            try:
                return await self._commit(uncommitted, _LAST_ATTEMPT_SECONDS)
            except RebalanceInProgress:
                if loop.time() >= deadline:
                    raise
                await self.consumer.poll(_POLL_SECONDS, 0)
            except OperationTimedOut:
                if loop.time() >= deadline or self.is_hindered(_HINDERED_SECONDS):
                    raise

    async def describe_uncommitted(self) -> str:
        """Return where the next run of the group continues, if written records are not committed."""
        positions = {
            tp: await known_position(self.consumer, tp) for tp in self.consumer.assignment & self._first.keys()
        }
        return self._places(sorted(tp for tp, position in positions.items() if self._committed.get(tp) != position))

    def _places(self, partitions: Sequence[TopicPartition]) -> str:
        places = [f"{tp} at offset {self._resumes_at(tp)}" for tp in partitions]
        more = f" and {len(places) - _MOST_NAMED} more" if len(places) > _MOST_NAMED else ""
        return ", ".join(places[:_MOST_NAMED]) + more

    def _resumes_at(self, topic_partition: TopicPartition) -> int | str:
        committed = self._committed.get(topic_partition)
        return self._first.get(topic_partition, "unknown") if committed is None else committed

    def _uncommitted(self) -> dict[TopicPartition, int]:
        """Return what can still be committed: partitions that were revoked belong to other members."""
        self._note_taken()
        if not self.output.has_reader:  # It may not have shown what it has taken.
            return {}
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

    async def leaves_to_others(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether partitions of other members are read to their ends, or stay with those members.

        A member that has just joined may have none yet: others give some up first, or are about to leave.
        """
        if asyncio.get_running_loop().time() >= self._changed_at + _SETTLED_SECONDS:
            self.warn(
                f"{len(ends)} of the partitions are other members' of the group, and were not read to the end here"
            )
            return True
        try:
            committed = await self.consumer.committed(ends, _LOOK_SECONDS)
        except ClientError:
            return False  # The next call asks again.
        return all(end == 0 or (tp in committed and committed[tp].offset >= end) for tp, end in ends.items())

    # What changes inside a poll

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.has_joined = True
        self._changed_at = asyncio.get_running_loop().time()
        if partitions and self.find_start is not None:
            committed = await self.consumer.committed(partitions)
            fresh = [topic_partition for topic_partition in partitions if topic_partition not in committed]
            self._tell_of_commits(sorted(committed))
            for topic_partition, offset in (await self.find_start(fresh) if fresh else {}).items():
                self.consumer.seek(topic_partition, offset)

    def _tell_of_commits(self, committed: Sequence[TopicPartition]) -> None:
        """Warn once that ``--from`` has no effect where the group has committed offsets."""
        if committed and not self._has_warned_of_commits:
            self._has_warned_of_commits = True
            named = ", ".join(map(str, committed[:_MOST_NAMED]))
            more = f" and {len(committed) - _MOST_NAMED} more" if len(committed) > _MOST_NAMED else ""
            self.warn(
                f"--from has no effect on {named}{more}, where the group has committed offsets and continues",
                f"`oncelog group seek {shlex.quote(self.group_id)} --to POSITION` moves a group that has no members; "
                "or read without --group",
            )

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._changed_at = asyncio.get_running_loop().time()
        leaving = {tp: offset for tp, offset in self._uncommitted().items() if tp in partitions}
        try:
            await self._commit(leaving, COMMIT_SECONDS)
        except ClientError as error:
            self.warn(f"{_count(len(leaving))} given up without a commit, whose records are read again: {error}")
        self._forget(partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._changed_at = asyncio.get_running_loop().time()
        lost = [topic_partition for topic_partition in self._uncommitted() if topic_partition in partitions]
        if lost:
            self.warn(f"{_count(len(lost))} lost to other members of the group, which read some records again")
        self._forget(partitions)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        for topic_partition in partitions:
            for offsets in (
                self._first,
                self._printed,
                self._committed,
                *(positions for _, positions in self._written),
            ):
                offsets.pop(topic_partition, None)


def _count(partitions: int) -> str:
    return "1 partition was" if partitions == 1 else f"{partitions} partitions were"
