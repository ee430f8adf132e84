"""The order of waiting calls. ``SendTurns`` has one line for each key, first come, first served.

A key is a topic, or a partition that its topic does not have yet. A call has its place from the moment it joins, and
may wait for metadata there. The first call stays first until it leaves, also across awaits; a call that is cancelled
leaves without harm to those behind it.

``WaitingCalls`` decides whether a new call would overtake a waiting one: only calls for the same partition have an
order. With a task for each of many partitions, one line for all calls would never end, and delay each record by a turn.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final, TypeVar

from oncelog.protocol.topic_partition import TopicPartition

Key = TypeVar("Key")

_WOKEN_AT_ONCE: Final = 32
"""Maximum number of calls in a line that are woken in one iteration; a call that is not first waits again."""


class SendTurn:
    """The place of one call in a line."""

    __slots__ = ("_line", "woken")

    def __init__(self, line: "deque[SendTurn]") -> None:
        self._line = line
        self.woken = asyncio.Event()

    async def wait(self) -> None:
        """Return once all calls in front have left."""
        while self._line[0] is not self:
            self.woken.clear()
            await self.woken.wait()


class SendTurns:
    """The lines of one producer; ``lines`` holds those that are not empty."""

    def __init__(self) -> None:
        self.lines: dict[str | TopicPartition, deque[SendTurn]] = {}

    @contextmanager
    def join(self, key: str | TopicPartition) -> Iterator[SendTurn]:
        """Take the last place in a line, and leave it at the end of the context."""
        line = self.lines.setdefault(key, deque())
        turn = SendTurn(line)
        line.append(turn)
        try:
            yield turn
        finally:
            line.remove(turn)
            if not line:
                del self.lines[key]
            self._wake(line)

    @staticmethod
    def _wake(line: deque[SendTurn]) -> None:
        """Wake the first calls. Where they are awake already, only one more has to be woken."""
        if len(line) >= _WOKEN_AT_ONCE and line[0].woken.is_set():
            line[_WOKEN_AT_ONCE - 1].woken.set()
            return
        for following in islice(line, _WOKEN_AT_ONCE):
            following.woken.set()


class WaitingCalls:
    """The waiting calls of one producer, by topic, and by partition if that is chosen already."""

    def __init__(self) -> None:
        self.topics: Counter[str] = Counter()
        """The number of waiting calls; only topics for which there are some."""
        self._places: Counter[tuple[str, int | None]] = Counter()

    def concern(self, topic: str, partition: int | None) -> bool:
        """Return whether a waiting call may be for the same partition; None is a partition yet to be chosen."""
        if topic not in self.topics:
            return False
        return partition is None or (topic, partition) in self._places or (topic, None) in self._places

    @contextmanager
    def one_more(self, topic: str, partition: int | None) -> Iterator[None]:
        """Count a call as waiting in this context."""
        place = (topic, partition)
        self.topics[topic] += 1
        self._places[place] += 1
        try:
            yield
        finally:
            _decrement(self.topics, topic)
            _decrement(self._places, place)


def _decrement(counter: Counter[Key], key: Key) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
